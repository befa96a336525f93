"""The shapes that a user gives for a network's inputs, and their combinations, each a specialisation of the artifact."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, TypeAlias

from tunefarm_text.shape_text import (
    MAX_SIZE,
    MAX_SPECIALISATIONS,
    Dimension,
    ShapeChoices,
    ShapeTextError,
    read_shape,
    split_name,
)
from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.core.untrusted_text import clean

GivenShape: TypeAlias = Sequence[int | str] | str
"""A shape as callers give it: sizes; sizes of which some are text (``"160|320"``); or the text of `tunefarm_text.shape_text`."""

StoredShape: TypeAlias = "list[int] | str"
"""A shape as it is stored and sent: a list of sizes if there is one shape, else the canonical text."""

_RANGE = "range of batch sizes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Combination:
    """One shape of every input that was given shapes.

    Attributes:
        shapes: By input name.
        weight: How often the user runs it, relative to the other combinations.
    """

    shapes: Mapping[str, tuple[int, ...]]
    weight: int


def shape_choices(shape: GivenShape, *, name: str) -> ShapeChoices:
    """Read a shape given for the input `name`.

    Raises:
        InvalidInputError: ``bad-shape``, or ``too-many-shapes`` if one dimension alone has too many sizes.
    """
    text = shape if isinstance(shape, str) else ",".join(_size_text(size, name) for size in shape)
    try:
        choices = read_shape(text)
    except ShapeTextError as error:
        raise InvalidInputError(
            f"the shape of input '{clean(name, 60)}' cannot be read: {clean(str(error), 300)}",
            code="bad-shape",
            input=clean(name),
            position=error.position,
        ) from error
    for dimension in choices.dimensions:
        if len(dimension.sizes) > MAX_SPECIALISATIONS:
            raise _too_many(len(dimension.sizes))
    return choices


def open_texts(shapes: Mapping[str, GivenShape]) -> dict[str, str]:
    """Return the texts of all shapes if one of them has several sizes or a range; nothing if each is one shape.

    Raises:
        InvalidInputError: ``bad-shape`` or ``too-many-shapes``.
    """
    if not any(
        isinstance(shape, str) or any(isinstance(size, str) for size in shape) for shape in shapes.values()
    ):
        return {}
    choices = {str(name): shape_choices(shape, name=str(name)) for name, shape in shapes.items()}
    if all(choice.fixed is not None for choice in choices.values()):
        return {}
    return {name: str(choice) for name, choice in choices.items()}


def fixed_shapes(shapes: Mapping[str, GivenShape]) -> dict[str, Sequence[Any]]:
    """Return shapes of which none has several sizes: texts are read, sequences stay as they are.

    Raises:
        InvalidInputError: ``bad-shape``.
    """
    return {
        name: shape_choices(shape, name=str(name)).fixed or ()
        if isinstance(shape, str) or any(isinstance(size, str) for size in shape)
        else shape
        for name, shape in shapes.items()
    }


def read_shape_lines(lines: Iterable[str]) -> dict[str, StoredShape]:
    """Read texts like ``name=1,3,160|320``; return the shapes as they are stored.

    Raises:
        InvalidInputError: ``bad-shape`` or ``too-many-shapes``.
    """
    shapes: dict[str, StoredShape] = {}
    for line in lines:
        try:
            name, text = split_name(line)
        except ShapeTextError as error:
            raise InvalidInputError(
                f"the shape {clean(line, 80)!r} cannot be read: {error.reason}", code="bad-shape"
            ) from error
        if name in shapes:
            raise InvalidInputError(
                f"input {clean(name)!r} has two shapes", code="bad-shape", input=clean(name)
            )
        shapes[name] = stored_shape(text, name=name)
    return shapes


def stored_shape(shape: GivenShape, *, name: str) -> StoredShape:
    """Return a shape as it is stored: equal shapes are stored equally.

    Raises:
        InvalidInputError: ``bad-shape`` or ``too-many-shapes``.
    """
    choices = shape_choices(shape, name=name)
    return str(choices) if choices.fixed is None else list(choices.fixed)


def combinations(
    choices: Mapping[str, ShapeChoices], symbols: Mapping[str, Sequence[str]]
) -> tuple[Combination, ...]:
    """Return the combinations of the sizes; the first is the one that matters most.

    Dimensions that the network's file gives one name vary together, and so do all ranges of batch sizes. Of dimensions without a
    name, those at the same place of several inputs vary together if their sizes are the same.

    Args:
        choices: By input name.
        symbols: The file's names of each input's dimensions; empty where it gives none.

    Raises:
        InvalidInputError: ``bad-shape`` if dimensions of one name have different sizes; ``too-many-shapes``.
    """
    keys = {
        name: [
            _key(dimension, axis, _symbol(symbols.get(name, ()), axis))
            for axis, dimension in enumerate(shape.dimensions)
        ]
        for name, shape in choices.items()
    }
    together: dict[tuple[Any, ...], Dimension] = {}
    first_inputs: dict[tuple[Any, ...], str] = {}
    for name, shape in choices.items():
        for axis, (dimension, key) in enumerate(zip(shape.dimensions, keys[name], strict=True)):
            if key is None:
                continue
            first = first_inputs.setdefault(key, name)
            if together.setdefault(key, dimension) != dimension:
                symbol = _symbol(symbols.get(name, ()), axis)
                raise _differing(symbol, (first, together[key]), (name, dimension))
    for name, shape in choices.items():
        for axis, key in enumerate(keys[name]):
            symbol = _symbol(symbols.get(name, ()), axis)
            if key is None and symbol and (other := ("name", symbol)) in together:
                raise _differing(
                    symbol, (first_inputs[other], together[other]), (name, shape.dimensions[axis])
                )
    count = math.prod(len(dimension.sizes) for dimension in together.values())
    if count > MAX_SPECIALISATIONS:
        raise _too_many(count)
    listed: list[Combination] = []
    varying = list(together.items())
    for picks in product(*(range(len(dimension.sizes)) for _, dimension in varying)):
        sizes = {key: dimension.sizes[pick] for (key, dimension), pick in zip(varying, picks, strict=True)}
        listed.append(
            Combination(
                shapes={
                    name: tuple(
                        dimension.sizes[0] if key is None else sizes[key]
                        for dimension, key in zip(shape.dimensions, keys[name], strict=True)
                    )
                    for name, shape in choices.items()
                },
                weight=math.prod(
                    dimension.weights[pick] for (_, dimension), pick in zip(varying, picks, strict=True)
                ),
            )
        )
    main = max(listed, key=_importance)
    return (main, *(combination for combination in listed if combination is not main))


def least_batch(choices: Iterable[ShapeChoices]) -> int:
    """Return the smallest batch size that the caller runs: the lower end of a range, else 1."""
    ranges = [dim.least for shape in choices for dim in shape.dimensions if dim.least is not None]
    return ranges[0] if ranges else 1


def _importance(combination: Combination) -> tuple[int, int]:
    """Return what orders combinations: the share of all elements that the user runs through it, roughly the share of the time."""
    elements = sum(math.prod(shape) for shape in combination.shapes.values())
    return combination.weight * elements, elements


def _key(dimension: Dimension, axis: int, symbol: str) -> tuple[Any, ...] | None:
    """Return what dimensions that vary together have in common; None for a dimension of one size."""
    if not dimension.is_open:
        return None
    if symbol:
        return ("name", symbol)
    if dimension.least is not None:
        return (_RANGE,)
    return (axis, dimension.sizes, dimension.weights)


def _symbol(names: Sequence[str], axis: int) -> str:
    return names[axis] if axis < len(names) else ""


def _differing(symbol: str, first: tuple[str, Dimension], second: tuple[str, Dimension]) -> InvalidInputError:
    label = f"dimension '{clean(symbol, 60)}'" if symbol else f"the {_RANGE}"
    texts = [
        f"{clean(str(ShapeChoices(dimensions=(dimension,))), 100)} in input '{clean(name, 60)}'"
        for name, dimension in (first, second)
    ]
    return InvalidInputError(
        f"{label} is {texts[0]}, but {texts[1]}; it must be the same in both",
        code="bad-shape",
        input=clean(second[0]),
    )


def _size_text(size: Any, name: str) -> str:
    if isinstance(size, str):
        return size
    if hasattr(size, "__index__") and not isinstance(size, bool):
        number = int(size.__index__())
        if 0 < number <= MAX_SIZE:
            return str(number)
    raise InvalidInputError(
        f"the shape of input {clean(name)!r} must be positive whole numbers, like 1,3,224,224",
        code="bad-shape",
        input=clean(name),
    )


def _too_many(count: int) -> InvalidInputError:
    return InvalidInputError(
        f"the shapes make {count} combinations; one artifact has at most {MAX_SPECIALISATIONS}: give fewer sizes, or make "
        "several artifacts",
        code="too-many-shapes",
        count=count,
        limit=MAX_SPECIALISATIONS,
    )
