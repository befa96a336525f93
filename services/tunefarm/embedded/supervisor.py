"""The supervisor: starts the farm's processes in order, restarts those that die, and stops each when no other needs it.

One thread in one process: `run`. It adopts orphans of its children, so that nothing of the farm is
ever out of its reach.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from tunefarm.embedded.child import TetheredChild
from tunefarm.embedded.options import FarmEvent
from tunefarm.embedded.processes import Facts, FarmProcess
from tunefarm.embedded.restart_policy import RestartPolicy
from tunefarm_tuning.core.errors import TransientError
from tunefarm_tuning.process.lifeline import adopt_orphans, end_orphans, own_children

START_PATIENCE_SEC = 180.0
ORPHAN_GRACE_SEC = 5.0
"""Orphans get this long to end by themselves (Python's resource tracker cleans up after a killed pool)."""

_TICK_SEC = 0.2
_STARTING_TICK_SEC = 0.05
_ORPHANS_EVERY_SEC = 1.0


class _State(Enum):
    WAITING = auto()  # for the processes that it needs, or for its next start
    STARTING = auto()
    UP = auto()


@dataclass(slots=True, kw_only=True)
class _Watched:
    process: FarmProcess
    policy: RestartPolicy = field(default_factory=RestartPolicy)
    state: _State = _State.WAITING
    child: TetheredChild | None = None
    start_at: float = 0.0


class Supervisor:
    """Runs the processes.

    Args:
        processes: In the order of their start.
        environment: The supervisor's own.
        emit: Takes events.
        wait: Sleeps that many seconds at most; True means that the farm is to end.
    """

    def __init__(
        self,
        processes: Sequence[FarmProcess],
        facts: Facts,
        *,
        environment: Mapping[str, str],
        emit: Callable[[FarmEvent], None],
        wait: Callable[[float], bool],
    ) -> None:
        self._watched = [_Watched(process=process) for process in processes]
        self._facts = facts
        self._environment = environment
        self._emit = emit
        self._wait = wait
        self._ready_sent = False
        self._orphans: dict[int, float] = {}  # when each orphan was first seen
        self._orphans_at = 0.0

    def run(self) -> None:
        """Run the farm until `wait` returns True.

        Raises:
            TransientError: ``farm-failed`` if a process cannot be kept up.
        """
        adopt_orphans()
        self._facts.home.withdraw()  # the address of a farm that was killed
        try:
            while True:
                for watched in self._watched:
                    self._look_after(watched)
                self._tell_when_ready()
                self._end_orphans()
                starting = any(watched.state is not _State.UP for watched in self._watched)
                if self._wait(_STARTING_TICK_SEC if starting else _TICK_SEC):
                    return
        finally:
            self._stop()

    def _look_after(self, watched: _Watched) -> None:
        now = time.monotonic()
        if watched.state is _State.WAITING:
            if now >= watched.start_at and self._has_what_it_needs(watched.process):
                self._start(watched)
            return
        child = watched.child
        assert child is not None
        code = child.exit_code()
        if code is not None:
            self._note_death(watched, child, f"ended with code {code}", code)
        elif watched.state is _State.STARTING:
            if watched.process.is_up(self._facts, child.output()):
                watched.state = _State.UP
                watched.policy.was_up()
                self._emit(
                    FarmEvent(kind="up", part=watched.process.name, data=self._public_facts(watched.process))
                )
            elif now - child.started > START_PATIENCE_SEC:
                self._note_death(watched, child, f"was not up within {START_PATIENCE_SEC:g} s", None)

    def _has_what_it_needs(self, process: FarmProcess) -> bool:
        up = {watched.process.name for watched in self._watched if watched.policy.ever_up}
        return up.issuperset(process.needs if process.starts_after is None else process.starts_after)

    def _start(self, watched: _Watched) -> None:
        process, home = watched.process, self._facts.home
        self._emit(FarmEvent(kind="starting", part=process.name))
        log = home.open_log(process.name)
        watched.child = TetheredChild(
            process.command(self._facts),
            process.environment(self._facts, self._environment),
            log=log,
            log_path=home.log_path(process.name),
        )
        watched.state = _State.STARTING

    def _note_death(self, watched: _Watched, child: TetheredChild, how: str, code: int | None) -> None:
        name = watched.process.name
        child.bury()
        last_lines = child.last_lines()
        watched.child, watched.state = None, _State.WAITING
        wait_sec = watched.policy.died(time.monotonic() - child.started, code=code)
        log_path = str(self._facts.home.log_path(name))
        self._emit(FarmEvent(kind="died", part=name, message=f"the {name} {how}", data={"log": log_path}))
        if wait_sec is None:
            raise TransientError(
                f"the {name} {how} and cannot be kept up. Its log {log_path} ends with"
                + (f":\n{last_lines}" if last_lines else " no error."),
                code="farm-failed",
                part=name,
                log=log_path,
            )
        watched.start_at = time.monotonic() + wait_sec

    def _tell_when_ready(self) -> None:
        if not self._ready_sent and all(watched.policy.ever_up for watched in self._watched):
            self._ready_sent = True
            self._emit(FarmEvent(kind="ready", data={"url": self._facts.url}))

    def _public_facts(self, process: FarmProcess) -> dict[str, str | None]:
        return {"url": self._facts.url} if process.name == "api" else {}

    def _end_orphans(self) -> None:
        now = time.monotonic()
        if now < self._orphans_at:
            return
        self._orphans_at = now + _ORPHANS_EVERY_SEC
        known = {watched.child.pid for watched in self._watched if watched.child is not None}
        present = set(own_children()) - known
        for pid in list(present):
            with contextlib.suppress(ChildProcessError):
                if os.waitpid(pid, os.WNOHANG)[0]:
                    present.remove(pid)
        self._orphans = {pid: self._orphans.get(pid, now) for pid in present}
        young = {pid for pid, since in self._orphans.items() if now - since < ORPHAN_GRACE_SEC}
        end_orphans(known | young)

    def _stop(self) -> None:
        self._emit(FarmEvent(kind="stopping"))
        while living := [watched for watched in self._watched if watched.child is not None]:
            needed = {name for watched in living for name in watched.process.needs}
            self._end(watched for watched in living if watched.process.name not in needed)
        self._facts.home.withdraw()
        self._reap_for(1.0)
        end_orphans(within_sec=5.0)
        self._emit(FarmEvent(kind="stopped"))

    @staticmethod
    def _end(processes: Iterable[_Watched]) -> None:
        """End processes in parallel, each within its own time limit."""
        ending = [(watched, watched.child) for watched in processes if watched.child is not None]
        for _, child in ending:
            child.ask_to_end()
        began = time.monotonic()
        for watched, child in ending:
            child.wait(began + watched.process.grace_sec - time.monotonic())
            child.bury()
            watched.child = None

    @staticmethod
    def _reap_for(seconds: float) -> None:
        """Wait for orphans that are about to end. Call it only when no child is left."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            try:
                if os.waitpid(-1, os.WNOHANG)[0] == 0:
                    time.sleep(0.02)
            except ChildProcessError:
                return
