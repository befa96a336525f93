"""Which bytes of a device pass the relay."""

from __future__ import annotations

import random
import re
import struct
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest
from hostile_device import (
    BYTES,
    CALL_FUNC,
    COPY_ACK,
    COPY_FROM,
    COPY_TO,
    DATA_TYPE,
    DEVICE,
    EXCEPTION,
    INT,
    NONE,
    POINTER,
    RAW_TEXT,
    RETURN,
    SHUTDOWN,
    TENSOR,
    TENSOR_POINTER,
    TEXT_OBJECT,
    frame,
    handle,
    none,
    number,
    sequence,
    tensor,
    text,
)

from tunefarm_tuning.process.relay.frames import Answers, NotAnAnswerError, Requests

_OWN_TEXT = struct.pack("<iIQ", TEXT_OBJECT, TEXT_OBJECT, 3) + b"gpu"
_SMALL_TEXT = struct.pack("<iIQ", 11, TEXT_OBJECT, 1) + b"g"
ANSWERS = [
    frame(RETURN, sequence(none())),
    frame(RETURN, sequence(number(NONE), none())),
    frame(RETURN, sequence(number(INT), number(-7))),
    frame(RETURN, sequence(handle(POINTER, 1 << 47))),
    frame(RETURN, sequence(number(68), handle(POINTER, 1 << 47))),
    frame(RETURN, sequence(struct.pack("<iBBHi", DATA_TYPE, 2, 32, 1, 0))),
    frame(RETURN, sequence(struct.pack("<iii", DEVICE, 1, 0))),
    frame(RETURN, sequence(number(TEXT_OBJECT), text(b"a name"))),
    frame(RETURN, sequence(number(66), struct.pack("<iQ", BYTES, 2) + b"\0\1")),
    frame(RETURN, sequence(_OWN_TEXT)),
    frame(RETURN, sequence(_SMALL_TEXT)),
    frame(
        RETURN,
        sequence(number(TENSOR), struct.pack("<i", TENSOR_POINTER) + tensor((2, 0, 3)), handle(POINTER, 5)),
    ),
    frame(EXCEPTION, sequence(text(b"it failed"))),
    frame(SHUTDOWN),
]


def request_for_copy(size: int) -> bytes:
    return frame(COPY_FROM, tensor((size,)) + struct.pack("<Q", size))


def passed(pieces: list[bytes], requests: Sequence[bytes] = ()) -> bytes:
    """Return what passes of a device's pieces after these pieces of requests."""
    asked = Requests()
    for request in requests:
        asked.take(memoryview(request))
    answers = Answers(asked)
    return b"".join(bytes(answer) for piece in pieces for answer in answers.take(memoryview(piece)))


