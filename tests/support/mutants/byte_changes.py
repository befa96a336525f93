"""Changes of a file's bytes, whatever they mean: a protobuf message's lengths, single bits, its end."""

from __future__ import annotations

import random
from collections.abc import Iterator

_LENGTH_DELIMITED = 2
_FIXED = {1: 8, 5: 4}
_LENGTHS = (0, 1, 127, 128, 1 << 20, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, (1 << 63) - 1)
_DEEPEST = 8


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Return a varint and where it ends.

    Raises:
        IndexError: If the data ends before.
    """
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80 or shift > 63:
            return value, at


def _encoded(value: int) -> bytes:
    text = bytearray()
    while value > 0x7F:
        text.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*text, value))


def _lengths(data: bytes, begin: int, end: int, depth: int = 0) -> Iterator[tuple[int, int]]:
    """Yield where the lengths of fields begin and end, those of inner messages too."""
    at = begin
    while at < end:
        try:
            tag, at = _number(data, at)
            wire = tag & 7
            if wire == 0:
                _, at = _number(data, at)
                continue
            if wire in _FIXED:
                at += _FIXED[wire]
                continue
            size, after = _number(data, at)
        except IndexError:
            return
        if wire != _LENGTH_DELIMITED or after + size > end:
            return
        yield at, after
        if depth < _DEEPEST:
            yield from _lengths(data, after, after + size, depth + 1)
        at = after + size


def change_bytes(data: bytes, rng: random.Random, *, is_protobuf: bool) -> tuple[bytes, str]:
    """Return changed data, and what was changed."""
    kind = rng.randrange(4)
    if kind < 2 and is_protobuf and (places := list(_lengths(data, 0, len(data)))):
        begin, end = rng.choice(places)
        size, _ = _number(data, begin)
        return data[:begin] + _encoded(rng.choice((size + 1, max(0, size - 1), *_LENGTHS))) + data[
            end:
        ], "length"
    if kind == 2:
        return data[: rng.randrange(1, len(data))], "end"
    changed = bytearray(data)
    for _ in range(rng.choice((1, 3, 30))):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed), "bits"
