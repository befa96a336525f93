"""The link to the gateway: a conversation that is always there, and a connection for each session that the gateway asks for."""

from __future__ import annotations

import contextlib
import logging
import math
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tunefarm_tuning.process.tunnel import (
    BadMessageError,
    Conversation,
    carry,
    dial,
    hang_up,
    send_message,
)
from tunefarm_workers.device.backoff import Backoff
from tunefarm_workers.device.rpc.wire import CODE_SUCCESS, INT, Address, pack_hello, receive_exactly

log = logging.getLogger("tunefarm.device")

_DIAL_SEC = 10.0
_CLOSE_SEC = 2.0
_MOST_SESSIONS = 16
_MOST_WELCOME_BYTES = 4096
_LONGEST_SEC = 1e7


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayAccess:
    """Where the gateway is, and how it knows this device.

    Attributes:
        address: Host and port.
        context: TLS settings with this device's certificate, and the farm's authority alone.
    """

    address: Address
    context: ssl.SSLContext


class GatewayLink:
    """Keeps the conversation with the gateway, and opens sessions on the local RPC server when it asks for them.

    Concurrency: its own threads; the methods from any.

    Args:
        access: How to reach the gateway.
        connect: Returns a new connection to the RPC server, and the server's process id. Raises `OSError` if none runs.
        rpc_key: The key that the server expects.
    """

    def __init__(
        self, access: GatewayAccess, connect: Callable[[], tuple[socket.socket, int]], *, rpc_key: str
    ) -> None:
        self._access = access
        self._connect = connect
        self._rpc_key = rpc_key
        self._lock = threading.Lock()
        self._conversation: Conversation | None = None
        self._sessions: set[socket.socket] = set()
        self._free = threading.BoundedSemaphore(_MOST_SESSIONS)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="gateway", daemon=True)
        self._thread.start()

    @property
    def is_connected(self) -> bool:
        """Whether the gateway is there: it has answered within the last seconds."""
        conversation = self._conversation
        return conversation is not None and conversation.is_heard

    def use(self, access: GatewayAccess, *, anew: bool) -> None:
        """Use another certificate, or another gateway, from the next connection on; sessions go on.

        Args:
            access: How to reach the gateway now.
            anew: Whether the farm knows the device by another name now, so that the conversation must begin anew.
        """
        with self._lock:
            anew = anew or access.address != self._access.address
            self._access = access
            conversation = self._conversation
        if anew and conversation is not None:
            conversation.end()

    def close(self) -> None:
        """End the conversation and all sessions."""
        self._closed.set()
        with self._lock:
            conversation, sessions = self._conversation, list(self._sessions)
        if conversation is not None:
            conversation.end()
        for session in sessions:
            hang_up(session)
        self._thread.join(_CLOSE_SEC)

    def _keep(self) -> None:
        backoff = Backoff(first_sec=0.25, most_sec=5.0)
        told = ""
        while not self._closed.is_set():
            failure = "the gateway closed the connection"
            try:
                self._talk(backoff)
            except (OSError, ValueError) as error:  # a name that is none is a ValueError
                failure = str(error)
            if failure != told:
                log.warning("not connected with the gateway: %s", failure)
                told = failure
            self._closed.wait(backoff.next_sec())

    def _talk(self, backoff: Backoff) -> None:
        """Connect, and serve until the connection breaks.

        Raises:
            OSError: When it does.
        """
        access = self._access
        with dial(*access.address, access.context, timeout_sec=_DIAL_SEC) as connection:
            send_message(connection, {"device": True})
            conversation = Conversation(connection)
            with self._lock:
                self._conversation = conversation
            try:
                if not self._closed.is_set():
                    conversation.run(lambda message: self._take(conversation, message, backoff))
            finally:
                with self._lock:
                    self._conversation = None

    def _take(self, conversation: Conversation, message: Mapping[str, Any], backoff: Backoff) -> None:
        backoff.reset()
        if "open" not in message:
            return
        session = str(message["open"])
        try:
            fence, timeout_sec = int(message["fence"]), float(message["timeout_sec"])
            wait_sec = float(message["wait_sec"])
        except (KeyError, TypeError, ValueError, OverflowError):
            raise BadMessageError("a request for a session that cannot be read") from None
        # The time to wait may have run out on the way.
        if not (0.0 <= timeout_sec <= _LONGEST_SEC and math.isfinite(wait_sec) and wait_sec <= _LONGEST_SEC):
            raise BadMessageError("a request for a session without a time limit")
        if not self._free.acquire(blocking=False):
            conversation.post({"refused": session, "why": "it has too many sessions"})
            return
        arguments = (conversation, session, fence, timeout_sec, max(0.0, wait_sec))
        threading.Thread(target=self._serve, args=arguments, name="session", daemon=True).start()

    def _serve(
        self, conversation: Conversation, session: str, fence: int, timeout_sec: float, wait_sec: float
    ) -> None:
        try:
            self._join(conversation, session, fence, timeout_sec, wait_sec)
        finally:
            self._free.release()

    def _join(
        self, conversation: Conversation, session: str, fence: int, timeout_sec: float, wait_sec: float
    ) -> None:
        """Open a session on the server, then connect it with the gateway, and pass on bytes until it ends."""
        until = time.monotonic() + wait_sec
        try:
            local, server = self._connect()
        except OSError as error:
            conversation.post({"refused": session, "why": str(error)})
            return
        with self._lock:
            self._sessions.add(local)
        try:
            with local:
                try:
                    self._greet(local, fence, timeout_sec, wait_sec)
                    access = self._access
                    gateway = dial(
                        *access.address, access.context, timeout_sec=max(1.0, until - time.monotonic())
                    )
                except OSError as error:
                    conversation.post({"refused": session, "why": str(error) or type(error).__name__})
                    return
                with gateway, contextlib.suppress(OSError):
                    send_message(gateway, {"session": session, "server": server})
                    carry(local, gateway)
        finally:
            with self._lock:
                self._sessions.discard(local)

    def _greet(self, local: socket.socket, fence: int, timeout_sec: float, wait_sec: float) -> None:
        """Wait until the server begins the session: it ends one of an earlier lease, and waits for another one of the same lease.

        Raises:
            OSError: If it does not.
        """
        options = f" -fence={fence}" + (f" -timeout={timeout_sec}" if timeout_sec else "")
        local.settimeout(max(0.1, wait_sec))
        local.sendall(pack_hello(f"client:{self._rpc_key}{options}"))
        try:
            (code,) = INT.unpack(receive_exactly(local, INT.size))
        except TimeoutError:
            raise TimeoutError("it is not free") from None
        if code != CODE_SUCCESS:
            raise ConnectionRefusedError("its RPC server refused the session: the device has a later lease")
        (size,) = INT.unpack(receive_exactly(local, INT.size))
        if not 0 <= size <= _MOST_WELCOME_BYTES:
            raise BadMessageError("its RPC server does not speak TVM's protocol")
        receive_exactly(local, size)
