"""Which weights fit into the formats that store them."""

from __future__ import annotations

import numpy as np
import pytest

from tunefarm_tuning.tvm.transform.weights.formats import store
from tunefarm_tuning.workload.precision import Precision

ROUNDED = (Precision.FLOAT16_WEIGHTS, Precision.BFLOAT16_WEIGHTS)


@pytest.mark.parametrize("precision", ROUNDED)
def test_weights_are_rounded(precision: Precision) -> None:
    weight = np.random.default_rng(1).standard_normal((64, 32)).astype(np.float32)
    for channels in ((), (1,), (0, 1)):
        stored = store(weight, precision, channels)
        assert stored is not None
        (array,) = stored.arrays
        assert str(array.dtype) == stored.format.dtype == precision.rounding


def test_one_channel_that_loses_too_much_keeps_them_all() -> None:
    weight = np.random.default_rng(2).standard_normal((64, 32)).astype(np.float32)
    weight[:, 5] *= 1e-6
    assert store(weight, Precision.FLOAT16_WEIGHTS, (1,)) is None
    assert store(weight, Precision.FLOAT16_WEIGHTS, (0,)) is not None, "a row has strong weights beside it"
    assert store(weight, Precision.BFLOAT16_WEIGHTS, (1,)) is not None, "the range of float32"
    weight[:, 5] = 0
    assert store(weight, Precision.FLOAT16_WEIGHTS, (1,)) is not None, "nothing is lost of nothing"


@pytest.mark.parametrize(
    ("size", "fits"), [(1e-3, True), (6e-5, True), (2e-5, False), (1e-9, False), (1e6, False)]
)
def test_where_the_range_of_float16_ends(size: float, fits: bool) -> None:
    weight = (np.random.default_rng(3).standard_normal((256, 16)) * size).astype(np.float32)
    assert (store(weight, Precision.FLOAT16_WEIGHTS, (1,)) is not None) is fits


@pytest.mark.parametrize("value", [1e-45, 1e-40, np.inf, -np.inf, np.nan])
def test_weights_with_numbers_out_of_the_ordinary_are_no_integers(value: float) -> None:
    weight = np.random.default_rng(4).integers(-127, 128, (64, 8)).astype(np.float32)
    weight[0, 0] = value
    assert store(weight, Precision.INT8_WEIGHTS, (1,)) is None
    weight[1:] = 0
    assert store(weight, Precision.INT8_WEIGHTS, (1,)) is None, "nothing else in its column"


def test_other_weights_are_no_integers_times_a_scale() -> None:
    rng = np.random.default_rng(2)
    assert store(rng.standard_normal((128, 128)).astype(np.float32), Precision.INT8_WEIGHTS, (1,)) is None
    wide = rng.integers(-255, 256, (512, 64)) * rng.uniform(0.1, 1.0, 64)
    assert store(wide.astype(np.float32), Precision.INT8_WEIGHTS, (1,)) is None, "more than 8 bits"
    nothing = store(np.zeros((128, 64), np.float32), Precision.INT8_WEIGHTS, (1,))
    assert nothing is not None
    assert not any(array.any() for array in nothing.arrays)
