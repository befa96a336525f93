"""How far floats are from those that were expected, where they are compared."""

from __future__ import annotations

import numpy as np

from tunefarm_tuning.reference.comparison import compare_arrays
from tunefarm_tuning.reference.float_pair import FloatPair
from tunefarm_tuning.reference.widths import Width


def test_only_finite_and_steady_elements_are_compared() -> None:
    expected = np.array([1.0, np.nan, np.inf, 3.0, 4.0], np.float32)
    actual = np.array([1.5, np.nan, -np.inf, 9.0, np.nan], np.float32)
    pair = FloatPair.of(actual, expected, Width(allowed=np.array([0.0, 0.0, 0.0, np.inf, 0.0])))
    assert pair.compared.tolist() == [True, False, False, False, False]
    assert pair.kind_differs.tolist() == [False, False, True, False, True]
    assert pair.error.tolist() == [0.5, 0.0, 0.0, 0.0, 0.0]
    assert pair.comparable == 2
    assert pair.beyond(pair.tolerance(0.0, 0.5)).tolist() == [False, False, True, False, True]
    assert pair.beyond(pair.tolerance(0.4, 0.0)).tolist() == [True, False, True, False, True]


def test_an_element_that_may_be_anything_is_not_named_as_the_worst() -> None:
    expected, actual = np.array([1.0, 2.0, 3.0]), np.array([np.inf, 2.0, 5.0])
    comparison = compare_arrays("y", actual, expected, width=Width(allowed=np.array([np.inf, 0.1, 0.1])))
    assert comparison.message == (
        "1 of 3 elements are outside the tolerance, the worst at [2]: 5, expected 3 give or take 0.1"
    )
