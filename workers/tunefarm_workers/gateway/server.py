"""The gateway's server: greets connections, keeps a conversation with each device, and joins sessions.

A connection with a certificate of the farm's authority is a device's. Its first message says what it is for: ``{"device": true}``, a
conversation in which it is asked for sessions, or ``{"session": ID}``, a session that it was asked for. A connection without a certificate
must bring a worker's ticket: ``{"ticket", "timeout_sec", "wait_sec"}``. It is asked ``{"prove": CHALLENGE}`` and must say ``{"proof"}``, as
the relay can that the ticket was signed for (`tunefarm_tuning.process.relay.key`). Then it is answered
``{"open": true, "server", "host", "receipt"}`` when the device's bytes follow (the receipt says by which certificate it is connected), else ``{"refused": WHY}``, with ``"away": true`` if the device is not there.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import queue
import secrets
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tunefarm_app.identity.authority import identity_in
from tunefarm_app.identity.receipts import ReceiptSigner
from tunefarm_app.identity.tickets import BadTicketError, Ticket, TicketReader
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.process.device_address import is_own_address
from tunefarm_tuning.process.relay.key import is_proof
from tunefarm_tuning.process.tunnel import (
    Conversation,
    carry,
    hang_up,
    receive_message,
    send_message,
    watch_peer,
)
from tunefarm_workers.gateway.admissions import Admissions, RefusedError

log = logging.getLogger("tunefarm.gateway")

GREETING_SEC = 10.0
"""Time for TLS, the first message and a worker's proof, all together."""
MOST_GREETINGS = 128
"""Connections that have not said yet who they are; one more ends the oldest."""
MOST_WAITING = 16
"""Sessions that wait for one device."""
MOST_WAIT_SEC = 60.0
"""Time for a device to be there and free: the worker that asked may be gone by then."""
MOST_SESSION_SEC = 1e6
_MOST_SERVER = 1 << 32

_LOOK_SEC = 0.5
_PAUSE_SEC = 0.1
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


@dataclass(frozen=True, slots=True)
class _Opened:
    """A device's side of a session."""

    connection: ssl.SSLSocket
    server: int
    certificate_sha256: str


class _AwayError(RefusedError):
    """The device is not connected, or not any more."""


_Answers = queue.SimpleQueue[_Opened | RefusedError]


@dataclass(slots=True)
class _Device:
    """A device's conversation, and the sessions that it was asked for."""

    conversation: Conversation
    asked: dict[str, _Answers] = field(default_factory=dict)


