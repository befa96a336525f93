"""Large matrices whose columns no vector divides get columns of zeros, with the same results."""

from __future__ import annotations

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
from tunefarm_tuning.tvm.default_schedules.schedule import packed_default_schedules
from tunefarm_tuning.tvm.transform.pipeline import LoadedModel, load_relax
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


def matrix_shapes(loaded: LoadedModel) -> list[tuple[int, ...]]:
    """Return the shapes of the network's constant matrices."""
    shapes: list[tuple[int, ...]] = []

    def look(node: Any) -> None:
        if isinstance(node, tvm.ir.GenericConst) and len(node.value.shape) == 2 and node.value.shape[0] > 1:
            shapes.append(tuple(int(size) for size in node.value.shape))

    relax.analysis.post_order_visit(loaded.module["main"].body, look)
    return shapes


@pytest.mark.parametrize(
    ("shape", "columns", "padded"),
    [((1, 256), 1009, 1024), ((1, 40, 120), 6625, 6656), ((2, 7, 96), 1501, 1536)],
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
        ((1, 256), 101),  # a quarter more columns
        ((4, 16), 1009),  # small
    ],
)
def test_what_would_not_win_stays(shape: tuple[int, ...], columns: int, tmp_path: Path) -> None:
    loaded = load_relax(network(tmp_path, shape=shape, columns=columns), Binding(), HOST)
    assert matrix_shapes(loaded) == [(shape[-1], columns)]


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
