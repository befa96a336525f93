"""The formats of stored weights, and checks whether an array fits a format."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.ma  # `np.unique` would import it at its first call, while somebody waits
from numpy.typing import NDArray

from tunefarm_tuning.core.array_file import numpy_dtype
from tunefarm_tuning.workload.precision import Precision

_LARGEST_LOSS = {"float16": 2.0**-11, "bfloat16": 2.0**-8}
"""The maximum relative error of rounding a number; over a channel it is less than half of that."""
_MAX_STEPS = 255
_INT8 = np.iinfo(np.int8)
_MIN_ROW_MAXIMUM = float(np.finfo(np.float32).tiny) * _MAX_STEPS
"""The largest magnitude of a row is at least this, so that no scale is a denormal number."""
_GRID_TOLERANCE = 1e-6
"""Relative: a batch norm that was folded into the weights has rounded them once more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightFormat:
    """The format of a stored weight.

    Attributes:
        axis: The axis along which scales vary; None for a format without scales.
    """

    dtype: str
    axis: int | None = None
    rank: int = 0

    def spread(self, scale: NDArray[Any]) -> NDArray[Any]:
        """Return the scales in a shape that broadcasts over the weight."""
        return scale.reshape([-1 if axis == self.axis else 1 for axis in range(self.rank)])


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredWeight:
    """A stored weight: `arrays` are its elements, then the scales if the format has them."""

    format: WeightFormat
    arrays: tuple[NDArray[Any], ...]


def store(weight: NDArray[Any], precision: Precision, channels: Collection[int]) -> StoredWeight | None:
    """Return a float32 weight in the format of a precision; None if the format cannot represent it.

    The error is judged for each channel along the axes `channels`.
    """
    if precision is Precision.FLOAT16_WEIGHTS:
        return _rounded(weight, "float16", channels)
    if precision is Precision.BFLOAT16_WEIGHTS:
        return _rounded(weight, "bfloat16", channels)
    if precision is Precision.INT8_WEIGHTS:
        return _as_scaled_int8(weight)
    return None


def _rounded(weight: NDArray[Any], name: str, channels: Collection[int]) -> StoredWeight | None:
    """Return the weight rounded; None if it loses more than rounding of a normal number does.

    It does for numbers beyond the range, and for a channel that is mostly near the lower end of the range: float16 has fewer
    bits below 6e-5, and none below 3e-8.
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
    return StoredWeight(format=WeightFormat(dtype=name), arrays=(rounded,))


def _as_scaled_int8(weight: NDArray[Any]) -> StoredWeight | None:
    """Return a weight as 8-bit integers times scales along an axis; None if it is not such a product.

    The weights of a quantised model are, after all folding.
    """
    for axis in reversed(range(weight.ndim)):
        arrays = as_int8(weight, axis)
        if arrays is not None:
            return StoredWeight(format=WeightFormat(dtype="int8", axis=axis, rank=weight.ndim), arrays=arrays)
    return None


def as_int8(weight: NDArray[Any], axis: int) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """Return a float32 weight as 8-bit integers and the scales along an axis; None if it is not their product."""
    scaled = as_steps(weight, axis)
    if scaled is None or scaled[0].min() < _INT8.min or scaled[0].max() > _INT8.max:
        return None
    return scaled[0].astype(np.int8), scaled[1]


def as_steps(weight: NDArray[Any], axis: int) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """Return a float32 weight as integers of at most 255 and the scales along an axis; None if it is not their product."""
    scale = _scales(np.moveaxis(weight, axis, 0).reshape(weight.shape[axis], -1))
    if scale is None:
        return None
    weight_format = WeightFormat(dtype="int8", axis=axis, rank=weight.ndim)
    steps = np.rint(weight / weight_format.spread(np.where(scale == 0, 1, scale)))
    return steps.astype(np.int32), scale


def _scales(rows: NDArray[Any]) -> NDArray[Any] | None:
    """Return each row's scale, of which all elements are multiples; None if a row has no such scale."""
    largest = np.abs(rows).max(axis=1)
    scale = np.zeros(len(rows), np.float32)
    for row in range(len(rows)):
        if largest[row] == 0:
            continue
        row_scale = _scale(rows[row], float(largest[row]))
        if row_scale is None:
            return None
        scale[row] = row_scale
    return scale


def _scale(row: NDArray[Any], largest: float) -> float | None:
    if not _MIN_ROW_MAXIMUM <= largest < np.inf:  # false for a NaN as well
        return None
    values = np.unique(np.abs(row).astype(np.float64))
    values = values[values > 0]
    if len(values) > _MAX_STEPS:
        return None
    # The smallest difference bounds the scale and mostly is the scale: trying it first takes a hundredth of the time.
    steps = round(largest / float(np.diff(values, prepend=0.0).min()))
    if 0 < steps <= _MAX_STEPS:
        candidate = np.float32(largest / steps)
        quotients = values / float(candidate)
        if np.all(np.abs(quotients - np.rint(quotients)) <= _GRID_TOLERANCE * quotients):
            return float(candidate)
    scales = (largest / np.arange(1, _MAX_STEPS + 1)).astype(np.float32)
    quotients = values[:, np.newaxis] / scales.astype(np.float64)
    fits = np.all(np.abs(quotients - np.rint(quotients)) <= _GRID_TOLERANCE * quotients, axis=0)
    return float(scales[int(np.argmax(fits))]) if fits.any() else None
