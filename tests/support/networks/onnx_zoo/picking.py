"""Reductions, sorting, indexing."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto
from onnx_models import GraphBuilder

from onnx_zoo.cases import axes_node, case, image, scalar


@case()
def reductions(g: GraphBuilder, v: int) -> Any:
    x = g.node("Add", g.node("Abs", image(g, 2, 3, 4)), scalar(g, 0.1))
    out = []
    for op in (
        "ReduceMean",
        "ReduceMax",
        "ReduceMin",
        "ReduceProd",
        "ReduceL1",
        "ReduceL2",
        "ReduceLogSum",
        "ReduceLogSumExp",
        "ReduceSumSquare",
    ):
        out.append(axes_node(g, x, op, [1, 2], 18, v, keepdims=0))
        out.append(axes_node(g, x, op, [1], 18, v))
        out.append(g.node(op, x))
    out.append(axes_node(g, x, "ReduceSum", [0, 2], 13, v, keepdims=0))
    out.append(g.node("ReduceSum", x, keepdims=0))
    if v >= 11:
        out.append(axes_node(g, x, "ReduceMean", [-1], 18, v))
        out.append(axes_node(g, x, "ReduceSum", [-1], 13, v))
    return out


@case(18)
def reductions_noop(g: GraphBuilder, v: int) -> Any:
    x = image(g, 2, 3)
    return [
        g.node("ReduceMean", x, noop_with_empty_axes=1),
        g.node("ReduceMax", x, g.ints(), noop_with_empty_axes=1),
        g.node("ReduceMax", x, g.ints()),
    ]


@case(13)
def reduce_sum_noop(g: GraphBuilder, v: int) -> Any:
    x = image(g, 2, 3)
    return [g.node("ReduceSum", x, noop_with_empty_axes=1), g.node("ReduceSum", x, g.ints())]


@case(13)
def reductions_int(g: GraphBuilder, v: int) -> Any:
    x = g.node("Cast", g.node("Mul", image(g, 2, 3), scalar(g, 100)), to=TensorProto.INT32)
    return [
        (axes_node(g, x, "ReduceMax", [1], 18, v), TensorProto.INT32),
        (g.node("ReduceSum", x, g.ints(0)), TensorProto.INT32),
    ]


@case()
def args(g: GraphBuilder, v: int) -> Any:
    x = image(g, 2, 3, 4)
    return [
        (g.node("ArgMax", x, axis=1), TensorProto.INT64),
        (g.node("ArgMin", x, axis=2, keepdims=0), TensorProto.INT64),
        (g.node("ArgMax", x), TensorProto.INT64),
    ]


@case(12)
def args_last(g: GraphBuilder, v: int) -> Any:
    x = g.node("Round", image(g, 2, 30))
    return [
        (g.node("ArgMax", x, axis=1, select_last_index=1), TensorProto.INT64),
        (g.node("ArgMin", x, axis=1), TensorProto.INT64),
    ]


@case()
def top_k(g: GraphBuilder, v: int) -> Any:
    x = image(g, 2, 6)
    y, i = g.node("TopK", x, k=3, outputs=2) if v < 10 else g.node("TopK", x, g.ints(3), outputs=2)
    return [y, (i, TensorProto.INT64)]


@case(11)
def top_k_smallest(g: GraphBuilder, v: int) -> Any:
    y, i = g.node("TopK", image(g, 2, 6), g.ints(2), axis=0, largest=0, outputs=2)
    return [y, (i, TensorProto.INT64)]


@case(11)
def top_k_unsorted(g: GraphBuilder, v: int) -> Any:
    y, _ = g.node("TopK", image(g, 2, 6), g.ints(6), sorted=0, outputs=2)
    return axes_node(g, y, "ReduceSum", [1], 13, v)


@case()
def gathers(g: GraphBuilder, v: int) -> Any:
    x = image(g, 5, 4)
    i = g.constant(np.array([[0, 2], [4, 1]], np.int64))
    out = [
        g.node("Gather", x, i),
        g.node("Gather", x, g.constant(np.array([3, 0], np.int32)), axis=1),
        g.node("Gather", x, g.constant(np.array(2, np.int64))),
    ]
    if v >= 11:
        out.append(g.node("Gather", x, g.ints(-1, -5, 2)))
        out.append(g.node("GatherElements", x, g.constant(np.array([[0, 1], [2, -1]], np.int64)), axis=1))
        out.append(g.node("GatherND", x, g.constant(np.array([[0, 1], [4, 3]], np.int64))))
        out.append(g.node("GatherND", x, g.constant(np.array([[-1], [2]], np.int64))))
    if v >= 12:
        z = g.input("z", [2, 3, 4])
        out.append(g.node("GatherND", z, g.constant(np.array([[1], [2]], np.int64)), batch_dims=1))
    return out


@case()
def gather_live(g: GraphBuilder, v: int) -> Any:
    ids = g.input("ids", [2, 3], TensorProto.INT64)
    return g.node("Gather", g.weight(5, 4), ids)


@case(9, 10)
def scatter(g: GraphBuilder, v: int) -> Any:
    return g.node(
        "Scatter", image(g, 3, 4), g.constant(np.array([[0, 2, 1]], np.int64)), g.weight(1, 3), axis=1
    )


@case(11)
def scatter_elements(g: GraphBuilder, v: int) -> Any:
    x = image(g, 3, 4)
    i, u = g.constant(np.array([[0, -1, 1]], np.int64)), g.weight(1, 3)
    out = [g.node("ScatterElements", x, i, u, axis=1), g.node("ScatterElements", x, i, u)]
    if v >= 16:
        out += [g.node("ScatterElements", x, i, u, axis=1, reduction=r) for r in ("add", "mul")]
    if v >= 18:
        out += [g.node("ScatterElements", x, i, u, axis=1, reduction=r) for r in ("max", "min")]
    return out


@case(11)
def scatter_nd(g: GraphBuilder, v: int) -> Any:
    x = image(g, 3, 4)
    i = g.constant(np.array([[0], [2]], np.int64))
    out = [
        g.node("ScatterND", x, i, g.weight(2, 4)),
        g.node("ScatterND", x, g.constant(np.array([[0, 1], [-1, 2]], np.int64)), g.weight(2)),
    ]
    if v >= 16:
        out += [g.node("ScatterND", x, i, g.weight(2, 4), reduction=r) for r in ("add", "mul")]
    return out


@case(9)
def wheres(g: GraphBuilder, v: int) -> Any:
    x = image(g, 3, 4)
    return [
        g.node("Where", g.node("Greater", x, scalar(g, 0)), x, scalar(g, -1)),
        g.node(
            "Where",
            g.constant(np.tril(np.ones((3, 4), bool))),
            x,
            g.constant(np.full((1, 1), -9, np.float32)),
        ),
    ]


@case(9)
def one_hot(g: GraphBuilder, v: int) -> Any:
    ids = g.input("ids", [2, 3], TensorProto.INT64)
    values = g.constant(np.array([0.5, 2.0], np.float32))
    return [g.node("OneHot", ids, g.ints(5), values), g.node("OneHot", ids, g.ints(5), values, axis=1)]


@case(11)
def cum_sum(g: GraphBuilder, v: int) -> Any:
    x = image(g, 2, 5)
    return [
        g.node("CumSum", x, scalar(g, 1, np.int64), **a)
        for a in ({}, {"exclusive": 1}, {"reverse": 1}, {"exclusive": 1, "reverse": 1})
    ]


@case(14)
def trilu(g: GraphBuilder, v: int) -> Any:
    x = image(g, 4, 5)
    k = scalar(g, 1, np.int64)
    return [
        g.node("Trilu", x),
        g.node("Trilu", x, k, upper=0),
        g.node("Trilu", x, g.constant(np.array(-1, np.int64))),
    ]


@case(11)
def ranges(g: GraphBuilder, v: int) -> Any:
    r = g.node("Range", scalar(g, 0, np.int64), scalar(g, 4, np.int64), scalar(g, 1, np.int64))
    return g.node("Mul", image(g, 2, 4), g.node("Cast", r, to=TensorProto.FLOAT))
