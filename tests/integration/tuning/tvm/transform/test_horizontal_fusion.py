"""Horizontal fusion of parallel products and convolutions keeps the results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_models
import pytest
from numpy.typing import NDArray
from onnx import TensorProto
from onnx_models import GraphBuilder
from onnx_reference import built_outputs, reference_outputs

from tunefarm_tuning.reference.random_inputs import random_inputs
from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.tvm.tasks.extract import primfunc_workloads
from tunefarm_tuning.tvm.transform.horizontal_fusion.selection import Selection, select_faster, select_none
from tunefarm_tuning.tvm.transform.pipeline import RelaxNetwork, load_relax
from tunefarm_tuning.workload.binding import Binding

HOST = parse_target("host")
COMBINED = {"encoder_block"}
"""Those of the ordinary networks that have something to combine: the projections of an attention."""


def always(_block: Any, roots: Sequence[Any]) -> list[Any]:
    return list(roots)


def load(model: onnx.ModelProto, folder: Path, select: Selection = select_faster) -> RelaxNetwork:
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return load_relax(path, Binding(), HOST, select=select)


def names(loaded: RelaxNetwork) -> list[str]:
    return [kernel.name for kernel in primfunc_workloads(loaded.module)]


def keys(loaded: RelaxNetwork) -> list[tuple[str, str, int]]:
    return [(kernel.name, kernel.workload_key, kernel.weight) for kernel in primfunc_workloads(loaded.module)]


def calls(loaded: RelaxNetwork, word: str) -> int:
    return sum(kernel.weight for kernel in primfunc_workloads(loaded.module) if word in kernel.name)


def run(loaded: RelaxNetwork, folder: Path) -> list[NDArray[Any]]:
    return built_outputs(loaded, random_inputs(loaded.inputs, seed=1), folder)


def check(model: onnx.ModelProto, folder: Path, select: Selection = select_faster) -> RelaxNetwork:
    loaded = load(model, folder, select)
    expected = reference_outputs(folder / "model.onnx", loaded, random_inputs(loaded.inputs, seed=1))
    for ours, theirs in zip(run(loaded, folder), expected, strict=True):
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    return loaded


def heads(g: GraphBuilder, x: str, shape: Sequence[int], order: Sequence[int] = (0, 2, 1, 3)) -> str:
    head: str = g.node("Transpose", g.node("Reshape", x, g.ints(*shape)), perm=list(order))
    return head


def attention(
    widths: Sequence[int] = (32, 32, 32),
    biases: Sequence[bool] = (True, True, True),
    batch: int = 1,
    *,
    scaled: bool = False,
) -> onnx.ModelProto:
    """Projections of 6 rows of 16, cut into heads of 8."""
    g = GraphBuilder()
    x = g.node("Tanh", g.input("x", [batch, 6, 16]))
    for number, (width, biased) in enumerate(zip(widths, biases, strict=True)):
        y = g.node("MatMul", x, g.weight(16, width))
        if biased:
            y = g.node("Add", g.weight(width), y)
        if scaled and number == 0:
            y = g.node("Mul", y, g.constant(np.array(0.125, np.float32)))
        g.output(heads(g, y, [batch, 6, width // 8, 8], [0, 2, 3, 1] if number == 1 else [0, 2, 1, 3]))
    return g.model()


@pytest.mark.matrix(every=3, each_value=False)
@pytest.mark.parametrize(
    "model",
    [
        attention(),
        attention(batch=3),
        attention(widths=(64, 16, 16)),
        attention(biases=(False, False, False)),
        attention(biases=(True, False, True)),
        attention(biases=(False, True, False)),
        attention(scaled=True),
    ],
    ids=["plain", "batch", "grouped queries", "no bias", "one without bias", "one bias", "scaled queries"],
)
def test_the_projections_of_an_attention_are_one_product(model: onnx.ModelProto, tmp_path: Path) -> None:
    loaded = check(model, tmp_path)
    assert calls(loaded, "matmul") == 1
    assert calls(loaded, "slice") == 3
    assert len(names(loaded)) == 5, names(loaded)  # no kernel but those that were there


def test_gemms_of_reshaped_copies_are_one_product(tmp_path: Path) -> None:
    """As some exporters write a dense layer of three dimensions; weights transposed."""
    g = GraphBuilder()
    x = g.input("x", [2, 3, 16])
    for _ in range(3):
        flat = g.node("Reshape", x, g.ints(6, 16))
        y = g.node("Gemm", flat, g.weight(32, 16), g.weight(32), transB=1)
        g.output(heads(g, y, [2, 3, 4, 8]))
    assert calls(check(g.model(), tmp_path), "matmul") == 1


def branches(readers: str, *, widths: Sequence[int] = (16, 16), kernel: int = 1, act: str = "Relu") -> Any:
    g = GraphBuilder()
    x = g.input("x", [2, 8, 6, 6])
    outputs = []
    for width in widths:
        y = g.conv(x, 8, width, kernel=kernel)
        if act == "SiLU":
            y = g.node("Mul", y, g.node("Sigmoid", y))
        elif act:
            y = g.node(act, y)
        outputs.append(y)
    for y, width in zip(outputs, widths, strict=True):
        if readers == "concat":
            g.output(g.node("Concat", y, x, axis=1))
        elif readers == "conv":
            g.output(g.conv(y, width, 8))
        else:
            g.output(y)
    return g.model()


@pytest.mark.matrix(every=2, each_value=False)
@pytest.mark.parametrize("act", ["Relu", "SiLU", ""])
@pytest.mark.parametrize("kernel", [1, 3])
def test_convolutions_that_go_to_concatenations_are_one(kernel: int, act: str, tmp_path: Path) -> None:
    loaded = check(branches("concat", kernel=kernel, act=act), tmp_path)
    assert calls(loaded, "conv2d") == 1
    assert not any(name.startswith(("strided_slice", "relu")) for name in names(loaded)), names(loaded)


@pytest.mark.parametrize("width", [36, 24])
def test_widths_that_split_better_together_are_cut_apart_afterwards(width: int, tmp_path: Path) -> None:
    """If the sums are long, a copy of their results is little."""
    g = GraphBuilder()
    x = g.input("x", [2, 32, 6, 6])
    for _ in range(2):
        g.output(g.node("Relu", g.conv(x, 32, width)))
    assert calls(check(g.model(), tmp_path), "conv2d") == 1


def test_large_products_stay_apart(tmp_path: Path) -> None:
    g = GraphBuilder()
    x = g.input("x", [1, 128, 256])
    for _ in range(3):
        g.output(heads(g, g.linear(x, 256, 256), [1, 128, 4, 64]))
    assert keys(load(g.model(), tmp_path)) == keys(load(g.model(), tmp_path, select_none))


def test_convolutions_over_one_axis_are_combined(tmp_path: Path) -> None:
    g = GraphBuilder()
    x = g.node("Relu", g.node("Conv", g.input("x", [2, 32, 20]), g.weight(32, 32, 3)))
    for _ in range(2):
        y = g.node("Conv", x, g.weight(24, 32, 9), g.weight(24), pads=[4, 4])
        g.output(g.node("Relu", y))
    assert calls(check(g.model(), tmp_path), "conv1d") == 2


@pytest.mark.parametrize("readers", ["conv", "output"])
def test_what_would_have_to_be_copied_stays_apart(readers: str, tmp_path: Path) -> None:
    model = branches(readers)
    assert keys(load(model, tmp_path)) == keys(load(model, tmp_path, select_none))


def test_what_would_split_worse_stays_apart(tmp_path: Path) -> None:
    model = branches("concat", widths=(16, 8))
    assert keys(load(model, tmp_path)) == keys(load(model, tmp_path, select_none))


def test_a_transposition_that_moves_nothing_copies_nothing(tmp_path: Path) -> None:
    g = GraphBuilder()
    x = g.input("x", [1, 1, 16])
    for _ in range(3):
        g.output(heads(g, g.linear(x, 16, 16), [1, 1, 2, 8]))
    assert calls(check(g.model(), tmp_path), "slice") == 0


@pytest.mark.matrix(every=3, each_value=False)
@pytest.mark.parametrize("name", sorted(set(onnx_models.ORDINARY) - COMBINED))
def test_other_networks_keep_their_kernels(name: str, tmp_path: Path) -> None:
    model = onnx_models.ORDINARY[name]()
    assert keys(load(model, tmp_path)) == keys(load(model, tmp_path, select_none))


@pytest.mark.parametrize("name", sorted(COMBINED))
def test_these_networks_get_fewer_products(name: str, tmp_path: Path) -> None:
    model = onnx_models.ORDINARY[name]()
    assert calls(load(model, tmp_path), "matmul") < calls(load(model, tmp_path, select_none), "matmul")


@pytest.mark.matrix(every=2, each_value=False)
@pytest.mark.parametrize(
    ("attributes", "others"),
    [
        ({"strides": [2, 2]}, {"strides": [1, 1]}),
        ({"pads": [1, 1, 1, 1]}, {"pads": [0, 0, 0, 0]}),
        ({"dilations": [2, 2]}, {"dilations": [1, 1]}),
        ({"group": 2}, {"group": 2}),
    ],
)
def test_convolutions_that_differ_stay_apart(
    attributes: dict[str, Any], others: dict[str, Any], tmp_path: Path
) -> None:
    g = GraphBuilder()
    x = g.input("x", [1, 8, 9, 9])
    for attrs in (attributes, others):
        g.output(g.node("Conv", x, g.weight(16, 8 // attrs.get("group", 1), 3, 3), **attrs))
    assert calls(check(g.model(), tmp_path, always), "conv2d") == 2


def test_a_value_with_other_readers_is_cut_out_completely(tmp_path: Path) -> None:
    """The sum is an output, the step after it is not; the second branch's is read by nothing else."""
    g = GraphBuilder()
    x = g.input("x", [4, 16])
    for number in range(2):
        y = g.linear(x, 16, 8)
        if number == 0:
            g.output(y)
        g.output(g.node("Relu", y))
    assert calls(check(g.model(), tmp_path, always), "matmul") == 1


