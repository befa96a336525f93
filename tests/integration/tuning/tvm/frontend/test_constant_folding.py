"""What exports compute of masks of constants is computed at the import: a kernel of its own for each step takes a minute of a detector."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto
from onnx_models import GraphBuilder
from onnx_reference import checked_network
from tvm import relax

from tunefarm_tuning.frontend.onnx.bound_network import bind_model
from tunefarm_tuning.tvm.base.relax_graph import operator_name
from tunefarm_tuning.tvm.frontend.importer import import_bound
from tunefarm_tuning.workload.binding import Binding


def operators(g: GraphBuilder) -> list[str]:
    imported = import_bound(bind_model(g.model(opset=17), Binding())).module
    names: list[str] = []
    relax.analysis.post_order_visit(
        imported["main"].body, lambda node: names.append(operator_name(node) or "")
    )
    return sorted(filter(None, names))


def mask(g: GraphBuilder) -> str:
    """Return a mask of an image of 12 by 10 of which a corner is filled up."""
    kept = np.ones((2, 12, 10), np.float32)
    kept[1, 9:, :] = kept[1, :, 7:] = 0
    return str(g.node("Unsqueeze", g.constant(kept), g.ints(0)))


def test_positions_in_a_mask_are_computed_at_the_import(tmp_path: Path) -> None:
    """As DETR and its kin do: columns that are no padding are counted, and waves are made of their numbers."""
    g = GraphBuilder()
    small = g.node("Resize", mask(g), "", "", g.ints(1, 2, 5, 4), mode="nearest", nearest_mode="floor")
    kept = g.node("Cast", g.node("Cast", small, to=TensorProto.BOOL), to=TensorProto.FLOAT)
    counted = g.node("CumSum", kept, g.constant(np.array(2)))
    waves = [
        g.node(operator, g.node("Log", g.node("Clip", counted, g.constant(np.float32(1)))))
        for operator in ("Sin", "Cos")
    ]
    positions = g.node("Sigmoid", g.node("Flatten", g.node("Exp", g.node("Concat", *waves, axis=3)), axis=2))
    shares = g.node("MatMul", positions, g.constant(np.eye(40, dtype=np.float32)))
    g.output(g.node("Add", g.input("x", [2, 40]), shares))
    assert operators(g) == ["relax.add"]
    checked_network(g, tmp_path)


@pytest.mark.matrix(every=3, each_value=False)
@pytest.mark.parametrize("sizes", [(5, 4), (24, 30), (13, 10)])
@pytest.mark.parametrize("nearest", ["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"])
@pytest.mark.parametrize("coordinates", ["half_pixel", "asymmetric", "align_corners"])
def test_resized_constants_are_those_of_onnx_runtime(
    sizes: tuple[int, int], nearest: str, coordinates: str, tmp_path: Path
) -> None:
    g = GraphBuilder()
    pixels: Any = g.constant(np.random.default_rng(0).normal(size=(1, 2, 12, 10)).astype(np.float32))
    how = {"mode": "nearest", "nearest_mode": nearest, "coordinate_transformation_mode": coordinates}
    resized = g.node("Resize", pixels, "", "", g.ints(1, 2, *sizes), **how)
    g.output(g.node("Add", g.input("x", [1, 2, *sizes]), resized))
    assert operators(g) == ["relax.add"]
    checked_network(g, tmp_path)


def test_large_constants_are_resized_by_a_kernel() -> None:
    g = GraphBuilder()
    pixels = g.node("Resize", mask(g), "", "", g.ints(1, 2, 240, 300), mode="nearest")
    g.output(g.node("Add", g.input("x", [1, 2, 240, 300]), pixels))
    assert "relax.add" in operators(g) != ["relax.add"]


def test_scalars_that_a_quantiser_stores_in_integers_decide_shapes(tmp_path: Path) -> None:
    """As DPT, whose patches are as many as the root of its words: the exponent, too, becomes `DequantizeLinear` of an integer."""
    g = GraphBuilder()
    x = g.input("x", [1, 16, 6])
    words = g.node(
        "Cast", g.node("Gather", g.node("Shape", x), g.constant(np.array(1))), to=TensorProto.FLOAT
    )
    half = g.node("DequantizeLinear", g.constant(np.array(4, np.int8)), g.constant(np.float32(0.125)))
    side = g.node("Cast", g.node("Pow", words, half), to=TensorProto.INT64)
    side = g.node("Unsqueeze", side, g.ints(0))
    g.output(g.node("Reshape", x, g.node("Concat", g.ints(1), side, side, g.ints(6), axis=0)))
    checked_network(g, tmp_path)


def test_repetitions_are_known(tmp_path: Path) -> None:
    """As SAM's decoder: PyTorch writes the repeats of `repeat_interleave` as the `OneHot` of a dimension."""
    g = GraphBuilder()
    repeats = g.node("OneHot", g.ints(0), g.ints(3), g.ints(1, 2))
    g.output(g.node("Tile", g.input("x", [1, 3, 4]), g.node("Reshape", repeats, g.ints(-1))))
    checked_network(g, tmp_path)


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_classes_out_of_range_are_cold(axis: int, tmp_path: Path) -> None:
    g = GraphBuilder()
    classes = g.constant(np.array([[0, 3, -1], [-4, 4, -5]]))
    hot = g.node("OneHot", classes, g.ints(4), g.constant(np.array([2, 5], np.float32)), axis=axis)
    g.output(g.node("Add", g.input("x", []), hot))
    assert operators(g) == ["relax.add"]
    checked_network(g, tmp_path)


def test_constants_that_are_sorted_decide_shapes(tmp_path: Path) -> None:
    """As tf2onnx writes a sum of segments: each of them gets as many rows as the largest has."""
    g = GraphBuilder()
    ordered, rows = g.node("TopK", g.ints(0, 2, 1, 0), g.ints(4), axis=0, largest=0, outputs=2)
    _, _, inverse, counts = g.node("Unique", ordered, axis=0, outputs=4)
    lengths = g.node(
        "ReverseSequence", g.node("Unsqueeze", counts, g.ints(0)), g.ints(3), batch_axis=0, time_axis=1
    )
    room = g.node("ReduceMax", lengths, axes=[0, 1], keepdims=0)
    table = g.node(
        "Expand",
        g.node("Gather", inverse, rows),
        g.node("Concat", g.node("Unsqueeze", room, g.ints(0)), g.ints(4), axis=0),
    )
    g.output(g.node("Gather", g.input("x", [3, 5]), table))
    assert operators(g) == ["relax.take"]
    checked_network(g, tmp_path)


@pytest.mark.parametrize("axis", [0, -1, None])
def test_compress_by_a_constant_is_of_known_size(axis: int | None, tmp_path: Path) -> None:
    """As tf2onnx writes symmetric padding. ONNX Runtime ignores what the condition says beyond the axis."""
    g = GraphBuilder()
    kept = g.constant(np.array([True, False, True, True] * 5))
    along = {} if axis is None else {"axis": axis}
    g.output(g.node("Compress", g.input("x", [3, 5]), kept, **along))
    checked_network(g, tmp_path)


def test_an_expansion_is_as_large_as_what_comes_out(tmp_path: Path) -> None:
    """As BEiT's tables of relative positions: `Expand` to the shape that a tensor has is written before each `ScatterND`."""
    g = GraphBuilder()
    grid = g.constant(np.arange(256).reshape(16, 16))
    indices = g.node("Expand", grid, g.node("Shape", grid))
    g.output(g.node("Gather", g.input("x", [256]), indices))
    assert operators(g) == ["relax.take"]
    checked_network(g, tmp_path)
