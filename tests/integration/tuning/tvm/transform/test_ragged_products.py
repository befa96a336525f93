"""Weights whose results fill no whole vectors get zeros behind them, with the same results."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any

import pytest
import tvm
from onnx_models import GraphBuilder
from onnx_reference import built_outputs, reference_outputs
from tvm import relax, tirx

from tunefarm_tuning.reference.comparison import compare_arrays
from tunefarm_tuning.reference.random_inputs import random_inputs
from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.tvm.base.tir import walk
from tunefarm_tuning.tvm.default_schedules.schedule import default_schedule, packed_default_schedules
from tunefarm_tuning.tvm.kernels.direct_conv import match_direct_conv
from tunefarm_tuning.tvm.kernels.winograd import output_transform
from tunefarm_tuning.tvm.transform.pipeline import RelaxNetwork, load_relax
from tunefarm_tuning.workload.binding import Binding

HOST = parse_target("host")


def network(folder: Path, *, shape: tuple[int, ...], columns: int, activation: str = "Sigmoid") -> Path:
    g = GraphBuilder(seed=columns)
    x = g.input("x", list(shape))
    y = g.node("Add", g.node("MatMul", x, g.weight(shape[-1], columns)), g.weight(columns))
    g.output(g.node(activation, y))
    path = folder / "model.onnx"
    path.write_bytes(g.model().SerializeToString())
    return path


def convolution(folder: Path, *, shape: tuple[int, ...], channels: int, kernel: int, groups: int = 1) -> Path:
    g = GraphBuilder(seed=channels)
    x = g.input("x", list(shape))
    dims = len(shape) - 2
    weights = g.weight(channels, shape[1] // groups, *[kernel] * dims)
    y = g.node("Conv", x, weights, g.weight(channels), group=groups, pads=[kernel // 2] * 2 * dims)
    g.output(g.node("Relu", g.node("Add", x, y) if channels == shape[1] else y))
    path = folder / "model.onnx"
    path.write_bytes(g.model().SerializeToString())
    return path


def matrix_shapes(loaded: RelaxNetwork) -> list[tuple[int, ...]]:
    """Return the shapes of the network's constant matrices."""
    shapes: list[tuple[int, ...]] = []

    def look(node: Any) -> None:
        if isinstance(node, tvm.ir.GenericConst) and prod(node.value.shape[:-1]) > 1:
            shapes.append(tuple(int(size) for size in node.value.shape))

    relax.analysis.post_order_visit(loaded.module["main"].body, look)
    return shapes


@pytest.mark.matrix(every=3, each_value=False)
@pytest.mark.parametrize(
    ("shape", "columns", "padded"),
    [
        ((1, 256), 1009, 1024),
        ((1, 40, 120), 6625, 6656),
        ((2, 7, 96), 1501, 1536),
        ((33, 1100), 21, 24),
        ((4, 20), 1009, 1016),
    ],
)
@pytest.mark.parametrize("activation", ["Sigmoid", "Softmax"])
def test_numbers_stay(
    shape: tuple[int, ...], columns: int, padded: int, activation: str, tmp_path: Path
) -> None:
    path = network(tmp_path, shape=shape, columns=columns, activation=activation)
    loaded = load_relax(path, Binding(), HOST)
    assert matrix_shapes(loaded) == [(shape[-1], padded)]
    values = random_inputs(loaded.inputs, seed=1)
    (ours,) = built_outputs(loaded, values, tmp_path)
    (theirs,) = reference_outputs(path, loaded, values)
    comparison = compare_arrays("y", ours, theirs)
    assert comparison.ok, comparison.message


@pytest.mark.parametrize(
    ("shape", "columns"),
    [
        ((1, 256), 1000),  # divided by half a vector
        ((40, 1400), 12),  # whole vectors of four, and a third more columns
        ((33, 60), 10),  # small
        ((40, 64), 7),  # less than a vector
        ((1, 16), 101),  # small
    ],
)
def test_what_would_not_win_stays(shape: tuple[int, ...], columns: int, tmp_path: Path) -> None:
    loaded = load_relax(network(tmp_path, shape=shape, columns=columns), Binding(), HOST)
    assert matrix_shapes(loaded) == [(shape[-1], columns)]


def outputs_agree(path: Path, loaded: RelaxNetwork, folder: Path) -> None:
    values = random_inputs(loaded.inputs, seed=1)
    (ours,) = built_outputs(loaded, values, folder)
    (theirs,) = reference_outputs(path, loaded, values)
    comparison = compare_arrays("y", ours, theirs)
    assert comparison.ok, comparison.message