def test_a_weight_used_twice_and_an_input_that_is_an_output(tmp_path: Path) -> None:
    g = GraphBuilder()
    x = g.node("Relu", g.input("x", [4, 16]))
    weight = g.weight(16, 8)
    for _ in range(2):
        g.output(g.node("Exp", g.node("MatMul", x, weight)))
    g.output(g.node("MatMul", g.node("Sin", x), weight))
    g.output(x)
    assert calls(check(g.model(), tmp_path, always), "matmul") == 2


@pytest.mark.matrix(every=2, each_value=False)
@pytest.mark.parametrize("dtype", [TensorProto.FLOAT16, TensorProto.DOUBLE])
def test_precisions_are_kept(dtype: int, tmp_path: Path) -> None:
    g = GraphBuilder()
    kind = onnx.helper.tensor_dtype_to_np_dtype(dtype)
    rng = np.random.default_rng(0)
    x = g.input("x", [1, 6, 16], dtype)
    for biased in (True, True, False):
        y = g.node("MatMul", x, g.constant((rng.standard_normal((16, 16)) / 4).astype(kind)))
        if biased:
            y = g.node("Add", y, g.constant(rng.standard_normal(16).astype(kind)))
        g.output(heads(g, y, [1, 6, 2, 8]), None, dtype)
    apart, ours = load(g.model(), tmp_path, select_none), load(g.model(), tmp_path)
    assert (calls(apart, "matmul"), calls(ours, "matmul")) == (3, 1)
    tolerance = 1e-2 if dtype == TensorProto.FLOAT16 else 1e-12
    for fused, other in zip(run(ours, tmp_path), run(apart, tmp_path), strict=True):
        assert fused.dtype == other.dtype == kind
        np.testing.assert_allclose(fused, other, rtol=tolerance, atol=tolerance)


