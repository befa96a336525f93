"""Shapes with dimensions that are known only when the network runs."""

from __future__ import annotations

from dataclasses import dataclass


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
