"""The text of an input's shapes: several sizes of a dimension, and a range of batch sizes.

::

    1,3,224,224              one shape
    1,3,48,160|320|640       three widths
    1,3,48,160:5|320:3|640   the same; of nine calls, five have width 160 and three width 320
    1..8,3,224,224           any batch from 1 to 8; tuned are 1, 2, 4 and 8
    1..8,3,224,224@1,4,8     any batch from 1 to 8; tuned are 1, 4 and 8

Each combination of sizes is a *specialisation*: code of its own in the artifact. A batch between two tuned ones runs in the next larger
one. Client, command, form, API and engine all read this text here. It holds no names of inputs: `split_name` takes those off.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

MAX_SIZE = (1 << 31) - 1
"""Largest size of a dimension."""

MAX_SPECIALISATIONS = 64
"""Most combinations of sizes in one artifact."""

MAX_WEIGHT = 1000
"""Largest weight of a size."""

_MAX_DIMENSIONS = 32
_MAX_CHARACTERS = 2000
_SIZE = re.compile(r"[0-9]+", re.ASCII)


class ShapeTextError(ValueError):
    """A text that is no shape.

    Attributes:
        reason: What is wrong, without the text and the position.
        position: The index of the character where it is wrong.
    """

    def __init__(self, text: str, position: int, reason: str) -> None:
        shown = text if len(text) <= 80 else f"{text[:77]}..."
        super().__init__(f"{reason}, at character {position + 1} of '{shown}'")
        self.reason = reason
        self.position = position


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimension:
    """The sizes of one dimension.

    Attributes:
        sizes: The sizes to tune for, ascending for a range, else in the text's order.
        weights: How often the user runs each of them, relative to the others.
        least: Lower end of a range of batch sizes; None if there is no range. The upper end is the last of `sizes`.
    """

    sizes: tuple[int, ...]
    weights: tuple[int, ...]
    least: int | None = None

    @classmethod
    def of(cls, size: int) -> Dimension:
        """Return a dimension of a single size."""
        return cls(sizes=(size,), weights=(1,))

    @property
    def is_open(self) -> bool:
        """Whether it has several sizes, or is a range."""
        return len(self.sizes) > 1 or self.least is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeChoices:
    """The shapes of one input, one `Dimension` for each of its dimensions."""

    dimensions: tuple[Dimension, ...]

    @property
    def fixed(self) -> tuple[int, ...] | None:
        """The shape, if there is only one."""
        if any(dimension.is_open for dimension in self.dimensions):
            return None
        return tuple(dimension.sizes[0] for dimension in self.dimensions)

    def __str__(self) -> str:
        """Return the canonical text: equal choices have equal texts."""
        parts, tuned = [], ""
        for dimension in self.dimensions:
            if dimension.least is None:
                parts.append("|".join(_weighted(dimension)))
            else:
                parts.append(f"{dimension.least}..{dimension.sizes[-1]}")
                tuned = "@" + ",".join(_weighted(dimension))
        return ",".join(parts) + tuned


def read_shape(text: str) -> ShapeChoices:
    """Read the shapes of one input.

    Raises:
        ShapeTextError: If it is no such text.
    """
    return ShapeChoices(dimensions=tuple(_Reader(text).dimensions()))


def shape_line(name: str, shape: Sequence[int | str] | str) -> str:
    """Return an input's shape with its name: ``x=1,3,224,224``."""
    return f"{name}={shape if isinstance(shape, str) else ','.join(map(str, shape))}"


def split_name(text: str) -> tuple[str, str]:
    """Split ``name=shape`` at its last ``=``: a name may contain any characters.

    Raises:
        ShapeTextError: If a part is missing.
    """
    name, equals, shape = text.rpartition("=")
    if not equals or not name:
        raise ShapeTextError(text, 0, "an input's name and '=' must come first, as in x=1,3,224,224")
    return name, shape


def _weighted(dimension: Dimension) -> Iterator[str]:
    for size, weight in zip(dimension.sizes, dimension.weights, strict=True):
        yield f"{size}:{weight}" if weight != 1 else str(size)


