"""The server's event loop: serves clients, tracker and session in one thread, without blocking."""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import signal
import socket
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tunefarm_tuning.process.lifeline import adopt_orphans
from tunefarm_workers.device.hardened_server.fences import Fences
from tunefarm_workers.device.hardened_server.front_door import (
    FrontDoor,
    Hello,
    is_closed,
    receive_connection,
    refuse,
)
from tunefarm_workers.device.hardened_server.session import Session, SessionEnd, SessionEnding
from tunefarm_workers.device.hardened_server.tracker_link import StandingOffer, TrackerLink
from tunefarm_workers.device.rpc.wire import Address, pack_welcome

_TICK_SEC = 0.25
_BACKLOG = 64
_MOST_WAITING = 16

Emit = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """The server's settings.

    Attributes:
        host: Address that the front door listens on.
        port: Its port; 0 takes a free port.
        rpc_key: The device's own key at the tracker.
        tracker: The tracker; None if the agent hands over the connections.
        door: For that, the descriptor of a Unix socket whose other end the agent has. The server then listens nowhere.
        advertised_host: Host that workers connect to; None for the one that the tracker sees us come from.
        work_dir: Parent of the sessions' folders; leftovers of an earlier process are removed.
        max_session_sec: Maximum time of a session; also the default if the client names none.
        hello_sec: Time limit of a peer's hello.
        memory_bytes: Address space of a session's child; None for no limit (CUDA needs that).
        gpu: Whether sessions may use GPUs.
    """

    host: str
    port: int
    rpc_key: str
    tracker: Address | None
    door: int | None = None
    advertised_host: str | None
    work_dir: Path
    max_session_sec: float
    hello_sec: float
    memory_bytes: int | None
    gpu: bool = False


