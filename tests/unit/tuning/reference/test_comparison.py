"""Comparing outputs within tolerances."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy
from numpy.typing import NDArray

from tunefarm_tuning.reference.comparison import TIES, Comparison, compare_arrays, compare_outputs

NAN, INF = np.nan, np.inf


def f32(*values: float) -> NDArray[Any]:
    return np.array(values, dtype=np.float32)


@given(
    st_numpy.arrays(
        st.sampled_from([np.float32, np.float64, np.float16, np.int8, np.int64, np.uint8, np.bool_]),
        st_numpy.array_shapes(min_dims=0, min_side=0),
    )
)
def test_an_array_equals_itself(array: NDArray[Any]) -> None:
    comparison = compare_arrays("y", array, array.copy())
    assert comparison.ok, comparison
    assert comparison.mismatches == 0
    assert comparison.elements == array.size
    assert Comparison.from_json(comparison.to_json()) == comparison


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        (f32(1.0, 2.0), f32(1.0005, 2.0)),
        (f32(100.0, 0.001), f32(100.0, 0.0)),  # rounding of what adds up to a hundred
        (f32(NAN, INF, -INF), f32(NAN, INF, -INF)),
        (np.array([1, 255], np.uint8), np.array([2, 255], np.uint8)),
        (np.arange(2000), np.where(np.arange(2000) == 7, 8, np.arange(2000))),
        (f32(), f32()),
    ],
)
def test_rounding_is_forgiven(actual: NDArray[Any], expected: NDArray[Any]) -> None:
    comparison = compare_arrays("y", actual, expected)
    assert comparison.ok, comparison


@pytest.mark.parametrize(
    ("actual", "expected", "message"),
    [
        (f32(1.0, 2.0), f32(1.0, 2.1), "1 of 2 elements are outside"),
        (f32(1.0, NAN), f32(1.0, 2.0), "worst at [1]: nan, expected 2"),
        (f32(1.0, 2.0), f32(1.0, NAN), "expected nan"),
        (f32(INF), f32(-INF), "inf, expected -inf"),
        (f32(NAN), f32(INF), "nan, expected inf"),
        (f32(1.0), f32(1.0, 2.0), "float32 [1], expected float32 [2]"),
        (np.float64([1.0]), f32(1.0), "it is float64 [1]"),
        (np.array([1, 2]), np.array([1, 3]), "1 of 2 elements differ"),
        (np.array([2**60]), np.array([2**60 + 1]), "1 of 1"),
        (np.array([True]), np.array([False]), "1 of 1"),
        (np.array([3], np.int8), np.array([5], np.int8), "by up to 2"),
    ],
)
def test_the_rest_is_not(actual: NDArray[Any], expected: NDArray[Any], message: str) -> None:
    comparison = compare_arrays("y", actual, expected)
    assert not comparison.ok
    assert message in comparison.message


def test_a_large_column_does_not_hide_a_wrong_small_one() -> None:
    expected = np.tile(f32(300.0, 0.5), (100, 1))
    actual = expected.copy()
    actual[:, 1] += 0.2
    assert not compare_arrays("boxes", actual, expected).ok


def test_the_number_of_outputs_counts() -> None:
    assert not compare_outputs(["a"], [f32(1.0)], [f32(1.0), f32(2.0)])[0].ok
    assert [c.name for c in compare_outputs(["a", "b"], [f32(1), f32(2)], [f32(1), f32(2)])] == ["a", "b"]


def test_nothing_finite_is_told() -> None:
    assert compare_arrays("y", f32(NAN, NAN), f32(NAN, NAN)).comparable == 0


def test_of_a_kernel_that_rounds_a_moved_step_is_forgiven_and_nothing_else() -> None:
    step = 1.0 / 64
    right = (np.round(np.random.default_rng(0).normal(size=4000) * 64) * step).astype(np.float32)
    moved, bent, often = right.copy(), right * np.float32(1.02), right.copy()
    moved[17] += step
    often[:40] += step
    far = right.copy()
    far[17] += 40 * step
    assert compare_arrays("y", moved, right, rounding=TIES).ok
    assert not compare_arrays("y", moved[:100], right[:100], rounding=TIES).ok, (
        "of a hundred, one is too many"
    )
    for wrong in (moved, bent, often, far):
        assert not compare_arrays("y", wrong, right).ok
    for wrong in (bent, often, far):
        assert not compare_arrays("y", wrong, right, rounding=TIES).ok


@pytest.mark.parametrize("expected", [np.zeros(2000, np.float32), np.full(2000, 1e-8, np.float32)])
def test_a_kernel_that_rounds_is_forgiven_what_any_other_is(expected: NDArray[Any]) -> None:
    actual = expected.copy()
    actual[5] += np.float32(5e-9)
    assert compare_arrays("y", actual, expected).ok
    assert compare_arrays("y", actual, expected, rounding=TIES).ok
