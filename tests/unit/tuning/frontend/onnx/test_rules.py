"""Our rules for networks: what is refused whoever computes it."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest

from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.frontend.onnx.binding import bind_inputs
from tunefarm_tuning.frontend.onnx.rules import refuse_endless_scales, refuse_other_outputs


def parsed(inputs: str, outputs: str) -> onnx.GraphProto:
    text = f'<ir_version: 8, opset_import: ["" : 17]>\nnet ({inputs}) => ({outputs}) {{ y = Identity(x) }}'
    return onnx.parser.parse_model(text).graph


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        ("seq(float[3])", "is a sequence"),
        ("optional(float[3])", "is an optional"),
        ("map(int64, float[3])", "is a map"),
        ("sparse_tensor(float[3])", "is a sparse tensor"),
        ("string[3]", "is a tensor of string"),
    ],
)
def test_values_that_are_no_tensors_of_numbers_are_refused_by_name(kind: str, word: str) -> None:
    with pytest.raises(
        InvalidModelError, match=f"output 'y' {word}; .* remove this output from the model"
    ) as caught:
        refuse_other_outputs(parsed("float[3] x", f"float[3] z, {kind} y"))
    assert caught.value.code == "unsupported-dtype"
    with pytest.raises(InvalidModelError, match="input 'x' ") as caught:
        bind_inputs(parsed(f"{kind} x", "float[3] y"), {})
    assert caught.value.code == "unsupported-dtype"


def test_text_is_refused_with_what_to_do() -> None:
    with pytest.raises(InvalidModelError, match="train the classifier with integers for classes, or remove"):
        refuse_other_outputs(parsed("float[3] x", "string[3] y"))
    with pytest.raises(InvalidModelError, match="export the model behind what turns text into numbers"):
        bind_inputs(parsed("string[3] x", "float[3] y"), {})


def test_an_output_may_have_no_declared_dtype() -> None:
    graph = parsed("float[3] x", "float[3] y")
    graph.output[0].type.tensor_type.elem_type = 0
    refuse_other_outputs(graph)


@pytest.mark.parametrize(("scale", "word"), [("inf", "inf"), ("nan", "nan"), ("0.5", "")])
def test_a_scale_without_end_is_refused_where_it_stands(scale: str, word: str) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
net (float[3] x) => (int8[3] y) <float s = {0.5}, int8 zero = {0}> { [quantise] y = QuantizeLinear(x, s, zero) }"""
    graph = onnx.parser.parse_model(text).graph
    (weight,) = (tensor for tensor in graph.initializer if tensor.name == "s")
    weight.CopyFrom(onnx.numpy_helper.from_array(np.float32(scale), "s"))
    if not word:
        refuse_endless_scales(graph)
        return
    with pytest.raises(
        InvalidModelError, match=rf"'quantise' \(QuantizeLinear\) has a scale of {word}: "
    ) as caught:
        refuse_endless_scales(graph)
    assert (caught.value.code, caught.value.fields["node"]) == ("bad-scale", "quantise")
