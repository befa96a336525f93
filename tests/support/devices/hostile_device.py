"""A device whose owner is a stranger: a tracker and an RPC server that speak TVM's protocol, and answer a call with what they like."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
from collections.abc import Callable
from typing import Any

from tunefarm_tuning.measure.device import RemoteDevice
from tunefarm_tuning.measure.interfaces import DeviceInfo

MAGIC, TRACKER_MAGIC = 0xFF271, 0x2F271
SHUTDOWN, INIT_SERVER, CALL_FUNC, RETURN, EXCEPTION, COPY_FROM, COPY_TO, COPY_ACK = range(1, 9)
GET_FUNCTION, FREE_HANDLE, SET_DEVICE, GET_ATTRIBUTE, ALLOCATE, FREE_DATA, SYNC, COPY_AMONG = range(9, 17)
NONE, INT, POINTER, DATA_TYPE, DEVICE, TENSOR_POINTER, RAW_TEXT, BYTES = 0, 1, 4, 5, 6, 7, 8, 9
TEXT_OBJECT, FUNCTION, TENSOR, MODULE = 65, 68, 70, 73
PATIENCE_SEC = 60.0

Attack = Callable[["Victim"], Any]


def frame(code: int, body: bytes = b"") -> bytes:
    """Return a frame: its length, its code, its content."""
    return struct.pack("<Qi", 4 + len(body), code) + body


def sequence(*values: bytes) -> bytes:
    """Return values as TVM packs arguments and results."""
    return struct.pack("<i", len(values)) + b"".join(values)


def none() -> bytes:
    return struct.pack("<i", NONE)


def number(value: int) -> bytes:
    return struct.pack("<iq", INT, value)


def handle(kind: int, value: int) -> bytes:
    """Return a pointer, as an opaque one or as an object of a kind."""
    return struct.pack("<iQ", kind, value)


def text(value: bytes, *, says: int | None = None) -> bytes:
    """Return a text that may lie about its length."""
    return struct.pack("<iQ", RAW_TEXT, len(value) if says is None else says) + value


def tensor(shape: tuple[int, ...], *, data: int = 0, lanes: int = 1, says: int | None = None) -> bytes:
    """Return a tensor of bytes in the main memory; it may lie about its number of dimensions."""
    rank = len(shape) if says is None else says
    head = struct.pack("<QiiiBBH", data, 1, 0, rank, 1, 8, lanes)
    return head + struct.pack(f"<{len(shape)}q", *shape) + struct.pack("<Q", 0)


class Victim:
    """The other end of a session: whoever asked this device for something."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def send(self, data: bytes) -> None:
        self._connection.sendall(data)

    def hang_up(self) -> None:
        self._connection.shutdown(socket.SHUT_RDWR)

    def receive(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            if not (piece := self._connection.recv(size - len(data))):
                raise ConnectionResetError
            data += piece
        return data

    def frame(self) -> tuple[int, bytes]:
        """Wait for a frame; return its code and content."""
        length, code = struct.unpack("<Qi", self.receive(12))
        return code, self.receive(length - 4)

    def ask(self, code: int, body: bytes = b"") -> bytes:
        """Send a request; return the content of the answer.

        Raises:
            ConnectionError: If the session ends, or the answer is an exception.
        """
        self.send(frame(code, body))
        answer, content = self.frame()
        if answer not in (RETURN, COPY_ACK):
            raise ConnectionAbortedError(content)
        return content


class HostileDevice:
    """Accepts sessions until it is closed. It behaves until the first call in a session, which it answers with its attack.

    Attributes:
        gains: What the attacks returned that succeeded.
    """

    def __init__(self, attack: Attack) -> None:
        self.gains: list[Any] = []
        self._attack = attack
        self._tracker = socket.create_server(("127.0.0.1", 0))
        self._server = socket.create_server(("127.0.0.1", 0))
        for listener, serve in ((self._tracker, self._track), (self._server, self._serve)):
            threading.Thread(target=self._accept, args=(listener, serve), daemon=True).start()

    def device(self) -> RemoteDevice:
        """Return the device as a farm knows it."""
        info = DeviceInfo(model="m", num_cores=1, name="hostile")
        return RemoteDevice(
            tracker_host="127.0.0.1", tracker_port=self._tracker.getsockname()[1], key="dev-h", info=info
        )

    def close(self) -> None:
        for listener in (self._tracker, self._server):
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()

    def _accept(self, listener: socket.socket, serve: Callable[[socket.socket], None]) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                connection.settimeout(PATIENCE_SEC)
                threading.Thread(target=self._one, args=(connection, serve), daemon=True).start()

    @staticmethod
    def _one(connection: socket.socket, serve: Callable[[socket.socket], None]) -> None:
        with connection, contextlib.suppress(OSError):
            serve(connection)

    def _track(self, connection: socket.socket) -> None:
        victim = Victim(connection)
        victim.send(victim.receive(4))
        victim.receive(*struct.unpack("<i", victim.receive(4)))
        answer = json.dumps([0, ["127.0.0.1", self._server.getsockname()[1], "dev-h:0.5"]]).encode()
        victim.send(struct.pack("<i", len(answer)) + answer)

    def _serve(self, connection: socket.socket) -> None:
        victim = Victim(connection)
        _, size = struct.unpack("<ii", victim.receive(8))
        victim.receive(size)
        victim.send(struct.pack("<ii", MAGIC, 9) + b"server:ok")
        victim.frame()
        victim.send(frame(RETURN, sequence(none())))
        victim.frame()
        self.gains.append(self._attack(victim))
        # Until it leaves.
        connection.recv(1)
