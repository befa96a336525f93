"""Other sizes for a binding with which a network does not run: what ONNX Runtime's error says that it wanted instead."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import prod

_RESHAPE = re.compile(r"[Ii]nput shape:\s*\{([\d,]+)\}, requested shape:\s*\{([-\d,]+)\}")
_QUOTED = re.compile(r"'[^']*'|\S+:\d+")
_NUMBER = re.compile(r"(?<![\w.\-])\d{1,6}(?![\w.])")
_NEIGHBOURS = (0, 1, -1, 2, -2, 3, 4)
"""What a strided layer rounds away."""
_MAX_SIZE = 1 << 17
_MAX_NUMBER = 1 << 12


def wanted_sizes(size: int, message: str) -> list[int]:
    """Return sizes to try in place of one with which a network did not run, the likeliest first.

    A network whose sizes were fixed at its export says so by a tensor that cannot take a fixed shape: the size is as much
    smaller, or smaller in the same proportion, as the tensor is too large.
    """
    sizes: dict[int, None] = {}
    for candidate in (*_of_reshape(size, message), *_numbers(message)):
        if 0 < candidate < _MAX_SIZE and candidate != size:
            sizes.setdefault(candidate)
    return list(sizes)


def _of_reshape(size: int, message: str) -> Iterator[int]:
    match = _RESHAPE.search(message)
    if match is None:
        return
    given, wanted = ([int(number) for number in group.split(",") if number] for group in match.groups())
    if any(number <= 0 for number in wanted):
        yield from (number for number in wanted if number > 0)
        return
    for extent in dict.fromkeys(given):
        fitting, remainder = divmod(extent * prod(wanted), prod(given))
        if remainder or fitting == extent:
            continue
        yield size + fitting - extent
        yield fitting
        yield from (round(size * fitting / extent) + offset for offset in _NEIGHBOURS)


def _numbers(message: str) -> Iterator[int]:
    """Yield the numbers of a message, and those next to them: a last index is one less than a size."""
    numbers = [int(text) for text in _NUMBER.findall(_QUOTED.sub("", message))]
    small = [number for number in numbers if 1 < number < _MAX_NUMBER]
    yield from small
    yield from (number + 1 for number in small)
