"""Frames of TVM's RPC protocol: which of a device's are answers, and which of these TVM's client can read safely.

A frame is a length (``u64``) and a code (``i32``), which begins its content. TVM's client serves whatever the other side sends, and
believes what an answer says about itself: a device could call functions of the client, read and change its memory. So only answers
pass, and of the values in them only what TVM's servers send, each as long as it says; a copy, only as long as the client asked for,
since the client makes room for what it announces. The numbers are TVM's (``rpc_reference.h``,
``c_api.h``; 0.27): a test compares what passes with a real server's answers.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator

_SHUTDOWN, _CALL, _RETURN, _EXCEPTION, _COPY_FROM, _COPY_ACK = 1, 3, 4, 5, 6, 8
_NONE, _INT, _BOOL, _FLOAT, _POINTER, _DATA_TYPE, _DEVICE, _TENSOR_POINTER = range(8)
_RAW_TEXT, _RAW_BYTES = 8, 9
_SMALL_TEXT, _SMALL_BYTES, _TEXT, _BYTES, _TENSOR = 11, 12, 65, 66, 70
_SCALARS = (_INT, _BOOL, _FLOAT, _POINTER, _DATA_TYPE, _DEVICE)
_OWN_TEXTS = {_SMALL_TEXT: _TEXT, _TEXT: _TEXT, _SMALL_BYTES: _BYTES, _BYTES: _BYTES}

_HEAD, _CODE = struct.Struct("<Qi"), struct.Struct("<i")
_LENGTH, _WORD = struct.Struct("<Q"), struct.Struct("<I")
_TENSOR_HEAD = struct.Struct("<QiiiBBH")
_SCALAR_BYTES = 8
_MOST_RETURN_BYTES = 64 << 20
_MOST_DIMENSIONS = 64
_MOST_BITS = 128
_MOST_ELEMENTS = 1 << 48
_MOST_VALUES = 3
_MOST_CALL_BYTES = 1 << 12


class NotAnAnswerError(ConnectionError):
    """The device sent something else than an answer."""


class Requests:
    """Reads what TVM's client sends, piece by piece. Ordering: one connection's pieces, in their order.

    Attributes:
        copy_bytes: The size of the copy that the client waits for; None if its last request was another. A client waits for each answer.
        call: The last request's arguments, their first 4 KiB, if it calls a function.
    """

    def __init__(self) -> None:
        self.copy_bytes: int | None = None
        self.call = bytearray()
        self._is_call = False
        self._head = bytearray()
        self._end = bytearray()
        self._is_copy = False
        self._left = 0

    @property
    def is_whole(self) -> bool:
        """Whether the pieces so far end with a request."""
        return not self._left and not self._head

    def take(self, piece: memoryview) -> None:
        """Read a piece, before it is passed on."""
        while piece:
            if self._left:
                read = piece[: self._left]
                piece = piece[len(read) :]
                self._left -= len(read)
                if self._is_call:
                    self.call += read[: _MOST_CALL_BYTES - len(self.call)]
                if self._is_copy:  # its last value is its size
                    self._end = (self._end + read[-_LENGTH.size :])[-_LENGTH.size :]
                    if not self._left:
                        (self.copy_bytes,) = _LENGTH.unpack(self._end)
                continue
            missing = _HEAD.size - len(self._head)
            self._head += piece[:missing]
            piece = piece[missing:]
            if len(self._head) == _HEAD.size:
                length, code = _HEAD.unpack(self._head)
                self._left, self._is_copy = length - _CODE.size, code == _COPY_FROM
                self.copy_bytes, self._is_call = None, code == _CALL
                self.call.clear()
                self._head.clear()
                self._end.clear()


class Answers:
    """Checks what a device sends, piece by piece. Ordering: one connection's pieces, in their order.

    Args:
        requests: What the client of the same connection sent so far.
    """

    def __init__(self, requests: Requests) -> None:
        self._requests = requests
        self._held = bytearray()
        self._passing = 0

    def take(self, piece: memoryview) -> Iterator[bytes | memoryview]:
        """Yield what may be passed on after this piece; what belongs to an unfinished answer is held back.

        Raises:
            NotAnAnswerError: If nothing more may be passed on.
        """
        while piece:
            if self._passing:
                yield piece[: self._passing]
                passed = min(self._passing, len(piece))
                self._passing -= passed
                piece = piece[passed:]
                continue
            missing = _HEAD.size - len(self._held)
            if missing > 0:
                self._held += piece[:missing]
                piece = piece[missing:]
                if len(self._held) < _HEAD.size:
                    return
            length, code = self._head()
            if code == _COPY_ACK:
                self._passing = length - _CODE.size
                self._requests.copy_bytes = None
            else:
                missing = _LENGTH.size + length - len(self._held)
                self._held += piece[:missing]
                piece = piece[missing:]
                if len(self._held) < _LENGTH.size + length:
                    return
                if code != _SHUTDOWN:
                    _check(code, memoryview(self._held)[_HEAD.size :])
            yield bytes(self._held)
            self._held.clear()

    def _head(self) -> tuple[int, int]:
        length, code = _HEAD.unpack_from(self._held)
        if code == _COPY_ACK:
            if (asked := self._requests.copy_bytes) is None:
                raise NotAnAnswerError("it sent a copy that nobody asked for")
            if length != _CODE.size + asked:
                raise NotAnAnswerError(f"it sent {length - _CODE.size} bytes where {asked} were asked for")
            return length, code
        most = {_SHUTDOWN: _CODE.size, _RETURN: _MOST_RETURN_BYTES, _EXCEPTION: _MOST_RETURN_BYTES}
        if code not in most:
            raise NotAnAnswerError(f"it sent a request (code {code}) where only answers may be")
        if not _CODE.size <= length <= most[code]:
            raise NotAnAnswerError(f"it sent an answer of {length} bytes (code {code})")
        return length, code


def _check(code: int, content: memoryview) -> None:
    """Check the values of an answer.

    Raises:
        NotAnAnswerError: If TVM's client must not read them.
    """
    try:
        (count,) = _CODE.unpack_from(content)
        if not 1 <= count <= _MOST_VALUES:
            raise NotAnAnswerError(f"it sent an answer of {count} values")
        at, kinds, first = _CODE.size, [], 0
        for index in range(count):
            (kind,) = _CODE.unpack_from(content, at)
            if index == 0 and kind == _INT:
                (first,) = _LENGTH.unpack_from(content, at + _CODE.size)
            at = _end_of_value(kind, content, at + _CODE.size)
            kinds.append(kind)
    except struct.error:
        raise NotAnAnswerError("it sent an answer that ends too early") from None
    if at != len(content):
        raise NotAnAnswerError("it sent an answer that is not as long as it says")
    is_text = kinds in ([_RAW_TEXT], [_SMALL_TEXT], [_TEXT])
    # A function's result is its kind, its value, and of a tensor its owner. TVM's client keeps no copy of another tensor's head.
    is_tensor = kinds[1:] == [_TENSOR_POINTER, _POINTER] and first in (_TENSOR, _TENSOR_POINTER)
    is_value = _TENSOR_POINTER not in kinds and (count == 1 or (count == 2 and kinds[0] == _INT))
    if not (is_text if code == _EXCEPTION else is_tensor or is_value):
        raise NotAnAnswerError(f"it sent an answer of values that do not belong together ({kinds})")


def _end_of_value(kind: int, content: memoryview, at: int) -> int:
    if kind == _NONE:
        return at
    if kind in _SCALARS:
        return at + _SCALAR_BYTES
    if kind in (_RAW_TEXT, _RAW_BYTES):
        return _end_of_bytes(content, at)
    if kind in _OWN_TEXTS:
        (inner,) = _WORD.unpack_from(content, at)
        if inner == _OWN_TEXTS[kind]:
            return _end_of_bytes(content, at + _WORD.size)
    if kind == _TENSOR_POINTER:
        return _end_of_tensor(content, at)
    # Functions, modules and other objects would be addresses in the client's own memory.
    raise NotAnAnswerError(f"it sent a value that answers do not have (kind {kind})")


def _end_of_bytes(content: memoryview, at: int) -> int:
    (length,) = _LENGTH.unpack_from(content, at)
    begin = at + _LENGTH.size
    if length > len(content) - begin:
        raise NotAnAnswerError("it sent a text that is longer than its answer")
    return begin + int(length)


def _end_of_tensor(content: memoryview, at: int) -> int:
    _, _, _, rank, _, bits, lanes = _TENSOR_HEAD.unpack_from(content, at)
    if not 0 <= rank <= _MOST_DIMENSIONS or lanes != 1 or not 1 <= bits <= _MOST_BITS:
        raise NotAnAnswerError(f"it sent a tensor of {rank} dimensions, {bits} bits and {lanes} lanes")
    shape = struct.unpack_from(f"<{rank}q", content, at + _TENSOR_HEAD.size)
    if any(extent < 0 for extent in shape) or math.prod(extent or 1 for extent in shape) > _MOST_ELEMENTS:
        raise NotAnAnswerError("it sent a tensor of an impossible shape")
    return at + _TENSOR_HEAD.size + _LENGTH.size * len(shape) + _LENGTH.size
