"""Comparisons that TVM takes for others: with the smallest integer, and of booleans that a kernel computes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx_models import GraphBuilder
from onnx_reference import built_outputs

from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.tvm.transform.pipeline import load_relax
from tunefarm_tuning.workload.binding import Binding

COMPARISONS = {
    "Equal": np.equal,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
}


@pytest.mark.matrix(every=3, each_value=False)
@pytest.mark.parametrize("constant_shape", [(), (1,)], ids=["scalar", "vector"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3)], ids=str)
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_the_smallest_number_equals_itself(
    dtype: str, shape: tuple[int, ...], constant_shape: tuple[int, ...], tmp_path: Path
) -> None:
    smallest = np.iinfo(dtype).min
    x = np.resize(np.array([smallest, 0, smallest + 1], dtype), shape)
    limit = np.full(constant_shape, smallest, dtype)
    g = GraphBuilder()
    given = g.input("x", list(shape), helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
    expected = []
    for operator, compare in COMPARISONS.items():
        for operands, values in (
            ((given, g.constant(limit)), (x, limit)),
            ((g.constant(limit), given), (limit, x)),
        ):
            result = g.node(operator, *operands)
            for output in (result, g.node("Not", result)):
                g.output(output, dtype=onnx.TensorProto.BOOL)
            expected += [compare(*values), ~np.asarray(compare(*values))]
    path = tmp_path / "model"
    path.write_bytes(g.model().SerializeToString())
    outputs = built_outputs(load_relax(path, Binding(), parse_target("host")), [x], tmp_path)
    for ours, theirs in zip(outputs, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("right", ["computed", "input", "scalar"])
def test_booleans_that_a_kernel_computes_are_compared(right: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x, flags = rng.integers(-3, 3, (2, 40), "int64"), rng.integers(0, 2, (2, 40)).astype(bool)
    g = GraphBuilder()
    given = g.input("x", [2, 40], onnx.TensorProto.INT64)
    other = g.input("flags", [2, 40], onnx.TensorProto.BOOL)
    is_negative = g.node("Less", given, g.constant(np.array(0, "int64")))
    operand, value = {
        "computed": (g.node("Greater", given, g.constant(np.array(-2, "int64"))), x > -2),
        "input": (other, flags),
        "scalar": (g.constant(np.array(True)), np.array(True)),
    }[right]
    g.output(g.node("Equal", is_negative, operand), dtype=onnx.TensorProto.BOOL)
    g.output(g.node("And", g.node("Equal", operand, is_negative), other), dtype=onnx.TensorProto.BOOL)
    path = tmp_path / "model"
    path.write_bytes(g.model().SerializeToString())
    outputs = built_outputs(load_relax(path, Binding(), parse_target("host")), [x, flags], tmp_path)
    for ours, theirs in zip(outputs, [(x < 0) == value, ((x < 0) == value) & flags], strict=True):
        np.testing.assert_array_equal(ours, theirs)
