"""Cutting networks: the segments together compute what the network computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_zoo
import pytest
from numpy.typing import NDArray
from onnx_models import GraphBuilder

from tunefarm_tuning.frontend.onnx.binding import bind_inputs
from tunefarm_tuning.frontend.onnx.reference.runtime import open_session
from tunefarm_tuning.frontend.onnx.reference.segments import Network, Rounding
from tunefarm_tuning.reference.random_inputs import random_inputs


def outputs_of(model: onnx.ModelProto, feeds: dict[str, NDArray[Any]]) -> list[NDArray[Any]]:
    session = open_session(model.SerializeToString(), 1, optimised=False)
    return [np.asarray(output) for output in session.run(None, feeds)]


@pytest.mark.parametrize("name", onnx_zoo.names())
def test_each_segment_gives_what_the_whole_network_has_there(name: str) -> None:
    model = onnx_zoo.build(name, onnx_zoo.opsets(name)[-1])
    specs = bind_inputs(model.graph, {})
    network = Network(model, specs)
    cuts = network.candidates()
    if not cuts:
        return
    feeds = {spec.name: array for spec, array in zip(specs, random_inputs(specs, seed=3), strict=True)}
    values = dict(zip(cuts, outputs_of(network.with_outputs(cuts), feeds), strict=True)) | feeds
    ends = [value.name for value in model.graph.output]
    expected = {**values, **dict(zip(ends, outputs_of(model, feeds), strict=True))}
    for chosen in (cuts, cuts[::3], cuts[-1:]):
        cut = network.cut(chosen, [*chosen, *ends])
        outputs = outputs_of(cut.model, {name: values[name] for name in cut.inputs})
        for segment, output in zip(cut.segments, outputs, strict=True):
            # between nodes of float16, ONNX Runtime itself computes in float32
            share = 2e-2 if "hal" in name else 1e-6
            np.testing.assert_allclose(output, expected[segment.tensor], rtol=share, atol=share)


def test_the_inside_of_a_segment_is_cut_further() -> None:
    model = onnx_zoo.build("cnn", 17)
    network = Network(model, bind_inputs(model.graph, {}))
    first = network.first_cuts()
    assert first
    end = model.graph.output[0].name
    inner = network.inner_cuts(end, first)
    assert not set(inner) & set(first)
    cut = network.cut([*inner, *first], [*inner, end])
    assert [segment.tensor for segment in cut.segments] == [*inner, end]
    assert all(segment.operator for segment in cut.segments)
    assert set(cut.inputs) <= {*inner, *first, *network.inputs}


def rounding_network() -> onnx.ModelProto:
    """Two layers between roundings, then a recurrent layer of another domain, whose type is not inferred, and a rounding of it."""
    g = GraphBuilder()
    x = g.input("x", [6, 1, 4])
    step, zero = g.constant(np.array(0.1, np.float32)), g.constant(np.array(0, np.int8))
    for _ in range(2):
        rounded = g.node("QuantizeLinear", x, step, zero)
        x = g.node("Relu", g.node("MatMul", g.node("DequantizeLinear", rounded, step, zero), g.weight(4, 4)))
    ones = [np.ones((1, 16), np.float32), np.zeros((1, 16), np.int8)]
    weights = g.constant(np.full((1, 4, 16), 3, np.int8))
    scales = [g.constant(array) for array in (*ones, *ones)]
    none = ["", "", "", "", ""]
    states = g.node(
        "DynamicQuantizeLSTM", x, weights, weights, *none, *scales, hidden_size=4, domain="com.microsoft"
    )
    g.output(g.node("DynamicQuantizeLinear", states, outputs=3)[0])
    return g.model(17)


def test_a_network_that_rounds_is_cut_around_its_roundings() -> None:
    model = rounding_network()
    specs = bind_inputs(model.graph, {})
    network = Network(model, specs)
    by_operator = {node.op_type: node.output[0] for node in model.graph.node}
    states = by_operator["DynamicQuantizeLSTM"]
    assert states in network.untyped()
    network.learn(states, np.zeros((6, 1, 1, 4), np.float32))
    cuts = network.first_cuts()
    rounded = [node for node in model.graph.node if node.op_type == "QuantizeLinear"]
    assert {node.output[0] for node in rounded} | {by_operator["Relu"], states} <= set(cuts)
    assert rounded[0].input[0] not in cuts, "an input of the network is no cut"
    assert network.rounding_within(rounded[1].output[0], cuts) is Rounding.AT_THE_END
    assert network.rounding_within(by_operator["Relu"], cuts) is Rounding.AT_THE_END
    assert network.rounding_within(states, cuts) is Rounding.FED_BACK
    assert network.rounding_within(by_operator["Relu"], [rounded[1].input[0]]) is Rounding.COMPUTED_ON
