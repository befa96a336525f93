"""The relay's process: ``python -m tunefarm_tuning.process.relay CONTROL_FD LISTENER_FD SANDBOX``.

The first line on the control socket is the device's address, each further one a request (`client`), answered by a line; a request to
send a file comes with its descriptor. Ends when the other end of the control socket closes.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.process.device_address import DeviceAddress
from tunefarm_tuning.process.relay.frames import Answers, NotAnAnswerError, Requests
from tunefarm_tuning.process.relay.tracker import (
    RPC_MAGIC,
    hello,
    receive_exactly,
    receive_int,
    request_device,
)
from tunefarm_tuning.process.sandbox import enter
from tunefarm_tuning.process.tunnel import carry, client_context, dial, receive_message, send_message

if TYPE_CHECKING:
    from tunefarm_tuning.process.relay.key import RelayKey

_MOST_KEY_BYTES = 4096
_MOST_REQUEST_BYTES = 1 << 16
_PIECE_BYTES = 1 << 20
_GREETING_SEC = 30.0
_MOST_GREETING = 16
_PAUSE_SEC = 0.1
_SHARE_OF_PATIENCE = 0.9
_INT = struct.Struct("<i")


def main(argv: list[str]) -> int:
    """Serve until the control socket ends."""
    control_fd, listener_fd, order = argv
    control = socket.socket(fileno=int(control_fd))
    listener = socket.socket(fileno=int(listener_fd))
    enter(order)
    with control, listener:
        requests = _requests(control)
        relay = _Relay(DeviceAddress.from_json(next(requests)[0]), listener)
        for request, descriptors in requests:
            answer = relay.answer(request, descriptors)
            for stray in descriptors:
                os.close(stray)
            control.sendall(json.dumps(answer).encode() + b"\n")
    return 0


def _requests(control: socket.socket) -> Iterator[tuple[dict[str, Any], list[int]]]:
    """Yield each line that the client sends, with the descriptors that came with it: it waits for an answer to each."""
    data, descriptors = b"", list[int]()
    while True:
        piece, received, _, _ = socket.recv_fds(control, _MOST_REQUEST_BYTES, 1)
        if not piece:
            return
        data += piece
        for stray in descriptors:  # of a line that goes on, which none of ours does
            os.close(stray)
        descriptors = received
        if len(data) > _MOST_REQUEST_BYTES:
            return
        *lines, data = data.split(b"\n")
        for number, line in enumerate(lines, start=1):
            # What came with descriptors ends what is received at once.
            is_last = number == len(lines) and not data
            yield json.loads(line), descriptors if is_last else []
            descriptors = [] if is_last else descriptors


@dataclass(frozen=True, slots=True)
class _File:
    """A file that follows a request: the device reads it from the connection, past TVM's serving loop: that and its client take 20 ns for each byte.

    Attributes:
        token: An argument of the request.
        descriptor: Where it is read; this object's own.
        size: Its bytes.
    """

    token: bytes
    descriptor: int
    size: int

    def pieces(self) -> Iterator[bytes]:
        """Yield its bytes, once.

        Raises:
            ConnectionError: If it is shorter: the device waits for more.
        """
        left = self.size
        with os.fdopen(self.descriptor, "rb", buffering=0) as file:
            while left:
                piece = file.read(min(left, _PIECE_BYTES))
                if not piece:
                    raise ConnectionError("a file became shorter while it was sent")
                left -= len(piece)
                yield piece


class _AwayError(ConnectionError):
    """The gateway says that the device is not there."""


class _Relay:
    """Sessions with one device. Concurrency: a thread for each connection of a client."""

    def __init__(self, address: DeviceAddress, listener: socket.socket) -> None:
        self._address = address
        self._key: RelayKey | None = None
        if address.authority is not None:
            # Imported late: a tracker takes no tickets, and its users may be without this library.
            from tunefarm_tuning.process.relay.key import RelayKey

            self._key = RelayKey()
        self._listener = listener
        # The connection that waits for TVM's client, by the token that the client will ask for.
        self._waiting: dict[str, socket.socket] = {}
        self._violation = ""
        # The connections that have not asked for a token yet, the oldest first.
        self._greeting: dict[socket.socket, None] = {}
        self._file: _File | None = None
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def answer(self, request: Mapping[str, Any], descriptors: list[int]) -> dict[str, Any]:
        """Answer a request; what it needs of its descriptors is taken out of them."""
        if request["ask"] == "violation":
            return {"violation": self._violation}
        if request["ask"] == "key":
            return {"key": None if self._key is None else self._key.public}
        if request["ask"] == "send":
            if self._file is not None:  # its request failed before it was sent
                os.close(self._file.descriptor)
            self._file = _File(request["token"].encode(), descriptors.pop(), request["size"])
            return {}
        try:
            return self._open(request)
        except NotAnAnswerError as error:
            self._violation = str(error)
            return {"error": str(error), "violation": True}
        except TimeoutError:
            return {"error": "", "timeout": True}
        except _AwayError as error:
            return {"error": str(error), "away": True}
        except (OSError, ValueError, TypeError, KeyError) as error:
            return {"error": clean(str(error), 300)}

    def _open(self, request: Mapping[str, Any]) -> dict[str, Any]:
        while self._waiting:  # for a client that did not come
            self._waiting.popitem()[1].close()
        ask = self._at_tracker if self._address.authority is None else self._at_gateway
        device, said = ask(request)
        token = secrets.token_hex(16)
        self._waiting[token] = device
        return {"token": token, **said}

    def _at_gateway(self, request: Mapping[str, Any]) -> tuple[socket.socket, dict[str, Any]]:
        """Return a connection on which the device's answers follow, and what the gateway says about the device."""
        address, patience_sec = self._address, request["connect_timeout_sec"]
        context = client_context(str(address.authority))
        device = dial(address.tracker_host, address.tracker_port, context, timeout_sec=patience_sec)
        with _closed_after_error(device):
            # The gateway gives up before this side does: its answer says more.
            asked = {"timeout_sec": request["timeout_sec"], "wait_sec": _SHARE_OF_PATIENCE * patience_sec}
            send_message(device, {"ticket": request["ticket"], **asked})
            answer = receive_message(device)
            if "prove" in answer and self._key is not None:
                send_message(device, {"proof": self._key.prove(request["ticket"], str(answer["prove"]))})
                answer = receive_message(device)
            if "open" not in answer:
                kind = _AwayError if answer.get("away") else ConnectionError
                raise kind(f"the gateway refused: {clean(str(answer.get('refused')))}")
            said = {"host": str(answer["host"]), "port": int(answer["server"])}
            return device, {**said, "receipt": str(answer.get("receipt"))}

    def _at_tracker(self, request: Mapping[str, Any]) -> tuple[socket.socket, dict[str, Any]]:
        """Return a greeted connection with the device, and its address."""
        fence, patience_sec = request["fence"], request["connect_timeout_sec"]
        host, port, key = request_device(self._address, patience_sec, fence)
        device = socket.create_connection((host, port), timeout=patience_sec)
        with _closed_after_error(device):
            # Options follow the key in a client's hello; TVM's own server ignores those that it does not know.
            options = "" if fence is None else f" -fence={int(fence)}"
            options += f" -timeout={request['timeout_sec']}" if request["timeout_sec"] else ""
            device.sendall(hello(key + options))
            device.settimeout(None)  # it may be slow; whoever asked watches the clock
            if (code := receive_int(device)) != RPC_MAGIC:
                raise ConnectionError(f"the device refused the session (code {code - RPC_MAGIC})")
            if not 0 <= (size := receive_int(device)) <= _MOST_KEY_BYTES:
                raise NotAnAnswerError(f"it greeted with {size} bytes")
            receive_exactly(device, size)
        return device, {"host": host, "port": port}

    def _pass(self, client: socket.socket, device: socket.socket) -> None:
        """Pass on both directions until either side ends; of the device's, only answers.

        Raises:
            NotAnAnswerError: If the device sent something else.
        """
        for side in (client, device):
            side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        requests = Requests()
        carry(client, device, to_right=partial(self._passed_on, requests), to_left=Answers(requests).take)

    def _passed_on(self, requests: Requests, piece: memoryview) -> Iterator[bytes | memoryview]:
        """Yield a piece of what the client sends, and the file that follows the request that it ends."""
        requests.take(piece)
        yield piece
        file = self._file
        if file is not None and requests.is_whole and file.token in requests.call:
            self._file = None
            yield from file.pieces()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                with self._lock:
                    self._greeting[client] = None
                self._drop_oldest(_MOST_GREETING)
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()
            except (OSError, RuntimeError):  # no more files or threads, or a client that is gone
                self._drop_oldest(0)
                time.sleep(_PAUSE_SEC)

    def _drop_oldest(self, left: int) -> None:
        """Leave so many connections that have not asked for a token: any process of this machine can connect, and say nothing."""
        with self._lock, contextlib.suppress(OSError):
            while len(self._greeting) > left:
                client = next(iter(self._greeting))
                del self._greeting[client]
                client.shutdown(socket.SHUT_RDWR)  # its thread closes it

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            client.settimeout(_GREETING_SEC)
            try:
                device = self._waiting.pop(_asked_for(client), None)
            finally:
                with self._lock:
                    self._greeting.pop(client, None)
            if device is None:  # any process of this machine can connect
                return
            with device:
                client.sendall(_INT.pack(RPC_MAGIC) + _INT.pack(0))
                client.settimeout(None)
                try:
                    self._pass(client, device)
                except NotAnAnswerError as error:
                    self._violation = str(error)
                except OSError:  # the session ended
                    return
                except Exception as error:  # noqa: BLE001  (whatever the device did to the relay, it was no answer)
                    self._violation = f"it sent what the relay cannot read ({type(error).__name__})"


def _asked_for(client: socket.socket) -> str:
    """Return the key that TVM's client asks for, without its options, which the device has got already."""
    if receive_int(client) != RPC_MAGIC or not 0 <= (size := receive_int(client)) <= _MOST_KEY_BYTES:
        return ""
    return receive_exactly(client, size).decode(errors="replace").removeprefix("client:").split(" ")[0]


@contextmanager
def _closed_after_error(connection: socket.socket) -> Iterator[None]:
    try:
        yield
    except BaseException:
        connection.close()
        raise


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
