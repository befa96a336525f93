"""Random arrays for checks and timings, the same on every machine for the same seed."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunefarm_tuning.core.array_file import numpy_dtype
from tunefarm_tuning.workload.task import TensorSpec


class InputKind(StrEnum):
    """How floats are drawn. Integers and booleans do not depend on it.

    8-bit integers, which stand for real numbers, have all values: a quantised network would round values near 0 to nothing. Wider
    integers and booleans are 0 or 1, so that an index is in range.
    """

    NORMAL = "normal"
    POSITIVE = "positive"  # uniform in [0.1, 1), so that logarithms and square roots are numbers


def random_inputs(
    specs: Sequence[TensorSpec], *, seed: int, kind: InputKind = InputKind.NORMAL
) -> list[NDArray[Any]]:
    """Return one random array per spec.

    Raises:
        InvalidInputError: If numpy has no such dtype.
    """
    rng = np.random.default_rng(seed)
    return [
        np.asarray(_random_array(spec, rng, kind)) for spec in specs
    ]  # numpy returns scalars for shape ()


def _random_array(spec: TensorSpec, rng: np.random.Generator, kind: InputKind) -> NDArray[Any]:
    dtype = numpy_dtype(spec.dtype)
    if dtype.kind in "iu" and dtype.itemsize == 1:
        ends = np.iinfo(dtype)
        return rng.integers(ends.min, ends.max, size=spec.shape, dtype=dtype, endpoint=True)
    if dtype.kind in "biu":
        return rng.integers(0, 2, size=spec.shape).astype(dtype)
    if kind is InputKind.NORMAL:
        return rng.standard_normal(size=spec.shape, dtype=np.float32).astype(dtype)
    return (0.1 + 0.9 * rng.random(size=spec.shape, dtype=np.float32)).astype(dtype)
