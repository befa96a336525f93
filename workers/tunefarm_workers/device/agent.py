"""The agent: one loop that keeps the registration and the RPC server alive, and says whether the device is ready."""

from __future__ import annotations

import json
import logging
import math
import os
import secrets
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tunefarm_tuning.core.output_file import write_durably
from tunefarm_tuning.process.lifeline import adopt_orphans
from tunefarm_tuning.process.sandbox import sandbox_state
from tunefarm_workers.device.api_client import ApiClient
from tunefarm_workers.device.description import DeviceDescription
from tunefarm_workers.device.enrolment import Renewal
from tunefarm_workers.device.gpu.driver import Gpu
from tunefarm_workers.device.gpu_watch import GpuWatch
from tunefarm_workers.device.registration import Registration
from tunefarm_workers.device.rpc import probe
from tunefarm_workers.device.rpc.keeper import ServerKeeper, ServerState
from tunefarm_workers.device.rpc.process import SERVER_MODULE, RpcProcess, server_command, server_environment
from tunefarm_workers.device.rpc.session_user import Chosen, SessionFolder
from tunefarm_workers.device.settings import AgentSettings
from tunefarm_workers.device.tunnel.tunnel import Tunnel
from tunefarm_workers.device.vitals import Vitals

log = logging.getLogger("tunefarm.device")

TICK_SEC = 0.25
STATE_FILE = "state.json"
"""In the agent's folder: its last event, for health checks."""


