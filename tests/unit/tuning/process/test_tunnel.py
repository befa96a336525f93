"""Messages and bytes between two ends."""

from __future__ import annotations

import json
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from json_mutations import any_json
from waiting import wait_until

from tunefarm_tuning.process import tunnel
from tunefarm_tuning.process.tunnel import (
    BadMessageError,
    Conversation,
    carry,
    hang_up,
    receive_message,
    send_message,
)


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def received(data: bytes) -> list[dict[str, Any]]:
    """Return the messages in some bytes, until their end or the first that is none."""
    ours, theirs = socket.socketpair()
    messages = []
    with ours, theirs:
        theirs.sendall(data)
        theirs.shutdown(socket.SHUT_WR)
        try:
            while True:
                messages.append(receive_message(ours))
        except OSError:
            return messages


@settings(max_examples=1000, deadline=None)
@given(st.lists(st.binary(max_size=60), max_size=4))
def test_any_bytes_are_messages_or_an_error(pieces: list[bytes]) -> None:
    received(b"".join(pieces))
    received(b"".join(len(piece).to_bytes(2, "big") + piece for piece in pieces))


@given(st.dictionaries(st.text(max_size=5), any_json("ping"), max_size=3))
def test_a_message_arrives_as_it_is(message: dict[str, Any]) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        try:
            send_message(theirs, message)
        except ValueError:
            return
        arrived = receive_message(ours)
    assert json.dumps(arrived) == json.dumps(message)


@pytest.mark.parametrize("data", [b"\xff\xff", b"\x00\x02[]", b"\x00\x01{", b"\x00\x00"])
def test_what_is_no_message_is_refused(pair: tuple[socket.socket, socket.socket], data: bytes) -> None:
    ours, theirs = pair
    theirs.sendall(data)
    with pytest.raises(BadMessageError):
        receive_message(ours)


def test_both_directions_are_carried_until_a_side_ends() -> None:
    left, near_left = socket.socketpair()
    right, near_right = socket.socketpair()
    thread = threading.Thread(target=carry, args=(near_left, near_right))
    with left, near_left, right, near_right:
        thread.start()
        for source, sink in ((left, right), (right, left)):
            data = bytes(range(256)) * 20
            source.sendall(data)
            assert sink.recv(len(data), socket.MSG_WAITALL) == data
        left.close()
        thread.join()


def test_a_piece_that_must_not_pass_ends_it() -> None:
    left, near_left = socket.socketpair()
    right, near_right = socket.socketpair()

    def check(piece: memoryview) -> Iterator[bytes]:
        raise BadMessageError(bytes(piece).decode())

    with left, near_left, right, near_right:
        right.sendall(b"bad")
        with pytest.raises(BadMessageError, match="bad"):
            carry(near_left, near_right, to_left=check)


def test_a_slow_reader_gets_every_byte() -> None:
    left, near_left = socket.socketpair()
    right, near_right = socket.socketpair()
    data = bytes(range(256)) * 20_000
    threads = [
        threading.Thread(target=carry, args=(near_left, near_right)),
        threading.Thread(target=left.sendall, args=(data,)),
    ]
    received = bytearray()
    with left, near_left, right, near_right:
        for thread in threads:
            thread.start()
        wait_until(lambda: not is_writable(near_right), "a full connection")
        while len(received) < len(data):
            received += right.recv(50_000)
        left.close()
        for thread in threads:
            thread.join()
    assert received == data


def is_writable(connection: socket.socket) -> bool:
    return bool(select.select([], [connection], [], 0)[1])


def test_a_side_that_takes_nothing_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tunnel, "_STUCK_SEC", 0.05)
    left, near_left = socket.socketpair()
    right, near_right = socket.socketpair()
    with left, near_left, right, near_right:
        left.setblocking(False)
        left.send(bytes(1 << 20))
        near_right.setblocking(False)
        with suppress(BlockingIOError):
            while near_right.send(bytes(1 << 20)):
                pass
        with pytest.raises(TimeoutError, match="takes nothing"):
            carry(near_left, near_right)


def serve(talk: Conversation, take: Callable[[Any], None]) -> None:
    with suppress(OSError):
        talk.run(take)


def test_a_conversation_tells_both_sides_of_each_other(pair: tuple[socket.socket, socket.socket]) -> None:
    heard: list[Any] = []
    talks = [Conversation(side) for side in pair]
    threads = [threading.Thread(target=serve, args=(talk, heard.append)) for talk in talks]
    assert not talks[0].is_heard
    for thread in threads:
        thread.start()
    wait_until(lambda: all(talk.is_heard for talk in talks), "both sides")
    talks[0].post({"a": 1})
    talks[1].post({"b": 2})
    wait_until(lambda: len(heard) == 2, "both messages")
    assert sorted(map(str, heard)) == ["{'a': 1}", "{'b': 2}"]
    hang_up(pair[0])
    for thread in threads:
        thread.join()
    talks[0].post({"too": "late"})


def test_a_silent_side_is_gone(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tunnel, "PING_SEC", 0.05)
    monkeypatch.setattr(tunnel, "SILENCE_SEC", 0.2)
    talk = Conversation(pair[0])
    with pytest.raises(TimeoutError, match="silent"):
        talk.run(lambda _: None)


def test_a_conversation_ends_at_its_time(pair: tuple[socket.socket, socket.socket]) -> None:
    Conversation(pair[0]).run(lambda _: None, until=time.monotonic() + 0.05)
    assert receive_message(pair[1]) == {"ping": True}
