"""How large the integers of inputs may be."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto
from onnx_models import GraphBuilder

from tunefarm_tuning.frontend.onnx.reference.vocabulary import index_limits


def test_tokens_go_up_to_the_size_of_the_smallest_table_that_they_index() -> None:
    g = GraphBuilder()
    tokens = g.input("tokens", [1, 8], TensorProto.INT32)
    mask = g.input("mask", [1, 8], TensorProto.INT64)
    wide = g.node("Cast", tokens, to=TensorProto.INT64)
    g.output(g.node("Gather", g.weight(30, 4), wide))
    g.output(g.node("Gather", g.weight(4, 20), wide, axis=1))
    g.output(g.node("Mul", mask, mask), dtype=TensorProto.INT64)
    assert index_limits(g.model().graph) == {"tokens": 20}


def test_a_one_hot_vector_is_a_table() -> None:
    g = GraphBuilder()
    values = g.constant(np.array([0, 1], np.float32))
    g.output(g.node("OneHot", g.input("x", [5], TensorProto.INT64), g.ints(7), values))
    assert index_limits(g.model().graph) == {"x": 7}


def test_a_one_hot_vector_may_be_written_as_a_comparison() -> None:
    g = GraphBuilder()
    tokens = g.node("Unsqueeze", g.input("x", [5], TensorProto.INT64), g.ints(1))
    hot = g.node("Equal", tokens, g.ints(*range(9)))
    g.output(hot, dtype=TensorProto.BOOL)
    assert index_limits(g.model().graph) == {"x": 9}
