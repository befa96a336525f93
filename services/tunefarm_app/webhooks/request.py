"""Send one request to a webhook: signed by the Standard Webhooks specification, with limits on time and size.

The specification is at https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import socket
import ssl
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from http.client import HTTPConnection, HTTPException
from importlib.metadata import version
from typing import Any

from tunefarm_app.webhooks.address import Receiver, Resolver, checked_addresses, parse_url, system_resolver
from tunefarm_db.values import ClaimedDelivery
from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.core.untrusted_text import clean

TIMEOUT_SEC = 10.0
_SECRET_PREFIX = "whsec_"  # noqa: S105  (the specification's, no secret)
_SECRET_BYTES = 32
_READ_BYTES = 4096
"""At most this much of an answer is read. It is thrown away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """The result of an attempt to deliver.

    Attributes:
        status: HTTP status of the answer; None if there was none.
        error: Why it failed; empty if it succeeded.
    """

    status: int | None
    error: str
    latency_sec: float


def new_secret() -> str:
    """Return a random secret in the specification's form."""
    return _SECRET_PREFIX + base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()


def sign(secret: str, message_id: str, timestamp: int, body: bytes) -> str:
    """Return the signature of a message, for the header ``webhook-signature``."""
    key = base64.b64decode(secret.removeprefix(_SECRET_PREFIX))
    signed = b".".join((message_id.encode(), str(timestamp).encode(), body))
    return "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()


def body_of(claimed: ClaimedDelivery) -> bytes:
    """Return the body of the request: the same bytes at each attempt."""
    delivery = claimed.delivery
    happened = datetime.fromtimestamp(delivery.created_at, UTC).isoformat(timespec="milliseconds")
    data: dict[str, Any] = {}
    if delivery.job_id is not None:
        data = {"job_id": delivery.job_id, "seq": delivery.seq, "event": claimed.data}
    message = {
        "type": delivery.kind if delivery.job_id is None else f"job.{delivery.kind}",
        "timestamp": happened.replace("+00:00", "Z"),
        "data": data,
    }
    return json.dumps(message, separators=(",", ":")).encode()


def send(
    claimed: ClaimedDelivery,
    *,
    allow_private: bool,
    timeout_sec: float = TIMEOUT_SEC,
    resolve: Resolver = system_resolver,
) -> Attempt:
    """Send the delivery, and return the result. Takes at most the time-out, plus the resolver's time."""
    body, timestamp = body_of(claimed), int(time.time())
    headers = {
        "Content-Type": "application/json",
        "User-Agent": f"tunefarm/{version('tunefarm')}",
        "Connection": "close",
        "webhook-id": claimed.delivery.id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": sign(claimed.secret, claimed.delivery.id, timestamp, body),
    }
    started = time.monotonic()
    status: int | None = None
    try:
        receiver = parse_url(claimed.url)
        addresses = checked_addresses(receiver, allow_private=allow_private, resolve=resolve)
        started = time.monotonic()
        status = _post(receiver, addresses, headers, body, timeout_sec)
        error = _why_not(status)
    except InvalidInputError as refused:
        error = refused.message
    except (OSError, HTTPException, ValueError) as failed:
        late = isinstance(failed, TimeoutError) or time.monotonic() - started >= timeout_sec
        error = f"no answer within {timeout_sec:g} s" if late else _words(failed)
    return Attempt(status=status, error=error, latency_sec=time.monotonic() - started)


def _why_not(status: int) -> str:
    if 200 <= status < 300:
        return ""
    if 300 <= status < 400:
        return f"the receiver answered {status}: redirects are not followed"
    return f"the receiver answered {status}"


def _words(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the receiver's certificate is invalid: {clean(error.verify_message)}"
    if isinstance(error, OSError) and error.strerror:
        return clean(error.strerror)
    return clean(str(error)) or type(error).__name__


class _Connection(HTTPConnection):
    """Connects to the checked addresses only."""

    def __init__(self, receiver: Receiver, addresses: tuple[str, ...], deadline: float) -> None:
        super().__init__(receiver.host, receiver.port)
        self._receiver = receiver
        self._addresses = addresses
        self._deadline = deadline
        if receiver.tls:
            self.default_port = 443  # otherwise the header Host would have the port

    def left_sec(self) -> float:
        remaining_sec = self._deadline - time.monotonic()
        if remaining_sec <= 0:
            raise TimeoutError
        return remaining_sec

    def connect(self) -> None:
        failed: OSError = OSError("no address")
        for address in self._addresses:
            try:
                sock = socket.create_connection((address, self._receiver.port), timeout=self.left_sec())
                break
            except OSError as error:
                failed = error
        else:
            raise failed
        self.sock = sock  # the connection closes it if the handshake fails
        sock.settimeout(self.left_sec())
        if self._receiver.tls:
            context = ssl.create_default_context()
            self.sock = context.wrap_socket(sock, server_hostname=self._receiver.host)


def _post(
    receiver: Receiver, addresses: tuple[str, ...], headers: dict[str, str], body: bytes, timeout_sec: float
) -> int:
    connection = _Connection(receiver, addresses, time.monotonic() + timeout_sec)
    watch: threading.Timer | None = None
    hung_up = threading.Event()
    try:
        connection.connect()
        # A socket's time-out is per read: a receiver that sends a byte now and then would never reach it.
        watch = threading.Timer(connection.left_sec(), _hang_up, [connection.sock, hung_up])
        watch.daemon = True
        watch.start()
        connection.request("POST", receiver.path, body=body, headers=headers)
        answer = connection.getresponse()
        status = answer.status
        if hung_up.is_set():  # the library accepts an incomplete header
            raise TimeoutError
        try:
            answer.read(_READ_BYTES)
        except (OSError, HTTPException):
            pass  # the status is known; the body does not matter
        return status
    finally:
        if watch is not None:
            watch.cancel()
        connection.close()


def _hang_up(sock: socket.socket, hung_up: threading.Event) -> None:
    hung_up.set()
    try:
        # Below TLS: the blocked thread is using the TLS layer.
        socket.socket.shutdown(sock, socket.SHUT_RDWR)
    except OSError:
        pass  # it is closed already