@pytest.mark.matrix(every=3, each_value=False)
@pytest.mark.parametrize(
    ("shape", "channels", "kernel", "groups", "padded"),
    [
        ((1, 32, 20, 20), 85, 1, 1, (1, 1, 32, 88)),
        ((2, 18, 13, 9), 36, 3, 1, (3, 3, 18, 40)),
        ((1, 21, 9, 9), 21, 3, 1, (3, 3, 21, 24)),  # added to its input
        ((1, 136, 14, 14), 136, 1, 4, (1, 1, 34, 160)),  # 34 channels of a group, then six zeros
        ((1, 60, 9, 9), 60, 3, 3, (3, 3, 20, 72)),
        ((1, 24, 100), 50, 5, 1, (5, 24, 56)),
        ((2, 42, 15, 11), 42, 5, 42, (5, 5, 1, 48)),
        ((1, 21, 15, 11), 21, 3, 21, (3, 3, 1, 24)),
        ((1, 40, 33), 20, 3, 2, (3, 20, 32)),
    ],
)
def test_convolutions_agree(
    shape: tuple[int, ...],
    channels: int,
    kernel: int,
    groups: int,
    padded: tuple[int, ...],
    tmp_path: Path,
) -> None:
    path = convolution(tmp_path, shape=shape, channels=channels, kernel=kernel, groups=groups)
    loaded = load_relax(path, Binding(), HOST)
    assert matrix_shapes(loaded) == [padded]
    outputs_agree(path, loaded, tmp_path)


@pytest.mark.parametrize(("channels", "groups"), [(88, 1), (12, 1), (32, 8), (32, 32), (64, 32)])
def test_whole_vectors_and_short_groups_stay(channels: int, groups: int, tmp_path: Path) -> None:
    path = convolution(tmp_path, shape=(1, 32, 20, 20), channels=channels, kernel=3, groups=groups)
    shapes = matrix_shapes(load_relax(path, Binding(), HOST))
    assert all(shape[-1] == channels for shape in shapes)


@pytest.mark.parametrize("groups", [1, 4])
def test_a_ragged_convolution_is_cropped_from_registers(groups: int, tmp_path: Path) -> None:
    path = convolution(
        tmp_path, shape=(1, 136, 14, 14), channels=136 if groups > 1 else 133, kernel=1, groups=groups
    )
    target = parse_target("llvm -mcpu=x86-64-v4")
    module = load_relax(path, Binding(), target).module
    (kernel,) = [func for name, func in module.functions.items() if "ragged" in str(name.name_hint)]
    scheduled = default_schedule(kernel, target)
    buffers = [
        buffer
        for node in walk(scheduled.body)
        if isinstance(node, tvm.s_tir.SBlock)
        for buffer in node.alloc_buffers
    ]
    assert {buffer.scope() for buffer in buffers} == {"local"}


def test_a_ragged_convolution_has_an_alternative_of_winograd(tmp_path: Path) -> None:
    path = convolution(tmp_path, shape=(1, 36, 28, 28), channels=36, kernel=3)
    module = load_relax(path, Binding(), HOST).module
    (kernel,) = [func for name, func in module.functions.items() if "ragged" in str(name.name_hint)]
    conv = match_direct_conv(kernel)
    assert conv is not None
    assert conv.out_shape == (1, 28, 28, 40)
    assert output_transform(kernel, conv, 4) is not None


def test_results_are_written_from_registers(tmp_path: Path) -> None:
    """The elementwise stage leaves out the columns of zeros: no product is stored before it, and the matrix is packed."""
    path = network(tmp_path, shape=(1, 256), columns=1009)
    module = load_relax(path, Binding(), parse_target("llvm -mcpu=x86-64-v4")).module
    (kernel,) = packed_default_schedules(module, parse_target("llvm -mcpu=x86-64-v4")).values()
    buffers = [
        buffer
        for node in walk(kernel.func.body)
        if isinstance(node, tvm.s_tir.SBlock)
        for buffer in node.alloc_buffers
    ]
    assert [buffer.scope() for buffer in buffers] == ["local"]
    assert kernel.packings[1].packed_shape[1:] != kernel.packings[1].shape
    assert any(
        isinstance(node, tirx.For) and node.kind == tirx.ForKind.VECTORIZED for node in walk(kernel.func.body)
    )