class RpcServer:
    """The server; `run` returns after SIGTERM, SIGINT, SIGHUP or the end of standard input.

    Args:
        emit: Takes events, JSON objects with an ``event``: ``listening`` (with the port), ``tracker``, ``session-started``,
            ``session-ended``, ``session-refused`` (its lease is over).
        stdin: Descriptor that the agent holds at the other end; the server ends when it closes.
    """

    def __init__(self, options: ServerOptions, emit: Emit, *, stdin: int) -> None:
        self._options = options
        self._emit = emit
        self._stdin = stdin
        self._running = True
        self._session: Session | None = None
        self._fences = Fences()
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = os.pipe()
        for descriptor in (self._wake_read, self._wake_write):
            os.set_blocking(descriptor, False)
        self._waiting: deque[Hello] = deque()
        self._port = 0
        self._link: TrackerLink | StandingOffer
        if options.tracker is None:
            self._door = FrontDoor(
                socket.socket(fileno=options.door),
                self._selector,
                self._on_hello,
                hello_sec=options.hello_sec,
                take=receive_connection,
            )
            self._link = StandingOffer(options.rpc_key)
            return
        listener = _listen(options.host, options.port)
        self._port = listener.getsockname()[1]
        self._door = FrontDoor(listener, self._selector, self._on_hello, hello_sec=options.hello_sec)
        self._link = TrackerLink(
            options.tracker,
            self._selector,
            rpc_key=options.rpc_key,
            port=self._port,
            advertised_host=options.advertised_host,
            on_change=lambda known: emit({"event": "tracker", "known": known}),
        )

    def run(self) -> None:
        """Serve."""
        _empty(self._options.work_dir)
        adopt_orphans()
        self._selector.register(self._wake_read, selectors.EVENT_READ, self._drain_wake_pipe)
        self._selector.register(self._stdin, selectors.EVENT_READ, self._read_stdin)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._stop)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # wakes the loop
        self._emit({"event": "listening", "port": self._port})
        try:
            while self._running:
                self._turn()
        finally:
            self._close()

    def _turn(self) -> None:
        for key, _ in self._selector.select(_TICK_SEC):
            if key.fileobj in self._selector.get_map():  # an earlier callback of this turn may have closed it
                key.data()
        self._door.tick()
        if self._session is not None:
            end = self._session.poll()
            if end is not None:
                self._after_session(end)
        self._link.tick()

    def _on_hello(self, hello: Hello) -> None:
        if hello.match_key == f"claim:{self._options.rpc_key}":
            self._on_claim(hello)
            return
        has_room = self._session is None or (self._link.may_wait and len(self._waiting) < _MOST_WAITING)
        if not has_room or self._link.match_key is None or hello.match_key != self._link.match_key:
            refuse(hello)
            return
        if not self._fences.let_in(hello.fence, time.monotonic()):
            self._refuse_late(hello)
            return
        overtaken = self._fences.claim(hello.fence, time.monotonic())
        self._waiting.append(hello)
        if overtaken and self._session is not None:
            self._after_session(self._session.stop(SessionEnding.OVERTAKEN))
        self._begin_next()

    def _begin_next(self) -> None:
        """Begin the session of the next client that waits and may have one, if none runs."""
        while self._session is None and self._waiting:
            hello = self._waiting.popleft()
            if is_closed(hello.connection):
                hello.connection.close()
            elif self._fences.let_in(hello.fence, time.monotonic()):
                self._begin(hello)
            else:
                self._refuse_late(hello)

    def _refuse_late(self, hello: Hello) -> None:
        """Refuse a client whose lease is over."""
        self._emit({"event": "session-refused", "peer": hello.peer, "fence": hello.fence})
        refuse(hello)
        self._link.offer()  # the key is used up

    def _begin(self, hello: Hello) -> None:
        limit = self._options.max_session_sec
        try:
            hello.connection.sendall(pack_welcome(self._options.rpc_key))
            self._session = Session(
                hello.connection,
                hello.peer,
                work_dir=self._options.work_dir,
                timeout_sec=min(hello.timeout_sec or limit, limit),
                memory_bytes=self._options.memory_bytes,
                gpu=self._options.gpu,
            )
        except OSError as error:
            # The client has reset the connection, or no process or folder can be made: the key is used in any case.
            self._emit({"event": "session-failed", "peer": hello.peer, "detail": str(error)})
            hello.connection.close()
            self._link.offer()
            return
        self._fences.began(hello.fence)
        self._link.withdraw()
        self._emit({"event": "session-started", "peer": hello.peer})

    def _on_claim(self, hello: Hello) -> None:
        """Note that a lease's holder waits at the tracker; end the session of an earlier lease."""
        overtaken = self._fences.claim(hello.fence, time.monotonic())
        refuse(hello)  # the holder needs no other answer
        if overtaken and self._session is not None:
            self._after_session(self._session.stop(SessionEnding.OVERTAKEN))

    def _after_session(self, end: SessionEnd) -> None:
        self._session = None
        self._fences.ended(time.monotonic())
        self._emit(
            {
                "event": "session-ended",
                "ending": end.ending,
                "peer": end.peer,
                "duration_sec": round(end.duration_sec, 3),
                "detail": end.detail,
            }
        )
        self._link.offer()
        if self._running:
            self._begin_next()

    def _stop(self, *_: object) -> None:
        self._running = False

    def _read_stdin(self) -> None:
        if not os.read(self._stdin, 4096):
            self._running = False

    def _drain_wake_pipe(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_read, 4096)

    def _close(self) -> None:
        self._running = False
        self._link.close()
        self._door.close()
        for hello in self._waiting:
            hello.connection.close()
        if self._session is not None:
            self._after_session(self._session.stop())
        signal.set_wakeup_fd(-1)
        self._selector.close()
        _empty(self._options.work_dir)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, port))
    listener.listen(_BACKLOG)
    return listener


def _empty(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for leftover in folder.glob("session-*"):
        shutil.rmtree(leftover, ignore_errors=True)
