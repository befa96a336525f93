"""The wire format's pure parts."""

from __future__ import annotations

import pytest

from tunefarm_workers.device.rpc.wire import WireError, pack_frame, parse_address, unpack_frame


def test_frames_come_in_pieces() -> None:
    data = pack_frame([5, {"key": "ü"}]) + pack_frame(0)
    received = bytearray()
    messages = []
    for byte in data:
        received.append(byte)
        complete, message = unpack_frame(received)
        if complete:
            messages.append(message)
    assert messages == [[5, {"key": "ü"}], 0]
    assert not received


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff", b"\0\0\0\0", b"\xff\xff\xff\x7f", b"\x02\0\0\0{]"])
def test_nonsense_is_told_apart(data: bytes) -> None:
    with pytest.raises(WireError):
        unpack_frame(bytearray(data))


def test_addresses() -> None:
    assert parse_address("tracker:9190") == ("tracker", 9190)
    for text in ("tracker", ":1", "h:0", "h:65536", "h:x", ""):
        with pytest.raises(ValueError, match="host:port"):
            parse_address(text)