class Gateway:
    """Serves connections, each in a thread of its own.

    Args:
        context: Returns the TLS settings, as `server_context`.
        tickets: Returns what checks tickets.
        receipts: Returns what signs receipts.
        started_at: When this process began (Unix seconds).
    """

    def __init__(
        self,
        context: Callable[[], ssl.SSLContext],
        tickets: Callable[[], TicketReader],
        receipts: Callable[[], ReceiptSigner],
        *,
        started_at: float,
    ) -> None:
        self._context = context
        self._tickets = tickets
        self._receipts = receipts
        self._admissions = Admissions(started_at)
        self._devices: dict[str, _Device] = {}
        self._greetings: dict[ssl.SSLSocket, float] = {}  # until when; the oldest first
        self._changed = threading.Condition()  # of the devices; its lock guards all of this object
        threading.Thread(target=self._watch_greetings, name="greetings", daemon=True).start()

    def serve(self, listener: socket.socket) -> None:
        """Accept connections until the listener is closed."""
        while listener.fileno() >= 0:
            try:
                raw, _ = listener.accept()
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    self._make_room()
                continue
            try:
                watch_peer(raw)
                connection = self._context().wrap_socket(raw, server_side=True, do_handshake_on_connect=False)
            except (OSError, ValueError):  # the peer was gone before we came
                raw.close()
                continue
            with self._changed:
                self._greetings[connection] = time.monotonic() + GREETING_SEC
            self._end_greetings(lambda _: False)
            try:
                threading.Thread(target=self._greet, args=(connection,), daemon=True).start()
            except RuntimeError:  # no more threads
                self._make_room()
                connection.close()

    def _make_room(self) -> None:
        """End all connections that have not said who they are, and wait a moment for what that frees."""
        self._end_greetings(lambda _: True)
        time.sleep(_PAUSE_SEC)

    def _watch_greetings(self) -> None:
        while True:
            time.sleep(_LOOK_SEC)
            self._end_greetings(lambda until: until < time.monotonic())

    def _end_greetings(self, is_over: Callable[[float], bool]) -> None:
        """End connections that took too long (one may say a byte a second, for ever), and the oldest of too many."""
        with self._changed:
            over = [connection for connection, until in self._greetings.items() if is_over(until)]
            left = [connection for connection in self._greetings if connection not in over]
            for connection in [*over, *left[: max(0, len(left) - MOST_GREETINGS)]]:
                del self._greetings[connection]
                hang_up(connection)  # its thread closes it

    def _greet(self, connection: ssl.SSLSocket) -> None:
        is_handed_over = False
        try:
            with contextlib.suppress(OSError):
                connection.settimeout(GREETING_SEC)
                connection.do_handshake()
                first = receive_message(connection)
                is_handed_over = self._serve(connection, first)
        finally:
            self._is_greeted(connection)
            if not is_handed_over:
                connection.close()

    def _is_greeted(self, connection: ssl.SSLSocket) -> None:
        """Give a connection more than the time of a greeting: it has said who it is, or is over."""
        with self._changed:
            self._greetings.pop(connection, None)

    def _serve(self, connection: ssl.SSLSocket, first: Mapping[str, Any]) -> bool:
        """Do what a connection is for; return whether another thread closes it."""
        certificate: Any = connection.getpeercert() or {}
        identity = identity_in(certificate.get("subjectAltName"))
        if identity is None:
            self._serve_worker(connection, first)
            return False
        self._is_greeted(connection)
        if "session" in first:
            return self._hand_over(connection, identity, first)
        if "device" in first:
            valid_sec = ssl.cert_time_to_seconds(certificate["notAfter"]) - time.time()
            self._keep(connection, identity, until=time.monotonic() + valid_sec)
        return False

    def _keep(self, connection: ssl.SSLSocket, identity: str, *, until: float) -> None:
        """Talk with a device until its certificate ends: it comes back with the next one. Its sessions go on."""
        device = _Device(Conversation(connection))
        with self._changed:
            before = self._devices.get(identity)
            self._devices[identity] = device
            self._changed.notify_all()
        if before is not None:
            before.conversation.end()
        log.info("device %s connected", clean(identity))
        try:
            device.conversation.run(lambda message: self._take_refusal(device, message), until=until)
        finally:
            with self._changed:
                if self._devices.get(identity) is device:
                    del self._devices[identity]
                asked, device.asked = device.asked, {}
            for answers in asked.values():
                answers.put(_AwayError("the device's connection broke"))
            log.info("device %s disconnected", clean(identity))

    def _take_refusal(self, device: _Device, message: Mapping[str, Any]) -> None:
        with self._changed:
            answers = device.asked.pop(str(message.get("refused")), None)
        if answers is not None:
            answers.put(RefusedError(f"the device refused: {clean(str(message.get('why')), 300)}"))

    def _hand_over(self, connection: ssl.SSLSocket, identity: str, first: Mapping[str, Any]) -> bool:
        """Give a device's connection to the worker's thread that asked this very device for it."""
        server = first.get("server")
        with self._changed:
            device = self._devices.get(identity)
            if device is None or type(server) is not int or not 0 < server < _MOST_SERVER:
                return False
            answers = device.asked.pop(str(first["session"]), None)
            if answers is None:
                return False
            certificate = connection.getpeercert(binary_form=True) or b""
            answers.put(_Opened(connection, server, hashlib.sha256(certificate).hexdigest()))
            return True

    def _serve_worker(self, connection: ssl.SSLSocket, first: Mapping[str, Any]) -> None:
        try:
            ticket = self._tickets().ticket(first.get("ticket"))
            _check_proof(connection, ticket, first["ticket"])
            self._is_greeted(connection)
            with self._changed:
                self._admissions.admit(ticket, time.time())
            wait_sec = min(_seconds(first, "wait_sec"), MOST_WAIT_SEC)
            opened = self._ask(ticket, _seconds(first, "timeout_sec"), wait_sec)
        except (BadTicketError, RefusedError) as error:
            if isinstance(error, RefusedError):  # of strangers there may be many
                log.info("no session: %s", error)
            away = {"away": True} if isinstance(error, _AwayError) else {}
            send_message(connection, {"refused": str(error), **away})
            return
        with opened.connection:
            host = _host_of(opened.connection, seen_from=connection)
            receipt = self._receipts().sign(ticket, opened.certificate_sha256)
            send_message(
                connection, {"open": True, "server": opened.server, "host": host, "receipt": receipt}
            )
            carry(connection, opened.connection)

    def _ask(self, ticket: Ticket, timeout_sec: float, wait_sec: float) -> _Opened:
        """Have the device open a session.

        Raises:
            RefusedError: If it does not.
        """
        until = time.monotonic() + wait_sec
        answers: _Answers = queue.SimpleQueue()
        session = secrets.token_hex(16)
        with self._changed:
            if not self._changed.wait_for(lambda: ticket.device in self._devices, wait_sec):
                raise _AwayError("the device is not connected")
            device = self._devices[ticket.device]
            if len(device.asked) >= MOST_WAITING:
                raise RefusedError("too many sessions wait for the device")
            device.asked[session] = answers
        left_sec = max(0.0, until - time.monotonic())
        device.conversation.post(
            {"open": session, "fence": ticket.fence, "timeout_sec": timeout_sec, "wait_sec": left_sec}
        )
        try:
            answer = answers.get(timeout=left_sec)
        except queue.Empty:
            with self._changed:
                is_late = device.asked.pop(session, None) is None
            if not is_late:
                raise RefusedError("the device was not free, or did not answer in time") from None
            answer = answers.get()  # it came in the last moment
        if isinstance(answer, RefusedError):
            raise answer
        return answer


