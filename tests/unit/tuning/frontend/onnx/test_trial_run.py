"""Networks that ONNX Runtime loads but cannot run are refused, with the node and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx.parser
import pytest

from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.frontend.onnx import check_child
from tunefarm_tuning.workload.binding import Binding

INDEX = "index-out-of-range"
LIMITS = {"max_nodes": 100, "max_tensor_bytes": 1 << 24}
BROKEN = {
    "Gather": (INDEX, "(float[4, 3] x) => (float[2, 3] y) <int64[2] i = {1, 9}> { y = Gather(x, i) }"),
    "GatherElements": (INDEX, "(float[4, 3] x) => (float[1, 3] y) <int64[1, 3] i = {1, 9, 0}> { y = GatherElements(x, i) }"),
    "GatherND": (INDEX, "(float[4, 3] x) => (float[1, 3] y) <int64[1, 1] i = {9}> { y = GatherND(x, i) }"),
    "ScatterElements": (INDEX, "(float[4, 3] x, float[1, 3] u) => (float[4, 3] y) <int64[1, 3] i = {9, 9, 9}> { y = ScatterElements(x, i, u) }"),
    "ScatterND": (INDEX, "(float[4, 3] x, float[1, 3] u) => (float[4, 3] y) <int64[1, 1] i = {9}> { y = ScatterND(x, i, u) }"),
    "Conv": ("cannot-run", "(float[1, 3, 8, 8] x, float[4, 3, 3, 3] w) => (float[a, b, c, d] y) { y = Conv <kernel_shape = [5, 5]> (x, w) }"),
    "Reshape": ("cannot-run", "(float[3] x) => (float[a] y) <int64[1] s = {7}> { y = Reshape(x, s) }"),
    "Tile": ("cannot-run", "(float[3] x) => (float[a] y) <int64[1] s = {-7}> { y = Tile(x, s) }"),
    "Concat": ("invalid-onnx", "(float[4, 3] x) => (float[4, 6] y) { y = Concat <axis = 5> (x, x) }"),
    "ConstantOfShape": ("invalid-onnx", "(float[3] x) => (float[a, b] y) <int64[2] s = {-1, 3}> { c = ConstantOfShape(s)  y = Add(c, x) }"),
}  # fmt: skip


def check(graph: str, folder: Path, **binding: Any) -> None:
    path = folder / "net"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]>\nnet {graph}')
    path.write_bytes(model.SerializeToString())
    bound = Binding.of(binding)
    check_child.inspect_file(str(path), bound, **LIMITS)
    check_child.run_in_onnx_runtime({"path": str(path), "binding": bound.to_json()})


@pytest.mark.parametrize("operator", sorted(BROKEN))
def test_what_cannot_run_is_refused(operator: str, tmp_path: Path) -> None:
    code, graph = BROKEN[operator]
    with pytest.raises(InvalidModelError) as caught:
        check(graph, tmp_path)
    error = caught.value
    assert error.code == code, error.message
    assert operator in error.message
    assert "onnxruntime" not in error.message
    if code != "invalid-onnx":
        found_early = {"index": 9, "extent": 4} if code == INDEX else {}
        assert error.fields == {"operator": operator, "node": "y", **found_early}
        assert f"node 'y' ({operator})" in error.message


def test_an_input_that_decides_sizes_is_named(tmp_path: Path) -> None:
    graph = """(float[3] x, float[1] ratio) => (float[a] y) <float[1] ten = {-10000}> {
      sizes = Mul(ratio, ten)  whole = Cast <to = 7> (sizes)  square = Mul(whole, whole)  below = Neg(square)  y = Expand(x, below)
    }"""
    with pytest.raises(
        InvalidModelError, match=r"depend on 'ratio', bind it: --value ratio=\.\.\.$"
    ) as caught:
        check(graph, tmp_path)
    assert caught.value.code == "cannot-run"


def test_an_input_of_which_the_shape_alone_decides_is_not_named(tmp_path: Path) -> None:
    graph = "(float[1, 8] x, float[3, 4] a) => (float[m, n] y) { s = Shape(x)  y = Reshape(a, s) }"
    with pytest.raises(InvalidModelError) as caught:
        check(graph, tmp_path)
    assert "--value" not in caught.value.message


def test_an_overflowing_constant_is_refused(tmp_path: Path) -> None:
    graph = """(float[3] x) => (float y) <int64[2] s = {4294967296, 4294967296}> {
      c = ConstantOfShape(s)  sum = ReduceSum <keepdims = 0> (c)  top = ReduceMax <keepdims = 0> (x)  y = Add(sum, top)
    }"""
    with pytest.raises((InvalidModelError, MemoryError)) as caught:
        check(graph, tmp_path)
    if isinstance(caught.value, InvalidModelError):
        assert "ConstantOfShape" in caught.value.message


def test_an_input_of_thousands_of_dimensions_is_refused(tmp_path: Path) -> None:
    dims = ", ".join(["1"] * 5000)
    with pytest.raises(InvalidModelError, match="has 5000 dimensions; the limit is 32") as caught:
        check(f"(float[{dims}] x) => (float[{dims}] y) {{ y = Relu(x) }}", tmp_path)
    assert caught.value.code == "too-large"


def test_sizes_that_do_not_fit_each_other_are_refused(tmp_path: Path) -> None:
    graph = "(float[n, 3] x, float[m, 3] z) => (float[n, 3] y) { y = Add(x, z) }"
    check(graph, tmp_path, x=[2, 3], z=[1, 3])
    with pytest.raises(InvalidModelError, match="bind other sizes with --shape"):
        check(graph, tmp_path, x=[2, 3], z=[5, 3])


def test_indices_of_the_caller_s_own_are_tried_as_zeros(tmp_path: Path) -> None:
    check(
        "(int64[5] i) => (float[5, 3] y) <float[1, 3] table = {1, 2, 3}> { y = Gather(table, i) }", tmp_path
    )


def test_a_network_that_only_real_samples_may_run_is_let_through(tmp_path: Path) -> None:
    graph = """(int64[5] i) => (float[5, 3] y) <float[2, 3] table = {1, 2, 3, 4, 5, 6}, int64 far = {-40}> {
      k = Add(i, far)  y = Gather(table, k)
    }"""
    check(graph, tmp_path)


def test_a_size_in_the_file_that_contradicts_the_shape_of_token_ids_is_refused(tmp_path: Path) -> None:
    graph = """(int64[b, t] i) => (float[m, n, k] y) <float[2, 2] table = {1, 2, 3, 4}, int64[1] one = {1}, int64[1] traced = {17}, int64[1] rest = {-1}> {
      e = Gather(table, i)  s = Shape(e)  zero = Constant <value_ints = [0]> ()  batch = Gather(s, zero)
      shape = Concat <axis = 0> (batch, traced, rest)  y = Reshape(e, shape)
    }"""
    check(graph, tmp_path, i=[2, 17])
    with pytest.raises(InvalidModelError, match="node 'y' \\(Reshape\\)") as caught:
        check(graph, tmp_path, i=[2, 12])
    assert caught.value.code == "cannot-run"


@pytest.mark.parametrize(
    "sizes",
    [
        "k = NonZero(i)  s = Shape(k)",
        "k = ConstantOfShape(i)  s = Shape(k)",
        "two = Constant <value_ints = [0, 1]> ()  d = ReduceMax <keepdims = 0> (i)  k = OneHot(i, d, two)  s = Shape(k)",
    ],
    ids=["sized by a result", "sized by an input", "sized by an operand"],
)
def test_a_shape_that_values_decide_is_left_to_real_samples(sizes: str, tmp_path: Path) -> None:
    graph = f"""(float[6] x, int64[2] i) => (float[a, b] y) {{ {sizes}  y = Reshape(x, s) }}"""
    check(graph, tmp_path)
