"""Scans whose steps do not depend on each other are computed at once."""

from __future__ import annotations

import numpy as np
import pytest
from flat_networks import flat, operators, parsed

from tunefarm_tuning.frontend.onnx.control_flow.flat_graph import MAX_NODES

X = np.array([[1.0, -2.0, 3.0]], np.float32)

DISTANCES = """
net (float[n, 3] x, float[SIZE, 3] samples) => (float[n, 3] same, float[p, q] distances) {
  same, distances = Scan <num_scan_inputs = 1, body = step (float[m, 3] all, float[3] row) => (float[m, 3] after, float[m] out)
      <int64[1] last = {1}> {
    after = Identity(all)  difference = Sub(all, row)  size = Abs(difference)  BODY
  }> (x, samples)
}"""


@pytest.mark.parametrize(
    ("body", "opset"),
    [
        ("out = ReduceSum <keepdims = 0> (size, last)", 17),
        ("out = ReduceMax <keepdims = 0, axes = [-1]> (size)", 12),
        ("out = ReduceSumSquare <keepdims = 0> (size, last)", 18),
        (
            "kept = ReduceMax (size, last)  share = Div(size, kept)  out = ReduceSum <keepdims = 0> (share, last)",
            18,
        ),
    ],
)
def test_steps_of_a_scan_that_do_not_depend_on_each_other_are_computed_at_once(body: str, opset: int) -> None:
    rng = np.random.default_rng(1)
    feeds = {"x": rng.random((4, 3), np.float32), "samples": rng.random((50, 3), np.float32)}
    graph = DISTANCES.replace("BODY", body).replace("SIZE", "50")
    model = flat(parsed(graph, opset), feeds)
    assert operators(model).count("Sub") == 1


def test_a_scan_without_state_that_reduces_whole_rows_is_computed_at_once() -> None:
    graph = """
    net (float[n, 3] x, float[n, 2, 3] other) => (float[p] y, float[r, s, t] z) {
      y, z = Scan <num_scan_inputs = 2, body = step (float[3] row, float[2, 3] second) => (float out, float[2, 3] product) {
        product = Mul(row, second)  out = ReduceMax <keepdims = 0> (product)
      }> (x, other)
    }"""
    feeds = {
        "x": np.arange(12, dtype=np.float32).reshape(4, 3),
        "other": np.arange(24, dtype=np.float32).reshape(4, 2, 3),
    }
    assert operators(flat(parsed(graph), feeds)).count("Mul") == 1


def test_a_scan_of_more_steps_than_are_unrolled_is_computed_at_once() -> None:
    feeds = {"x": X, "samples": np.ones((MAX_NODES, 3), np.float32)}
    graph = DISTANCES.replace("BODY", "out = ReduceSum <keepdims = 0> (size, last)").replace(
        "SIZE", str(MAX_NODES)
    )
    assert operators(flat(parsed(graph), feeds)).count("Sub") == 1


STEPS = """
net (float[4, 3] x, float[5, 3] samples) => (float[a, b] state, float[p, q, r] y) {
  state, y = Scan <num_scan_inputs = 1 ATTRIBUTES, body = step (float[4, 3] all, float[3] row) => (float[4, 3] after, float[4, 3] out) {
    BODY
  }> (x, samples)
}"""


@pytest.mark.parametrize(
    ("body", "attributes"),
    [
        ("after = Add(all, row)  out = Sub(all, row)", ""),
        ("out = Add(all, row)  after = Identity(out)", ""),
        ("after = Identity(all)  out = Sub(all, row)", ", scan_output_directions = [1]"),
        ("after = Identity(all)  out = Sub(all, row)", ", scan_input_directions = [1]"),
        ("after = Identity(all)  out = Sub(all, row)", ", scan_output_axes = [1]"),
    ],
    ids=["state", "output as state", "backwards out", "backwards in", "axis"],
)
def test_steps_that_depend_on_each_other_and_other_orders_keep_their_values(
    body: str, attributes: str
) -> None:
    rng = np.random.default_rng(2)
    feeds = {"x": rng.random((4, 3), np.float32), "samples": rng.random((5, 3), np.float32)}
    model = flat(parsed(STEPS.replace("BODY", body).replace("ATTRIBUTES", attributes)), feeds)
    if "Add" in body:
        assert operators(model).count("Add") == 5, "one step after the other"
