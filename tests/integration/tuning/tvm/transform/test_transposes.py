"""Transpose propagation keeps the results, and removes transposes that meet their inverse."""

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

from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.tvm.tasks.extract import primfunc_workloads
from tunefarm_tuning.tvm.transform.transposes.propagate_down import propagate_transposes_down
from tunefarm_tuning.tvm.transform.transposes.rules import axis_groups

HOST = parse_target("host")

Shape = tuple[int, ...]
Step = Callable[[GraphBuilder, np.random.Generator, str, Shape], tuple[str, Shape]]


def shuffle(g: GraphBuilder, x: str, channels: int, size: int) -> str:
    y = g.node("Reshape", x, g.ints(1, 2, channels // 2, size, size))
    y = g.node("Transpose", y, perm=[0, 2, 1, 3, 4])
    return str(g.node("Reshape", y, g.ints(1, channels, size, size)))


def shuffles(g: GraphBuilder) -> None:
    x = g.conv(g.input("x", [1, 3, 8, 8]), 3, 8)
    for _ in range(2):
        x = shuffle(g, x, 8, 8)
        left, right = g.node("Split", x, g.ints(4, 4), outputs=2, axis=1)
        x = g.node("Concat", left, g.node("Relu", g.conv(right, 4, 4)), axis=1)
    g.output(g.conv(shuffle(g, x, 8, 8), 8, 4))


def padded_channels(g: GraphBuilder) -> None:
    x = g.conv(g.input("x", [1, 3, 8, 8]), 3, 4)
    y = g.conv(x, 4, 8, 3, 2)
    pooled = g.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    pooled = g.node("Pad", pooled, g.ints(0, 0, 0, 0, 0, 4, 0, 0))
    x = g.node("Relu", g.node("Add", pooled, y))
    g.output(g.conv(g.node("AveragePool", x, kernel_shape=[2, 2]), 8, 4))


def slopes(g: GraphBuilder) -> None:
    x = g.conv(g.input("x", [1, 3, 8, 8]), 3, 4)
    wide = g.node("Pad", x, g.ints(0, 0, 0, 0, 0, 4, 0, 0))
    x = g.node("PRelu", g.node("Add", wide, g.conv(x, 4, 8)), g.weight(8, 1, 1))
    weights = g.node("Softmax", g.conv(x, 8, 8), axis=1)
    total = g.node("ReduceSum", g.node("Mul", weights, x), g.ints(1), keepdims=1)
    g.output(g.conv(g.node("Sub", x, total), 8, 4))


def padded_images(mode: str) -> Callable[[GraphBuilder], None]:
    def build(g: GraphBuilder) -> None:
        x = g.conv(g.input("x", [1, 3, 8, 8]), 3, 4)
        x = g.node("Pad", x, g.ints(0, 0, 2, 1, 0, 0, 3, 1), mode=mode)
        g.output(g.conv(x, 4, 4))

    return build


def means(g: GraphBuilder) -> None:
    x = shuffle(g, g.conv(g.input("x", [1, 3, 8, 8]), 3, 8), 8, 8)
    gate = g.node("Sigmoid", g.conv(g.node("ReduceMean", x, axes=[2, 3], keepdims=1), 8, 8))
    g.output(g.conv(g.node("Mul", x, gate), 8, 8))


def patches(g: GraphBuilder) -> None:
    x = g.conv(g.input("x", [1, 3, 16, 16]), 3, 8, 4, 4)
    height, width = 5, 5
    x = g.node("Reshape", x, g.ints(1, 8, height * width))
    g.output(g.linear(g.node("Transpose", x, perm=[0, 2, 1]), 8, 8))


def rounded_activations(g: GraphBuilder) -> None:
    """Quantised when the network runs, by the least and the largest of all elements."""
    x = g.node("Relu", g.conv(g.input("x", [1, 3, 8, 8]), 3, 4))
    q, scale, zero = g.node("DynamicQuantizeLinear", x, outputs=3)
    g.output(g.conv(g.node("DequantizeLinear", q, scale, zero), 4, 4))


GONE = {
    "rounded activations": rounded_activations,
    "shuffles of channels": shuffles,
    "padded channels": padded_channels,
    "means": means,
    "slopes and sums by channel": slopes,
    "patches": patches,
    "zeros around images": padded_images("constant"),
    "edges around images": padded_images("edge"),
    "mirrors around images": padded_images("reflect"),
}


@pytest.mark.matrix(every=3, each_value=False)
@pytest.mark.parametrize("name", sorted(GONE))
def test_no_layout_is_changed_within_a_network(name: str, tmp_path: Path) -> None:
    g = GraphBuilder(seed=4)
    GONE[name](g)
    names = [kernel.name for kernel in primfunc_workloads(checked_network(g, tmp_path).module)]
    # Into the network and out of it; a shuffle is a transpose of its own.
    left = [name for name in names if "transpose" in name and "reshape" not in name]
    assert len(left) <= 2, names


def test_what_has_an_unknown_size_is_not_moved_past() -> None:
    n = tvm.tirx.Var("n", "int64")
    known = relax.Var("known", relax.TensorType((2, 6, 4), "float32"))
    open_ = relax.Var("open", relax.TensorType((2, n, 6), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [known, open_]):
        with builder.dataflow():
            first = builder.emit(relax.op.permute_dims(known, [0, 2, 1]))
            joined = builder.emit(relax.op.concat([first, open_], axis=1))
            result = builder.emit_output(relax.op.permute_dims(joined, [0, 2, 1]))
        builder.emit_func_output(result)
    propagated = propagate_transposes_down(builder.get())
    names: list[str] = []
    relax.analysis.post_order_visit(
        propagated["main"].body,
        lambda node: names.append(str(node.op.name)) if isinstance(node, tvm.ir.Call) else None,
    )
    assert sorted(names) == ["relax.concat", "relax.permute_dims", "relax.permute_dims"]


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect"])
def test_special_values_go_through_a_pad(mode: str, tmp_path: Path) -> None:
    g = GraphBuilder()
    g.output(g.node("Pad", g.input("x", [2, 3, 4, 5]), g.ints(1, 0, 2, 1, 0, 2, 1, 3), mode=mode))
    checked_network(g, tmp_path, special=True)


def test_a_part_of_queries_keys_and_values_is_no_lookup(tmp_path: Path) -> None:
    g = GraphBuilder()
    x = g.node("Transpose", g.input("x", [2, 5, 3, 4, 6]), perm=[2, 0, 3, 1, 4])
    for index in (0, 2, -2):
        g.output(g.node("Gather", x, g.constant(np.array(index, np.int64)), axis=0))
    for places in ([1, 2], [2, 0], [1, -1]):
        g.output(g.node("Gather", x, g.constant(np.array(places, np.int64)), axis=2))
    loaded = checked_network(g, tmp_path)
    assert sum("take" in kernel.name for kernel in primfunc_workloads(loaded.module)) <= 2


@pytest.mark.matrix(every=2, each_value=False)
@pytest.mark.parametrize("seed", range(8))
def test_whatever_follows_a_transpose_computes_the_same(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    g = GraphBuilder(seed=seed)
    known: list[tuple[str, Shape]] = [(g.conv(g.input("x", [2, 3, 8, 6]), 3, 4), (2, 4, 8, 6))]
    for _ in range(14):
        x, shape = known[int(rng.integers(max(0, len(known) - 3), len(known)))]
        known.append(STEPS[int(rng.integers(len(STEPS)))](g, rng, x, shape))
    for x, _ in known[-4:]:
        g.output(g.node("Neg", x))
    checked_network(g, tmp_path)


def transposed(g: GraphBuilder, rng: np.random.Generator, x: str, shape: Shape) -> tuple[str, Shape]:
    order = [int(axis) for axis in rng.permutation(len(shape))]
    return g.node("Transpose", x, perm=order), tuple(shape[axis] for axis in order)


def split_axis(g: GraphBuilder, rng: np.random.Generator, x: str, shape: Shape) -> tuple[str, Shape]:
    axis = int(rng.integers(len(shape)))
    after = (*shape[:axis], 2, shape[axis] // 2, *shape[axis + 1 :])
    return (x, shape) if shape[axis] % 2 or len(shape) > 5 else (g.node("Reshape", x, g.ints(*after)), after)


def joined_axes(g: GraphBuilder, rng: np.random.Generator, x: str, shape: Shape) -> tuple[str, Shape]:
    if len(shape) < 3:
        return x, shape
    axis = int(rng.integers(len(shape) - 1))
    after = (*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :])
    return g.node("Reshape", x, g.ints(*after)), after


def sliced(g: GraphBuilder, rng: np.random.Generator, x: str, shape: Shape) -> tuple[str, Shape]:
    axis = int(rng.integers(len(shape)))
    if shape[axis] < 2:
        return x, shape
    after = (*shape[:axis], shape[axis] - 1, *shape[axis + 1 :])
    return g.node("Slice", x, g.ints(1), g.ints(shape[axis]), g.ints(axis)), after


def concatenated(g: GraphBuilder, rng: np.random.Generator, x: str, shape: Shape) -> tuple[str, Shape]:
    axis = int(rng.integers(len(shape)))
    after = (*shape[:axis], 2 * shape[axis], *shape[axis + 1 :])
    if np.prod(after) > 4096:
        return x, shape
    return g.node("Concat", x, g.node("Relu", x), axis=axis), after


def padded(g: GraphBuilder, rng: np.random.Generator, x: str, shape: Shape) -> tuple[str, Shape]:
    axis = int(rng.integers(len(shape)))
    after = (*shape[:axis], shape[axis] + 1, *shape[axis + 1 :])
    return g.node("Pad", x, g.ints(*np.eye(2 * len(shape), dtype=int)[axis])), after


def scaled(g: GraphBuilder, rng: np.random.Generator, x: str, shape: Shape) -> tuple[str, Shape]:
    return g.node("Mul", x, g.weight(*shape[int(rng.integers(len(shape))) :])), shape


def averaged(g: GraphBuilder, rng: np.random.Generator, x: str, shape: Shape) -> tuple[str, Shape]:
    axis = int(rng.integers(len(shape)))
    return g.node("Sub", x, g.node("ReduceMean", x, axes=[axis], keepdims=1)), shape


def sloped(g: GraphBuilder, _rng: np.random.Generator, x: str, shape: Shape) -> tuple[str, Shape]:
    return g.node("PRelu", x, g.weight(shape[1], *[1] * (len(shape) - 2))), shape


def softmaxed(g: GraphBuilder, rng: np.random.Generator, x: str, shape: Shape) -> tuple[str, Shape]:
    return g.node("Softmax", x, axis=int(rng.integers(len(shape)))), shape


def summed(g: GraphBuilder, rng: np.random.Generator, x: str, shape: Shape) -> tuple[str, Shape]:
    total = g.node("ReduceSum", x, g.ints(int(rng.integers(len(shape)))), keepdims=1)
    return g.node("Sub", x, total), shape


def convolved(g: GraphBuilder, _rng: np.random.Generator, x: str, shape: Shape) -> tuple[str, Shape]:
    return (g.conv(x, shape[1], shape[1]), shape) if len(shape) == 4 else (x, shape)


def pooled(g: GraphBuilder, _rng: np.random.Generator, x: str, shape: Shape) -> tuple[str, Shape]:
    if len(shape) != 4 or min(shape[2:]) < 2:
        return x, shape
    return g.node("MaxPool", x, kernel_shape=[2, 2]), (*shape[:2], shape[2] - 1, shape[3] - 1)


STEPS: list[Step] = [
    transposed,
    transposed,
    split_axis,
    joined_axes,
    sliced,
    concatenated,
    padded,
    scaled,
    averaged,
    sloped,
    softmaxed,
    summed,
    convolved,
    pooled,
]


@pytest.mark.parametrize(
    ("before", "after", "groups"),
    [
        ((2, 12, 3), (2, 3, 4, 3), [((0,), (0,)), ((1,), (1, 2)), ((2,), (3,))]),
        ((2, 3, 4), (6, 4), [((0, 1), (0,)), ((2,), (1,))]),
        ((1, 6), (6, 1, 1), [((0,), ()), ((1,), (0,)), ((), (1,)), ((), (2,))]),
        ((4, 6), (8, 3), [((0, 1), (0, 1))]),
        ((), (1,), [((), (0,))]),
    ],
)
def test_a_reshape_goes_by_groups_of_axes(before: Any, after: Any, groups: Any) -> None:
    assert [(group.before, group.after) for group in axis_groups(before, after) or []] == groups


def test_nothing_has_no_groups() -> None:
    assert axis_groups((0, 3), (0,)) is None
