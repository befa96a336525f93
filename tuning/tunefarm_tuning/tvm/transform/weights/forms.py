"""The forms that weights are stored in, and which arrays fit into them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunefarm_tuning.core.array_file import numpy_dtype
from tunefarm_tuning.workload.precision import Precision

_LARGEST_LOSS = {"float16": 2.0**-11, "bfloat16": 2.0**-8}
"""What rounding takes from a number at most, as a share of it: that of a whole weight is less than half of it."""
_MOST_STEPS = 255
_INT8 = np.iinfo(np.int8)
_LEAST_OF_A_ROW = float(np.finfo(np.float32).tiny) * _MOST_STEPS
"""The largest of a row is at least this, so that no scale is a denormal number."""
_GRID_TOLERANCE = 1e-6
"""Of a value: a batch norm that was merged into the weights rounded them once more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """How a weight is stored.

    Attributes:
        dtype: Of its elements.
        axis: The axis that each place of has a scale; None where elements are numbers as they are.
        rank: Of the weight.
    """

    dtype: str
    axis: int | None = None
    rank: int = 0

    def spread(self, scale: NDArray[Any]) -> NDArray[Any]:
        """Return the scales so that they broadcast over the weight."""
        return scale.reshape([-1 if place == self.axis else 1 for place in range(self.rank)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A weight as it is stored: its elements, then scales where the form has such."""

    form: Form
    arrays: tuple[NDArray[Any], ...]


def store(weight: NDArray[Any], precision: Precision, channels: Collection[int]) -> Stored | None:
    """Return a float32 weight in the form of a precision; None where that cannot hold it.

    Args:
        weight: All of its elements.
        precision: Which form.
        channels: The axes that results lie along: each place of them is judged by itself, as its results are.
    """
    if precision is Precision.FLOAT16_WEIGHTS:
        return _rounded(weight, "float16", channels)
    if precision is Precision.BFLOAT16_WEIGHTS:
        return _rounded(weight, "bfloat16", channels)
    if precision is Precision.INT8_WEIGHTS:
        return _integers(weight)
    return None


def _rounded(weight: NDArray[Any], name: str, channels: Collection[int]) -> Stored | None:
    """Return the weight rounded; None where that loses more than rounding does.

    It does where numbers are beyond the range, and where most of a channel is near its lower end: float16 has fewer bits below
    6e-5, and none below 3e-8.
    """
    dtype = numpy_dtype(name)
    with np.errstate(all="ignore"):
        rounded = weight.astype(dtype)
        back = rounded.astype(np.float32)
    if not np.isfinite(back).all():
        return None
    summed = tuple(axis for axis in range(weight.ndim) if axis not in channels)
    wide = weight.astype(np.float64)
    lost = np.sqrt(np.mean(np.square(back - wide), axis=summed))
    size = np.sqrt(np.mean(np.square(wide), axis=summed))
    if (lost > _LARGEST_LOSS[name] * size).any():
        return None
    return Stored(form=Form(dtype=name), arrays=(rounded,))


def _integers(weight: NDArray[Any]) -> Stored | None:
    """Return a weight that is integers times a scale per place of an axis; None where it is no such.

    That is what is left of a quantised model's weights when all that is done to them was done.
    """
    for axis in reversed(range(weight.ndim)):
        arrays = integers(weight, axis)
        if arrays is not None:
            return Stored(form=Form(dtype="int8", axis=axis, rank=weight.ndim), arrays=arrays)
    return None


def integers(weight: NDArray[Any], axis: int) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """Return a float32 weight as 8-bit integers and a scale for each place of an axis; None where it is no product of such."""
    scale = _scales(np.moveaxis(weight, axis, 0).reshape(weight.shape[axis], -1))
    if scale is None:
        return None
    form = Form(dtype="int8", axis=axis, rank=weight.ndim)
    steps = np.rint(weight / form.spread(np.where(scale == 0, 1, scale)))
    if steps.min() < _INT8.min or steps.max() > _INT8.max:
        return None
    return steps.astype(np.int8), scale


def _scales(rows: NDArray[Any]) -> NDArray[Any] | None:
    """Return the scale of each row that all of its elements are multiples of; None where one has none."""
    largest = np.abs(rows).max(axis=1)
    scale = np.zeros(len(rows), np.float32)
    for row in range(len(rows)):
        if largest[row] == 0:
            continue
        found = _scale(rows[row], float(largest[row]))
        if found is None:
            return None
        scale[row] = found
    return scale


def _scale(row: NDArray[Any], largest: float) -> float | None:
    if not _LEAST_OF_A_ROW <= largest < np.inf:  # nor is a NaN
        return None
    values = np.unique(np.abs(row).astype(np.float64))
    values = values[values > 0]
    if len(values) > _MOST_STEPS:
        return None
    # No scale is larger than the least distance, which mostly is one: trying that alone takes a hundredth of the time.
    steps = round(largest / float(np.diff(values, prepend=0.0).min()))
    if 0 < steps <= _MOST_STEPS:
        found = np.float32(largest / steps)
        quotients = values / float(found)
        if np.all(np.abs(quotients - np.rint(quotients)) <= _GRID_TOLERANCE * quotients):
            return float(found)
    scales = (largest / np.arange(1, _MOST_STEPS + 1)).astype(np.float32)
    quotients = values[:, np.newaxis] / scales.astype(np.float64)
    fits = np.all(np.abs(quotients - np.rint(quotients)) <= _GRID_TOLERANCE * quotients, axis=0)
    return float(scales[int(np.argmax(fits))]) if fits.any() else None