def pieces_of(data: bytes, draw: random.Random) -> list[bytes]:
    cuts = sorted(draw.randrange(len(data) + 1) for _ in range(draw.randrange(40)))
    return [data[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]


def test_answers_pass_however_they_are_cut() -> None:
    draw = random.Random(0)
    for _ in range(200):
        data = b"".join(draw.choices(ANSWERS, k=5))
        assert passed(pieces_of(data, draw)) == data


def test_each_byte_of_a_small_answer_may_come_alone() -> None:
    data = b"".join(answer for answer in ANSWERS if len(answer) < 1000)
    assert passed([data[index : index + 1] for index in range(len(data))]) == data


def test_an_answer_passes_when_it_is_whole() -> None:
    answer = frame(RETURN, sequence(number(TEXT_OBJECT), text(b"a name")))
    assert passed([answer[:-1]]) == b""
    assert passed([answer[:-1], answer[-1:]]) == answer


def test_a_copy_passes_as_it_comes() -> None:
    copy = frame(COPY_ACK, b"x" * 100)
    assert passed([copy[:50]], [request_for_copy(100)]) == copy[:50]


@pytest.mark.parametrize("size", [0, 1, 100_000])
def test_a_copy_and_its_request_may_be_cut_anywhere(size: int) -> None:
    draw = random.Random(size)
    sent = frame(COPY_TO, tensor((64,)) + struct.pack("<Q", 64) + b"w" * 64) + request_for_copy(size)
    copy = frame(COPY_ACK, b"x" * size)
    for _ in range(100):
        data = copy + draw.choice(ANSWERS)
        assert passed(pieces_of(data, draw), pieces_of(sent, draw)) == data


@pytest.mark.parametrize("asked", [[], [request_for_copy(64), frame(CALL_FUNC, sequence())]])
def test_a_copy_that_nobody_asked_for_does_not_pass(asked: list[bytes]) -> None:
    with pytest.raises(NotAnAnswerError, match="nobody asked"):
        passed([struct.pack("<Qi", 68, COPY_ACK)], asked)


@pytest.mark.parametrize("size", [0, 63, 65, (1 << 36) - 4, (1 << 64) - 5])
def test_a_copy_of_another_size_does_not_pass(size: int) -> None:
    with pytest.raises(NotAnAnswerError, match="64 were asked for"):
        passed([struct.pack("<Qi", 4 + size, COPY_ACK)], [request_for_copy(64)])


def test_a_call_is_known_by_its_arguments_when_it_is_whole() -> None:
    draw = random.Random(0)
    call = frame(CALL_FUNC, sequence(handle(POINTER, 1), text(b"name.so"), text(b"the-token")))
    for _ in range(50):
        requests = Requests()
        *pieces, last = filter(None, pieces_of(frame(COPY_TO, b"the-token") + call, draw))
        for piece in pieces:
            requests.take(memoryview(piece))
            assert not (requests.is_whole and b"the-token" in requests.call)
        requests.take(memoryview(last))
        assert requests.is_whole
        assert b"the-token" in requests.call
    requests.take(memoryview(frame(CALL_FUNC, b"x" * 100_000)))
    assert (len(requests.call), b"the-token" in requests.call) == (4096, False)


def test_a_copy_is_sent_once() -> None:
    copy = frame(COPY_ACK, b"x" * 64)
    with pytest.raises(NotAnAnswerError, match="nobody asked"):
        passed([copy * 2], [request_for_copy(64)])


@pytest.mark.parametrize("code", [code for code in range(-1, 40) if code not in (1, 4, 5, 8)])
def test_a_request_does_not_pass(code: int) -> None:
    with pytest.raises(NotAnAnswerError, match="request"):
        passed([frame(code, sequence(none()))])


@pytest.mark.parametrize("cut", [1, 4, 7])
def test_an_answer_that_ends_within_a_value_does_not_pass(cut: int) -> None:
    body = sequence(number(TEXT_OBJECT), text(b"a name"))[:-cut]
    with pytest.raises(NotAnAnswerError):
        passed([frame(RETURN, body)])


@pytest.mark.parametrize("says", [11, (1 << 63) - 200, (1 << 64) - 1])
def test_a_text_that_is_longer_than_its_answer_does_not_pass(says: int) -> None:
    with pytest.raises(NotAnAnswerError, match="longer"):
        passed([frame(RETURN, sequence(number(TEXT_OBJECT), text(b"a name", says=says), none()))])


def test_random_bytes_end_without_another_error() -> None:
    """What passes of them is an answer: it would pass again."""
    draw = random.Random(1)
    for _ in range(20_000):
        data = bytearray(draw.choice(ANSWERS[:-1]))
        for _ in range(draw.randrange(1, 4)):
            data[draw.randrange(12, len(data))] = draw.choice([0, 1, 4, 7, 8, 64, 65, 127, 128, 255])
        answers = Answers(Requests())
        try:
            out = b"".join(bytes(answer) for answer in answers.take(memoryview(data)))
        except NotAnAnswerError:
            continue
        assert out == data


def test_the_codes_are_tvms() -> None:
    spec = find_spec("tvm")
    assert spec is not None
    assert spec.origin is not None
    source = (Path(spec.origin).parent / "src/runtime/rpc/minrpc/rpc_reference.h").read_text()
    names = re.search(r"enum class RPCCode : int \{(.*?)\};", source, re.DOTALL)
    assert names is not None
    codes = re.findall(r"^\s+(k\w+),", names[1], re.MULTILINE)
    assert {
        codes.index(name)
        for name in ("kShutdown", "kCallFunc", "kReturn", "kException", "kCopyFromRemote", "kCopyAck")
    } == {*(SHUTDOWN, CALL_FUNC, RETURN, EXCEPTION, COPY_FROM, COPY_ACK)}
    spec = find_spec("tvm_ffi")
    assert spec is not None
    assert spec.origin is not None
    header = (Path(spec.origin).parent / "include/tvm/ffi/c_api.h").read_text()
    kinds = {
        "None": NONE,
        "Int": INT,
        "Bool": 2,
        "Float": 3,
        "OpaquePtr": POINTER,
        "DataType": DATA_TYPE,
        "Device": DEVICE,
        "DLTensorPtr": TENSOR_POINTER,
        "RawStr": RAW_TEXT,
        "ByteArrayPtr": BYTES,
        "SmallStr": 11,
        "SmallBytes": 12,
        "Str": TEXT_OBJECT,
        "Bytes": 66,
        "Tensor": TENSOR,
    }
    for name, value in kinds.items():
        assert re.search(rf"\bkTVMFFI{name} = {value},", header), name
