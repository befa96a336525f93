"""Keep an RPC server alive: start it, probe it, restart it when the probes fail."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Protocol

from tunefarm_workers.device.backoff import Backoff
from tunefarm_workers.device.rpc.liveness import Liveness

log = logging.getLogger("tunefarm.device")

_GRACE_SEC = 5.0
_CALM_SEC = 60.0
"""A server that answered for this long is restarted without a long wait."""


class ServerState(StrEnum):
    """States of the RPC server that the keeper watches."""

    STOPPED = "stopped"
    STARTING = "starting"
    SERVING = "serving"  # it answered at the last probe
    SUSPECT = "suspect"  # it listens, but the last probe failed


class Server(Protocol):
    """A process of the server, as `process.RpcProcess`."""

    @property
    def pid(self) -> int: ...
    def exit_code(self) -> int | None: ...
    def events(self) -> list[dict[str, Any]]: ...
    def end(self, *, grace_sec: float) -> None: ...


class ServerKeeper:
    """Owns the server process; `tick` starts, probes or restarts it as due, and never waits for long.

    Args:
        start: Starts a server.
        prove: Returns whether the server answers at its front door, and whether the gateway has the device.
        clock: Monotonic seconds.
        judge: Makes the judge of a life that began now.

    Attributes:
        state: State of the server.
        reason: Why it is not serving; empty while it is.
        restarts: How often it was restarted.
    """

    def __init__(
        self,
        start: Callable[[], Server],
        prove: Callable[[], tuple[bool, bool]],
        *,
        clock: Callable[[], float],
        probe_sec: float = 2.0,
        judge: Callable[[float], Liveness] = Liveness,
    ) -> None:
        self._start = start
        self._prove = prove
        self._clock = clock
        self._probe_sec = probe_sec
        self._judge = judge
        self._backoff = Backoff(first_sec=0.5, most_sec=30.0)
        self._server: Server | None = None
        self._liveness: Liveness | None = None
        self._listens = False
        self._start_at = 0.0
        self._probe_at = 0.0
        self._serving_since: float | None = None
        self.state = ServerState.STOPPED
        self.reason = "the RPC server is starting"
        self.restarts = -1  # the first start is not a restart
        self._in_session = False
        self._used_at: float | None = None

    @property
    def server_pid(self) -> int | None:
        """Process id of the server; None while none runs."""
        return None if self._server is None else self._server.pid

    def unused_sec(self) -> float:
        """Return the seconds since the last session; 0 during a session, infinite before the first."""
        if self._in_session:
            return 0.0
        return math.inf if self._used_at is None else self._clock() - self._used_at

    def tick(self) -> None:
        """Start, probe or restart the server, as due."""
        now = self._clock()
        if self._server is None or self._liveness is None:
            if now >= self._start_at:
                self._launch(now)
            return
        self._take_events(now, self._server, self._liveness)
        code = self._server.exit_code()
        if code is not None:
            self._give_up(f"the RPC server ended with code {code}")
            return
        if self._listens and now >= self._probe_at:
            hello, connected = self._prove()
            now = self._clock()
            self._probe_at = now + self._probe_sec
            self._liveness.observe(now, hello=hello, connected=connected)
            self._note(now, hello=hello, proven=self._liveness.proven)
        verdict = self._liveness.verdict(now)
        if verdict is not None:
            self._give_up(f"the RPC server was restarted: {verdict}")

    def stop(self) -> None:
        """End the server for good."""
        if self._server is not None:
            self._server.end(grace_sec=_GRACE_SEC)
            self._server = None
        self._listens = False
        self._start_at = 0.0
        self.state, self.reason = ServerState.STOPPED, "the agent is stopping"

    def _launch(self, now: float) -> None:
        self.restarts += 1
        self.state = ServerState.STARTING
        self._liveness = self._judge(now)
        try:
            self._server = self._start()
        except OSError as error:
            self.reason = f"the RPC server cannot be started: {error}"
            log.warning("%s", self.reason)
            self._start_at = now + self._backoff.next_sec()

    def _take_events(self, now: float, server: Server, liveness: Liveness) -> None:
        for event in server.events():
            if event.get("event") == "listening":
                self._listens = True
                self._probe_at = now
                liveness.began_to_listen(now)
            if event.get("event") in ("session-started", "session-ended"):
                self._in_session, self._used_at = event["event"] == "session-started", now
            ended_badly = event.get("ending") not in (None, "finished")
            log.log(logging.WARNING if ended_badly else logging.DEBUG, "rpc server: %s", event)

    def _note(self, now: float, *, hello: bool, proven: bool) -> None:
        if proven:
            self._serving_since = self._serving_since or now
            if now - self._serving_since >= _CALM_SEC:
                self._backoff.reset()
            self.state, self.reason = ServerState.SERVING, ""
            return
        self._serving_since = None
        # A server that is starting is not judged.
        self.state = ServerState.STARTING if self.state is ServerState.STARTING else ServerState.SUSPECT
        self.reason = "the gateway does not answer" if hello else "the RPC server does not answer"

    def _give_up(self, reason: str) -> None:
        log.warning("%s", reason)
        assert self._server is not None
        # No grace: a running session is lost anyway, and a frozen server would not use the time.
        self._server.end(grace_sec=0.0)
        self._server = None
        self._listens = False
        self._serving_since = None
        self._in_session = False
        self.state, self.reason = ServerState.STOPPED, reason
        self._start_at = self._clock() + self._backoff.next_sec()
