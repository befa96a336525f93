"""The agent: one loop that looks after the registration and the RPC server in turn."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from tunefarm_tuning.child.orphans import adopt_orphans
from tunefarm_workers.device import probe
from tunefarm_workers.device.api_client import ApiClient, Grant
from tunefarm_workers.device.description import DeviceDescription
from tunefarm_workers.device.keeper import ServerKeeper, ServerState
from tunefarm_workers.device.registration import Registration
from tunefarm_workers.device.rpc_process import RpcProcess, server_command, server_environment
from tunefarm_workers.device.settings import AgentSettings

log = logging.getLogger("tunefarm.device")

TICK_SEC = 0.25


class Agent:
    """Lends the device until told to stop.

    Args:
        settings: What the agent was told.
        device: What the machine is.
        emit: Takes events, JSON objects with an ``event``: ``registered`` and ``state``, for a supervisor.
    """

    def __init__(
        self,
        settings: AgentSettings,
        device: DeviceDescription,
        *,
        emit: Callable[[dict[str, Any]], None],
    ) -> None:
        self._settings = settings
        self._device = device
        self._emit = emit
        self._api = ApiClient(settings.url, settings.api_key)
        self._registration = Registration(
            self._api,
            device.to_json(),
            tracker=settings.tracker,
            heartbeat_sec=settings.heartbeat_sec,
            clock=time.monotonic,
        )
        self._grant: Grant | None = None
        self._keeper: ServerKeeper | None = None
        self._emitted: tuple[object, ...] | None = None

    def run(self, wait: Callable[[float], bool]) -> None:
        """Work until `wait` (which sleeps that many seconds) returns True.

        Raises:
            InvalidInputError: If the API will never accept this device.
        """
        adopt_orphans()
        try:
            while True:
                self._registration.tick(self._status())
                self._follow_grant()
                if self._keeper is not None:
                    self._keeper.tick()
                self._tell()
                if wait(TICK_SEC):
                    break
        finally:
            self._close()

    def _follow_grant(self) -> None:
        """Start a keeper for the grant; a new grant (the farm forgot us) needs a new server."""
        grant = self._registration.grant
        if grant is None or grant == self._grant:
            return
        if self._keeper is not None:
            self._keeper.stop()
        self._grant = grant
        self._keeper = ServerKeeper(
            lambda: self._start_server(grant),
            lambda port: self._prove(grant, port),
            clock=time.monotonic,
            probe_sec=self._settings.probe_sec,
        )

    def _start_server(self, grant: Grant) -> RpcProcess:
        settings = self._settings
        return RpcProcess(
            server_command(
                host=settings.host,
                port=settings.port,
                rpc_key=grant.rpc_key,
                tracker=grant.tracker,
                advertise=settings.advertise,
                work_dir=settings.work_dir / "sessions",
                max_session_sec=settings.max_session_sec,
                memory_bytes=int(self._device.info["memory_bytes"]) if self._device.kind == "cpu" else None,
            ),
            server_environment(os.environ, num_threads=self._device.num_threads),
        )

    def _prove(self, grant: Grant, port: int) -> tuple[bool, bool | None]:
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self._settings.host, self._settings.host)  # noqa: S104
        return probe.answers_hello((host, port)), probe.is_listed(grant.tracker, grant.rpc_key, port)

    def _status(self) -> dict[str, Any]:
        keeper = self._keeper
        state = keeper.state if keeper is not None else ServerState.STARTING
        return {
            "state": state.value,
            "rpc_registered": state is ServerState.SERVING,
            "reason": keeper.reason if keeper is not None else "the RPC server is starting",
            "rpc_restarts": max(0, keeper.restarts) if keeper is not None else 0,
            "load": [round(value, 2) for value in psutil.getloadavg()],
        }

    def _tell(self) -> None:
        grant, status = self._registration.grant, self._status()
        known = (grant, status["state"], self._registration.online)
        if grant is not None and known != self._emitted:
            self._emitted = known
            log.info("%s%s", status["state"], f": {status['reason']}" if status["reason"] else "")
            self._emit(
                {
                    "event": "state",
                    "device_id": grant.device_id,
                    "state": status["state"],
                    "online": self._registration.online,
                    "server_pid": getattr(self._keeper.server, "pid", None) if self._keeper else None,
                }
            )

    def _close(self) -> None:
        leaving = {
            **self._status(),
            "state": "stopping",
            "rpc_registered": False,
            "reason": "the agent is stopping",
        }
        self._registration.say_goodbye(leaving)
        if self._keeper is not None:
            self._keeper.stop()
        self._api.close()


def lock_folder(folder: Path) -> int:
    """Take the agent's folder for this process alone; return the descriptor that holds it.

    Raises:
        BlockingIOError: If another agent has it.
    """
    import fcntl

    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return descriptor
