"""Run several devices of one machine, each agent in its own process: if one dies, the others continue."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from tunefarm_tuning.core.output_file import write_durably
from tunefarm_tuning.process.lifeline import adopt_orphans, die_with_parent, end_orphans
from tunefarm_workers.device.agent import STATE_FILE
from tunefarm_workers.device.backoff import Backoff
from tunefarm_workers.device.enrolment import TokenFile
from tunefarm_workers.device.gpu.devices import LentDevice
from tunefarm_workers.device.settings import AgentSettings

log = logging.getLogger("tunefarm.device")

EXIT_REFUSED = 2
"""Exit code of an agent with wrong settings or that the farm refuses: a restart would not help."""

_TICK_SEC = 0.25
_GRACE_SEC = 12.0
_CALM_SEC = 60.0
_NO_OPTIONS = frozenset({"token", "token_file", "api_key", "name_given", "work_dir_given", "probe_sec"})
"""Settings that are not on an agent's command line."""


class Fleet:
    """The agents of one machine's devices, each with its own settings."""

    def __init__(self, settings: AgentSettings, devices: Sequence[LentDevice]) -> None:
        self._state_path = settings.work_dir / STATE_FILE
        self._last_event: dict[str, Any] = {}
        self._members = [_Member(device) for device in devices]
        self._token_file = TokenFile(settings, [device.settings for device in devices], clock=time.monotonic)

    def run(self, wait: Callable[[float], bool]) -> int:
        """Start and restart them until `wait` (which sleeps that many seconds) returns True or all have failed for good."""
        adopt_orphans()
        self._state_path.unlink(missing_ok=True)
        try:
            while True:
                for member in self._members:
                    member.tick()
                # A dead agent leaves its RPC server and the server's sessions behind.
                end_orphans({member.pid for member in self._members if member.pid is not None})
                self._tell()
                if any(member.needs_credential for member in self._members):
                    self._enrol_again()
                if all(member.refused for member in self._members):
                    return EXIT_REFUSED
                if wait(_TICK_SEC):
                    return 0
        finally:
            self._stop()

    def _enrol_again(self) -> None:
        """Enrol all devices by a new token in the token's file; running agents find their credentials when the farm refuses the former."""
        if self._token_file.enrol_again():
            for member in self._members:
                member.refused = False

    def _stop(self) -> None:
        for member in self._members:
            member.ask_to_stop()
        until = time.monotonic() + _GRACE_SEC
        for member in self._members:
            member.wait_or_kill(until)
        end_orphans(within_sec=2.0)
        self._state_path.unlink(missing_ok=True)

    def _tell(self) -> None:
        """Tell health checks if anything has changed. The machine is online if all its devices are."""
        states = {member.name: member.state() for member in self._members}
        event = {
            "event": "state",
            "online": all(state.get("online") is True for state in states.values()),
            "devices": {name: str(state.get("state", "down")) for name, state in states.items()},
        }
        if event == self._last_event:
            return
        self._last_event = event
        write_durably(self._state_path, json.dumps(event), mode=0o644)


class _Member:
    """A device's agent over all its restarts."""

    def __init__(self, device: LentDevice) -> None:
        self.name = device.settings.name
        self._command = command_of(device.settings)
        self._state_path = device.settings.work_dir / STATE_FILE
        self._process: subprocess.Popen[bytes] | None = None
        self._backoff = Backoff(first_sec=0.5, most_sec=30.0)
        self._started = 0.0
        self._start_at = 0.0
        self.refused = False

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def needs_credential(self) -> bool:
        """Whether the farm refused it, or no longer knows its credential."""
        return self.refused or self.state().get("key_ended") is True

    def tick(self) -> None:
        """Start it if it should run and does not."""
        now = time.monotonic()
        if self._process is not None:
            code = self._process.poll()
            if code is None:
                return
            self._process = None
            self._state_path.unlink(missing_ok=True)
            self.refused = code == EXIT_REFUSED
            if now - self._started >= _CALM_SEC:
                self._backoff.reset()
            self._start_at = now + self._backoff.next_sec()
            log.warning(
                "the agent of %s ended with code %d%s",
                self.name,
                code,
                ": it is omitted" if self.refused else "",
            )
        if not self.refused and now >= self._start_at:
            parent = os.getpid()
            self._started = now
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                env=child_environment(os.environ),
                preexec_fn=lambda: die_with_parent(parent),  # noqa: PLW1509  (there is one thread, and it takes no lock)
            )

    def state(self) -> dict[str, Any]:
        """Return its last event; empty if it does not run."""
        with contextlib.suppress(OSError, ValueError):
            state = json.loads(self._state_path.read_text(encoding="utf-8"))
            if self._process is not None and isinstance(state, dict):
                return state
        return {}

    def ask_to_stop(self) -> None:
        if self._process is not None:
            self._process.terminate()

    def wait_or_kill(self, until: float) -> None:
        if self._process is None:
            return
        try:
            self._process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None


def command_of(settings: AgentSettings) -> list[str]:
    """Return the command line of an enrolled agent with these settings, without a token."""
    options = {
        field.name: getattr(settings, field.name)
        for field in fields(settings)
        if field.name not in _NO_OPTIONS
    }
    if settings.gateway is not None:
        options["gateway"] = "{}:{}".format(*settings.gateway)
    arguments = [
        f"--{name.replace('_', '-')}={value}" for name, value in options.items() if value is not None
    ]
    return [sys.executable, "-m", "tunefarm_workers.device", *arguments]


def child_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a device's agent, without the used token."""
    return {name: value for name, value in environment.items() if name != "TUNEFARM_ENROLMENT_TOKEN"}