class _Reader:
    """Reads one text from left to right. Blanks are allowed between its parts."""

    def __init__(self, text: str) -> None:
        if len(text) > _MAX_CHARACTERS:
            raise ShapeTextError(text, _MAX_CHARACTERS, f"a shape has at most {_MAX_CHARACTERS} characters")
        self._text = text
        self._at = 0

    def dimensions(self) -> list[Dimension]:
        dimensions: list[Dimension] = []
        if self._skip_blanks() == len(self._text):
            return dimensions  # a scalar
        while True:
            if len(dimensions) == _MAX_DIMENSIONS:
                raise self._error(f"a shape has at most {_MAX_DIMENSIONS} dimensions")
            dimensions.append(self._dimension(is_first=not dimensions))
            if not self._take(",", "x"):
                break
        self._take_tuned_sizes(dimensions)
        if self._at < len(self._text):
            raise self._error("',' or the end of the shape is expected")
        return dimensions

    def _dimension(self, *, is_first: bool) -> Dimension:
        start = self._at
        sizes, weights = self._choices(("|", "/"))
        if not self._take(".."):
            return Dimension(sizes=tuple(sizes), weights=tuple(weights))
        if len(sizes) > 1 or weights[0] != 1:
            raise self._error("a range is written as two sizes, like 1..8", start)
        if not is_first:
            raise self._error(
                "only the first dimension, the batch, can be a range; give other sizes one by one, like 160|320",
                start,
            )
        last = self._size()
        if last < sizes[0]:
            raise self._error(f"the range ends below its start: {sizes[0]}..{last}", start)
        tuned = [1 << power for power in range(31) if sizes[0] <= 1 << power < last]
        return Dimension(sizes=(*tuned, last), weights=(1,) * (len(tuned) + 1), least=sizes[0])

    def _take_tuned_sizes(self, dimensions: list[Dimension]) -> None:
        """Read the sizes after ``@``, which replace those of the range."""
        start = self._skip_blanks()
        if not self._take("@"):
            return
        batch = dimensions[0]
        if batch.least is None:
            raise self._error(
                "'@' lists batch sizes to tune for, but the shape has no range like 1..8", start
            )
        start = self._skip_blanks()
        sizes, weights = self._choices((",", "|", "/"))
        ordered = sorted(zip(sizes, weights, strict=True))
        last = batch.sizes[-1]
        if ordered[0][0] < batch.least or ordered[-1][0] > last:
            raise self._error(f"a batch size outside of the range {batch.least}..{last}", start)
        if ordered[-1][0] != last:
            raise self._error(f"the range's end, {last}, must be among the batch sizes to tune for", start)
        dimensions[0] = Dimension(
            sizes=tuple(size for size, _ in ordered),
            weights=tuple(weight for _, weight in ordered),
            least=batch.least,
        )

    def _choices(self, separators: tuple[str, ...]) -> tuple[list[int], list[int]]:
        sizes: list[int] = []
        weights: list[int] = []
        while True:
            start = self._skip_blanks()
            size = self._size()
            if size in sizes:
                raise self._error(f"the size {size} is given twice", start)
            sizes.append(size)
            weights.append(self._number("a weight", MAX_WEIGHT) if self._take(":") else 1)
            if not self._take(*separators):
                return sizes, weights

    def _size(self) -> int:
        return self._number("a size", MAX_SIZE)

    def _number(self, what: str, largest: int) -> int:
        start = self._skip_blanks()
        match = _SIZE.match(self._text, start)
        if match is None:
            raise self._error(f"{what} is expected; sizes and weights are whole numbers")
        digits = match.group().lstrip("0")
        if not digits:
            raise self._error(f"{what} is above zero")
        if len(digits) > 10 or int(digits) > largest:
            raise self._error(f"{what} is at most {largest}")
        self._at = match.end()
        self._skip_blanks()
        return int(digits)

    def _take(self, *signs: str) -> bool:
        """Read the next characters if they are one of the signs."""
        start = self._skip_blanks()
        sign = next((sign for sign in signs if self._text.startswith(sign, start)), "")
        self._at += len(sign)
        return bool(sign)

    def _skip_blanks(self) -> int:
        while self._at < len(self._text) and self._text[self._at] == " ":
            self._at += 1
        return self._at

    def _error(self, reason: str, position: int | None = None) -> ShapeTextError:
        return ShapeTextError(self._text, self._at if position is None else position, reason)
