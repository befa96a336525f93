"""Nodes of constants that are left to the run."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from tunefarm_tuning.frontend.onnx.node_folding import fold_node

HUGE = np.array([1 << 50])


@pytest.mark.parametrize(
    ("operator", "values"),
    [
        ("OneHot", [np.zeros(0, np.int64), HUGE, np.array([0, 1])]),
        ("OneHot", [np.array(3), HUGE, np.array([0, 1])]),
        ("TopK", [np.arange(5.0), HUGE]),
        ("ConstantOfShape", [HUGE]),
        ("Tile", [np.arange(5.0), HUGE]),
        ("Expand", [np.array([1, 2]), np.array([1 << 50, 2])]),
        ("Range", [np.array(0), HUGE, np.array(1)]),
    ],
)
def test_a_few_bytes_do_not_ask_for_gigabytes(operator: str, values: list[Any]) -> None:
    inputs = [f"i{number}" for number in range(len(values))]
    assert fold_node(onnx.helper.make_node(operator, inputs, ["y"]), values, 17) is None


def test_unique_values_in_their_own_order_are_left_to_the_run() -> None:
    node = onnx.helper.make_node("Unique", ["x"], ["y"], sorted=0)
    assert fold_node(node, [np.array([3, 1, 3])], 17) is None