class Agent:
    """Lends the device until told to stop.

    Args:
        settings: The agent's settings.
        api_key: The key that it uses the API with.
        device: Description of the device.
        gpu: The GPU that is lent, and the only one that the RPC server sees; None for a CPU.
        emit: Takes events, JSON objects for a supervisor: ``event`` is ``"state"``, ``online`` says whether the API knows
            that workers can measure here.
        server_module: Module to run as RPC server.
        sessions: Who runs sessions.
    """

    def __init__(
        self,
        settings: AgentSettings,
        api_key: str,
        device: DeviceDescription,
        *,
        gpu: Gpu | None = None,
        emit: Callable[[dict[str, Any]], None],
        server_module: str = SERVER_MODULE,
        sessions: Chosen = Chosen(user=None, why="it was told to"),  # noqa: B008  (frozen)
    ) -> None:
        self._settings = settings
        self._device = device
        self._gpu = gpu
        self._emit = emit
        self._server_module = server_module
        # A new key in every life of the agent, so that a ticket for an earlier life is never used.
        self._rpc_key = f"dev-{secrets.token_hex(8)}"
        self._api = ApiClient(settings.url, api_key)
        self._renewal = Renewal(self._api, api_key, settings, clock=time.monotonic)
        self._registration = Registration(
            self._api,
            {**device.to_json(), "rpc_key": self._rpc_key},
            heartbeat_sec=settings.heartbeat_sec,
            clock=time.monotonic,
        )
        self._vitals = Vitals(gpu, every_sec=settings.heartbeat_sec, clock=time.monotonic)
        self._gpu_watch = None if gpu is None else GpuWatch(self._vitals, clock=time.monotonic)
        self._tunnel: Tunnel | None = None
        self._server: RpcProcess | None = None
        self._keeper: ServerKeeper | None = None
        self._emitted: tuple[object, ...] | None = None
        self._sandbox = sandbox_state().summary
        self._sessions = sessions
        self._session_folder = None if sessions.user is None else SessionFolder(sessions.user)

    def run(self, wait: Callable[[float], bool]) -> None:
        """Work until `wait` (which sleeps that many seconds) returns True.

        Raises:
            InvalidInputError: If the API will never accept this device.
        """
        adopt_orphans()
        (self._settings.work_dir / STATE_FILE).unlink(missing_ok=True)  # left by an agent that was killed
        try:
            while True:
                self._registration.tick(self._status())
                self._renewal.tick(key_ended=self._registration.key_ended)
                if self._registration.device_id is not None:
                    self._serve(self._registration.device_id)
                self._tell()
                if wait(TICK_SEC):
                    break
        finally:
            self._close()

    def _serve(self, device_id: str) -> None:
        """Keep the RPC server and the connection with the gateway, which begin with the first registration."""
        if self._tunnel is None:
            self._tunnel = Tunnel(
                self._api,
                self._settings.url,
                self._connect,
                rpc_key=self._rpc_key,
                address=self._settings.gateway,
            )
        if self._keeper is None:
            self._keeper = ServerKeeper(
                self._start_server, self._prove, clock=time.monotonic, probe_sec=self._settings.probe_sec
            )
        self._tunnel.tick(device_id)
        self._keeper.tick()

    def _connect(self) -> tuple[socket.socket, int]:
        """Return a connection to the server behind its door, and its process id; any thread.

        Raises:
            OSError: If there is none.
        """
        server = self._server
        if server is None:
            raise ConnectionRefusedError("its RPC server is starting")
        return server.connect(), server.pid

    def _start_server(self) -> RpcProcess:
        settings, user, folder = self._settings, self._sessions.user, self._session_folder
        own = os.environ if user is None or folder is None else user.environment(os.environ, folder.path)
        self._server = RpcProcess(
            server_command(
                module=self._server_module,
                rpc_key=self._rpc_key,
                work_dir=settings.work_dir / "sessions" if folder is None else folder.path,
                max_session_sec=settings.max_session_sec,
                memory_bytes=int(self._device.info["memory_bytes"]) if self._device.kind == "cpu" else None,
            ),
            server_environment(
                own,
                num_threads=self._device.num_threads,
                gpu_uuid=None if self._gpu is None else self._gpu.uuid,
            ),
            {} if user is None else user.options(),
        )
        return self._server

    def _prove(self) -> tuple[bool, bool]:
        is_connected = self._tunnel is not None and self._tunnel.is_connected
        return probe.greets(lambda: self._connect()[0]), is_connected

    @property
    def _state(self) -> ServerState:
        return ServerState.STARTING if self._keeper is None else self._keeper.state

    def _status(self) -> dict[str, Any]:
        """Return a heartbeat's body."""
        keeper = self._keeper
        agent = {
            "state": self._state.value,
            "rpc_restarts": 0 if keeper is None else max(0, keeper.restarts),
            "sandbox": self._sandbox,
            "sessions": self._sessions.to_json(),
            **self._vitals.read(),
        }
        reason = "the RPC server is starting" if keeper is None else keeper.reason
        if self._gpu_watch is not None:
            # If there are two reasons, report the one that a person can repair.
            reason = self._gpu_watch.reason(math.inf if keeper is None else keeper.unused_sec()) or reason
        return {
            "ready": self._state is ServerState.SERVING and not reason,
            "reason": reason,
            "rpc_key": self._rpc_key,
            "info": {**self._device.info, "agent": agent},
        }

    def _tell(self) -> None:
        """Tell the supervisor and health checks if anything has changed."""
        device_id, keeper = self._registration.device_id, self._keeper
        known = (device_id, self._state, self._registration.online, self._registration.key_ended)
        if device_id is None or known == self._emitted:
            return
        self._emitted = known
        event = {
            "event": "state",
            "device_id": device_id,
            "rpc_key": self._rpc_key,
            "state": self._state.value,
            "online": self._registration.online,
            "key_ended": self._registration.key_ended,
            "server_pid": None if keeper is None else keeper.server_pid,
        }
        self._emit(event)
        log.info("%s%s", self._state, f": {keeper.reason}" if keeper is not None and keeper.reason else "")
        write_durably(self._settings.work_dir / STATE_FILE, json.dumps(event), mode=0o644)

    def _close(self) -> None:
        leaving = {**self._status(), "ready": False, "reason": "the agent is stopping"}
        (self._settings.work_dir / STATE_FILE).unlink(missing_ok=True)
        self._registration.say_goodbye(leaving)
        if self._tunnel is not None:
            self._tunnel.close()
        if self._keeper is not None:
            self._keeper.stop()
        if self._session_folder is not None:
            self._session_folder.close()
        self._api.close()


def lock_folder(folder: Path) -> int:
    """Lock the agent's folder for this process; return the descriptor that holds the lock.

    Raises:
        BlockingIOError: If another agent has it.
    """
    import fcntl

    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return descriptor
