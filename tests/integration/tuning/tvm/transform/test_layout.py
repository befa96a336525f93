"""Layout changes that TVM's rules lack, and cropped kernels, keep the results."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from onnx_models import GraphBuilder
from onnx_reference import checked_network
from tvm import relax

from tunefarm_tuning.frontend.onnx.bound_network import bind_model
from tunefarm_tuning.tvm.base.relax_graph import operator_name
from tunefarm_tuning.tvm.frontend.importer import import_bound
from tunefarm_tuning.tvm.tasks.extract import primfunc_workloads
from tunefarm_tuning.tvm.transform.layout import convert_layout
from tunefarm_tuning.tvm.transform.pipeline import RelaxNetwork
from tunefarm_tuning.workload.binding import Binding


def constants(loaded: RelaxNetwork) -> list[tuple[int, ...]]:
    shapes: list[tuple[int, ...]] = []

    def look(node: Any) -> None:
        if isinstance(node, tvm.ir.GenericConst):
            shapes.append(tuple(int(size) for size in node.value.shape))

    relax.analysis.post_order_visit(loaded.module["main"].body, look)
    return shapes


def squeezed(g: GraphBuilder) -> None:
    """Build columns read one after the other, as text in an image is."""
    x = g.conv(g.input("x", [1, 3, 2, 24]), 3, 8)
    x = g.node("Relu", g.conv(g.node("MaxPool", x, kernel_shape=[2, 1], strides=[2, 1]), 8, 20))
    x = g.node("Transpose", g.node("Squeeze", x, g.ints(2)), perm=[2, 0, 1])
    g.output(g.node("MatMul", x, g.weight(20, 16)))


def squeezed_line(g: GraphBuilder) -> None:
    """Build the same of a line: one axis of its image is all there is. Twenty channels get four of zeros."""
    x = g.input("x", [1, 6, 32])
    for channels, outputs in ((6, 12), (12, 20)):
        x = g.node("Relu", g.node("Conv", x, g.weight(outputs, channels, 3), kernel_shape=[3], pads=[1, 1]))
    x = g.node("Squeeze", g.node("ReduceMax", x, axes=[2], keepdims=1), g.ints(2))
    g.output(g.node("Transpose", x, perm=[1, 0]))


@pytest.mark.parametrize(
    ("build", "last"),
    [(squeezed, (1, 3, 8, 20)), (squeezed_line, (3, 12, 24))],
)
def test_channels_are_last_where_layout_rules_fail(
    build: Callable[[GraphBuilder], None], last: tuple[int, ...], tmp_path: Path
) -> None:
    g = GraphBuilder()
    build(g)
    assert last in constants(checked_network(g, tmp_path))


def conv(g: GraphBuilder, shape: list[int], weights: list[int], **attributes: Any) -> None:
    x = g.input("x", shape)
    g.output(g.node("Conv", x, g.weight(*weights), kernel_shape=weights[2:], **attributes))


@pytest.mark.matrix(every=2, each_value=False)
@pytest.mark.parametrize(
    ("shape", "weights", "attributes", "kept"),
    [
        # Dilated beyond the image: the middle alone is left.
        ([1, 8, 9, 9], [12, 8, 3, 3], {"pads": [12] * 4, "dilations": [12, 12]}, (1, 1, 8, 12)),
        # Along one axis only.
        ([1, 8, 9, 40], [12, 8, 3, 3], {"pads": [10] * 4, "dilations": [10, 10]}, (1, 3, 8, 12)),
        # A single pixel.
        ([2, 8, 1, 1], [12, 8, 3, 3], {"pads": [1] * 4}, (1, 1, 8, 12)),
        ([1, 8, 1, 1], [12, 8, 3, 3], {"pads": [1] * 4, "strides": [2, 2]}, (1, 1, 8, 12)),
        # One side of it.
        ([1, 8, 2, 2], [12, 8, 5, 5], {"pads": [2, 4, 2, 0]}, (3, 2, 8, 12)),
        ([1, 8, 3], [12, 8, 7], {"pads": [6, 0]}, (3, 8, 12)),
        ([1, 4, 2, 1, 2], [6, 4, 3, 3, 3], {"pads": [1] * 6}, (3, 1, 3, 4, 6)),
        # Only where there is padding to cut: rows go, pixels stay.
        ([1, 4, 1, 10], [4, 4, 3, 3], {"pads": [1, 12, 1, 11], "dilations": [1, 12]}, (1, 3, 4, 4)),
        # Groups have kernels too.
        ([1, 8, 1, 1], [8, 1, 3, 3], {"pads": [1] * 4, "group": 8}, None),
        # All taps are reached, by some place or other.
        ([1, 8, 9, 9], [12, 8, 3, 3], {"pads": [8] * 4, "dilations": [8, 8]}, (3, 3, 8, 12)),
        ([1, 8, 7, 7], [12, 8, 3, 3], {"pads": [1] * 4, "strides": [2, 2]}, (3, 3, 8, 12)),
        # Nothing but padding.
        ([1, 8, 1, 1], [12, 8, 2, 2], {"pads": [9] * 4, "strides": [30, 30]}, None),
    ],
)
def test_taps_that_meet_padding_alone_go(
    shape: list[int],
    weights: list[int],
    attributes: dict[str, Any],
    kept: tuple[int, ...] | None,
    tmp_path: Path,
) -> None:
    g = GraphBuilder()
    conv(g, shape, weights, **attributes)
    shapes = constants(checked_network(g, tmp_path))
    assert kept is None or kept in shapes


@pytest.mark.parametrize("number", [np.inf, np.nan])
def test_a_tap_that_is_no_number_stays(number: float, tmp_path: Path) -> None:
    """Its products with padding are NaN, and so is each sum that it is in."""
    g = GraphBuilder()
    x = g.input("x", [1, 2, 1, 1])
    weights = np.ones((3, 2, 3, 3), np.float32)
    weights[0, 0, 0, 0] = number
    g.output(g.node("Conv", x, g.constant(weights), kernel_shape=[3, 3], pads=[1] * 4))
    checked_network(g, tmp_path)


def enlarged(g: GraphBuilder) -> None:
    x = g.node("Relu", g.conv(g.input("x", [1, 3, 8, 6]), 3, 5))
    g.output(g.node("Resize", x, "", "", g.ints(1, 5, 32, 30), mode="linear"))


def enlarged_and_read_twice(g: GraphBuilder) -> None:
    x = g.node("Relu", g.conv(g.input("x", [1, 3, 8, 6]), 3, 5))
    x = g.node("Resize", x, "", "", g.ints(1, 5, 16, 12), mode="linear")
    g.output(x)
    g.output(g.conv(x, 5, 4))


def made_smaller(g: GraphBuilder) -> None:
    x = g.node("Relu", g.conv(g.input("x", [1, 3, 8, 6]), 3, 5))
    g.output(g.node("Resize", x, "", "", g.ints(1, 5, 4, 3), mode="linear"))


@pytest.mark.parametrize(
    ("build", "moves_up"), [(enlarged, True), (enlarged_and_read_twice, False), (made_smaller, False)]
)
def test_enlarged_tensors_are_transposed_first(
    build: Callable[[GraphBuilder], None], *, moves_up: bool, tmp_path: Path
) -> None:
    g = GraphBuilder()
    build(g)
    names = [kernel.name for kernel in primfunc_workloads(checked_network(g, tmp_path).module)]
    assert any(name.startswith("fused_transpose") and "resize2d" in name for name in names) is moves_up, names


def test_a_gather_with_constant_indices_is_one_operator_and_without_convolutions_no_layout_changes(
    tmp_path: Path,
) -> None:
    g = GraphBuilder()
    x = g.input("x", [5, 4])
    last_row = g.node("Gather", x, g.constant(np.array(-1)))
    g.output(g.node("Add", g.node("Gather", x, g.ints(2, -3, 0, 1), axis=1), last_row))
    imported = import_bound(bind_model(g.model(), Binding())).module
    operators: list[str] = []
    relax.analysis.post_order_visit(
        imported["main"].body, lambda node: operators.append(operator_name(node) or "")
    )
    assert sorted(filter(None, operators)) == ["relax.add", "relax.take", "relax.take"]
    assert convert_layout(imported) is imported
    checked_network(g, tmp_path)


@pytest.mark.parametrize("is_input", [True, False])
def test_a_split_into_one_piece_stops_no_layout_pass(is_input: bool, tmp_path: Path) -> None:
    """As detectors divide the boxes of a batch of one image."""
    g = GraphBuilder()
    x = g.conv(g.input("x", [1, 3, 8, 6]), 3, 5)
    piece = g.node("Split", x, *([g.ints(5)] if is_input else []), axis=1)
    g.output(g.conv(g.node("Relu", piece), 5, 4))
    imported = import_bound(bind_model(g.model(opset=13), Binding())).module
    assert convert_layout(imported) is not imported
    checked_network(g, tmp_path)
