"""Shapes with dimensions that are known only when the network runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenDimension:
    """A dimension of any size that is a multiple of a number.

    Attributes:
        name: Dimensions of one name are equal.
        multiple: The number; 1 for any size. Detectors often need sizes that halve five times: multiples of 32.
    """

    name: str
    multiple: int = 1


OpenShape = tuple[int | OpenDimension, ...]
"""A shape of which some dimensions are open."""


def open_dimensions(shapes: tuple[OpenShape, ...]) -> tuple[OpenDimension, ...]:
    """Return the open dimensions of some shapes, each once, in order of first use."""
    named = {size.name: size for shape in shapes for size in shape if isinstance(size, OpenDimension)}
    return tuple(named.values())


def with_dimensions(
    shapes: Sequence[OpenShape], change: Callable[[OpenDimension], OpenDimension | int]
) -> tuple[OpenShape, ...]:
    """Return shapes with each open dimension changed."""
    return tuple(
        tuple(change(size) if isinstance(size, OpenDimension) else size for size in shape) for shape in shapes
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenShapes:
    """The shapes that a network can be compiled for at once.

    Attributes:
        shapes: Of the inputs, in order.
        minima: The smallest sizes of dimensions that have one, by name.
        maxima: The largest.
        conditions: What else the sizes have to be, each ``{"kind", "size", "of", "node"}``: ``size``, an expression of sizes, is a
            ``"multiple"`` of, at ``"least"`` or ``"equal"`` to ``of``, as a node of the file needs. An expression is an int, a
            dimension's name, or a list of an operation (``+ - * // % min max``) and two expressions.
        usual: Conditions that sizes meet as a rule; other sizes are taken all the same, but are not compared.
    """

    shapes: tuple[OpenShape, ...]
    minima: Mapping[str, int]
    maxima: Mapping[str, int]
    conditions: tuple[Mapping[str, Any], ...] = ()
    usual: tuple[Mapping[str, Any], ...] = ()

    @property
    def dimensions(self) -> tuple[OpenDimension, ...]:
        """The open dimensions, each once, in order of first use."""
        return open_dimensions(self.shapes)

    def bound(self, sizes: Mapping[str, int]) -> list[tuple[int, ...]]:
        """Return the shapes with sizes for the dimensions, by name."""
        return [
            tuple(sizes[size.name] if isinstance(size, OpenDimension) else size for size in shape)
            for shape in self.shapes
        ]

    def sizes_of(self, shapes: Sequence[Sequence[int]]) -> dict[str, int]:
        """Return the sizes of the dimensions in some shapes."""
        return {
            dimension.name: size
            for shape, sizes in zip(self.shapes, shapes, strict=True)
            for dimension, size in zip(shape, sizes, strict=True)
            if isinstance(dimension, OpenDimension)
        }

    def fitting(self, name: str, size: int) -> int:
        """Return the size of a dimension that is nearest to a number, below it if it can be."""
        dimension = next(dimension for dimension in self.dimensions if dimension.name == name)
        multiple = dimension.multiple
        least = -(-self.minima.get(name, multiple) // multiple) * multiple
        most = self.maxima.get(name, max(size, least)) // multiple * multiple
        return max(least, min(size // multiple * multiple, most))

    def to_json(self) -> dict[str, Any]:
        """Return plain values; an open dimension is its name and multiple."""
        return {
            "shapes": [
                [
                    {"name": size.name, "multiple": size.multiple}
                    if isinstance(size, OpenDimension)
                    else size
                    for size in shape
                ]
                for shape in self.shapes
            ],
            "minima": dict(self.minima),
            "maxima": dict(self.maxima),
            "conditions": [dict(condition) for condition in self.conditions],
            "usual": [dict(condition) for condition in self.usual],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote."""
        return cls(
            shapes=tuple(
                tuple(size if isinstance(size, int) else OpenDimension(**size) for size in shape)
                for shape in data["shapes"]
            ),
            minima=data["minima"],
            maxima=data["maxima"],
            conditions=tuple(data["conditions"]),
            usual=tuple(data["usual"]),
        )