def _check_proof(connection: ssl.SSLSocket, ticket: Ticket, text: str) -> None:
    """Let a worker prove that a ticket was signed for it. Only then is the ticket used up: a thief takes it from nobody.

    Raises:
        OSError: If the worker is gone.
        RefusedError: If it has not the key.
    """
    challenge = secrets.token_hex(32)
    send_message(connection, {"prove": challenge})
    if not is_proof(receive_message(connection).get("proof"), ticket.key, text, challenge):
        raise RefusedError("the ticket belongs to another worker")


def _seconds(first: Mapping[str, Any], name: str) -> float:
    value = first.get(name)
    if not isinstance(value, int | float) or not 0 <= value < MOST_SESSION_SEC:
        raise RefusedError(f"{name} must be a number of seconds")
    return float(value)


def _host_of(device: socket.socket, *, seen_from: socket.socket) -> str:
    """Return the device's address as the worker would see it; a loopback address if both are on one machine."""
    host, worker = device.getpeername()[0], seen_from.getpeername()[0]
    is_here = is_own_address(host)
    if host == worker or (is_here and is_own_address(worker)):
        return "127.0.0.1"
    return str(seen_from.getsockname()[0] if is_here else host)


def server_context(certificate: Path, key: Path, authority: Path) -> ssl.SSLContext:
    """Return the gateway's TLS settings: TLS 1.3, and clients with a certificate of the farm's authority or without one.

    Raises:
        OSError: If a file cannot be read, or is none.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(certificate, key)
    context.load_verify_locations(authority)
    context.verify_mode = ssl.CERT_OPTIONAL
    context.num_tickets = 0  # they would make a connection readable without a byte of its session
    return context