STEPS: list[Callable[[GraphBuilder, str, NDArray[np.float32]], str]] = [
    lambda g, y, _: g.node("Relu", y),
    lambda g, y, _: g.node("Mul", y, g.node("Sigmoid", y)),
    lambda g, y, scale: g.node("Mul", g.constant(scale), y),
    lambda g, y, scale: g.node("Sub", g.constant(scale), y),
    lambda g, y, _: g.node("Add", y, g.constant(np.array(0.5, np.float32))),
    lambda g, y, _: g.node("Clip", y, g.constant(np.float32(-0.5)), g.constant(np.float32(0.5))),
    lambda g, y, _: g.node("LeakyRelu", y, alpha=0.1),
    lambda g, y, _: g.node("Add", g.node("Tanh", y), g.node("Abs", y)),
]


def random_branches(seed: int) -> onnx.ModelProto:
    """A network of parallel branches that have some steps in common, and are read in all sorts of ways."""
    rng = np.random.default_rng(seed)
    g = GraphBuilder(seed)
    convolves, rank = bool(rng.integers(2)), int(rng.integers(2, 5))
    batch = int(rng.integers(1, 3))
    shape = [batch, 8, 5, 4] if convolves else [batch, 3, 5, 8][-rank:]
    x = g.node("Tanh", g.input("x", shape))
    if rng.integers(4) == 0:
        g.output(x)
    common = [STEPS[step] for step in rng.integers(len(STEPS), size=rng.integers(4))]
    for _ in range(int(rng.integers(2, 5))):
        width = int(rng.choice([4, 8, 16]))
        channels = [width, 1, 1] if convolves else [width]
        if convolves:
            y = g.conv(x, 8, width, bias=bool(rng.integers(3)))
        else:
            y = g.node("MatMul", x, g.weight(8, width))
            y = g.node("Add", y, g.weight(width)) if rng.integers(3) else y
        own = [STEPS[step] for step in rng.integers(len(STEPS), size=rng.integers(2))]
        for step in [*common, *own]:
            sizes = channels if rng.integers(2) else [1] * len(channels)
            before, y = y, step(g, y, rng.uniform(0.5, 1.5, sizes).astype(np.float32))
            if rng.integers(8) == 0:
                g.output(before)
        reader = int(rng.integers(4))
        if reader == 0:
            y = g.node("Transpose", y)
        elif reader == 1:
            y = g.node("Concat", y, y, axis=1)
        elif reader == 2:
            y = g.node("Sqrt", g.node("Abs", g.node("ReduceSum", y, keepdims=1)))
        g.output(y)
    return g.model()


@pytest.mark.matrix(every=4, each_value=False)
@pytest.mark.parametrize("seed", range(16))
def test_branches_compute_the_same_however_they_are_read(seed: int, tmp_path: Path) -> None:
    check(random_branches(seed), tmp_path, always if seed % 3 else select_faster)
