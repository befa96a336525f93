"""How the relay asks a tracker."""

from __future__ import annotations

import json
import socket
import struct
import threading

import pytest

from tunefarm_tuning.process.device_address import DeviceAddress
from tunefarm_tuning.process.relay import tracker


def answering(data: bytes) -> DeviceAddress:
    """Return an address whose tracker greets rightly, and then answers with these bytes."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with listener, listener.accept()[0] as connection:
            connection.sendall(struct.pack("<i", tracker.TRACKER_MAGIC) + data)
            while connection.recv(1024):
                pass

    threading.Thread(target=serve, daemon=True).start()
    return DeviceAddress(tracker_host="127.0.0.1", tracker_port=listener.getsockname()[1], key="dev-1")


def packed(answer: object) -> bytes:
    data = json.dumps(answer).encode()
    return struct.pack("<i", len(data)) + data


def test_the_numbers_are_tvms() -> None:
    from tvm.rpc import base

    assert (tracker.RPC_MAGIC, tracker.TRACKER_MAGIC) == (base.RPC_MAGIC, base.RPC_TRACKER_MAGIC)
    codes = (base.TrackerCode.SUCCESS, base.TrackerCode.REQUEST, base.TrackerCode.SUMMARY)
    assert codes == (tracker.SUCCESS, tracker.REQUEST, tracker.SUMMARY)


def test_a_device_is_where_its_tracker_says() -> None:
    address = answering(packed([0, ["10.0.0.7", 9091, "dev-1:0.5"]]))
    assert tracker.request_device(address, 10.0, None) == ("10.0.0.7", 9091, "dev-1:0.5")


@pytest.mark.parametrize(
    "answer",
    [
        packed([-1, "no such key"]),
        packed([0, "no address"]),
        packed({}),
        struct.pack("<i", -1),
        struct.pack("<i", 1 << 30),
        struct.pack("<i", 4) + b"\xff\xff\xff\xff",
    ],
)
def test_a_tracker_that_answers_something_else_is_refused(answer: bytes) -> None:
    with pytest.raises((OSError, ValueError)):
        tracker.request_device(answering(answer), 10.0, None)


def test_a_device_that_is_not_free_ends_the_wait() -> None:
    with pytest.raises(TimeoutError):
        tracker.request_device(answering(b""), 0.1, None)
