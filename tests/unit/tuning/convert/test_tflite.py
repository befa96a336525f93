"""TFLite files become ONNX models with the outputs of TFLite's interpreter; broken files become errors."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import litert_outputs
import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx_models import GraphBuilder
from tflite_writer import Sparsity, TfliteWriter
from tflite_zoo import ZOO, Case, Net
from tflite_zoo.custom import CUSTOM
from tflite_zoo.recurrent import lstm_layer

from tunefarm_convert import FileFormat, file_format
from tunefarm_convert.tflite.convert import CONVERTERS, convert
from tunefarm_convert.tflite.parser import read_graphs
from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.frontend.onnx.model_file import read_model

OUTPUTS = litert_outputs.recorded()
CODES = {
    None,
    "invalid-tflite",
    "truncated-model",
    "unsupported-operator",
    "unsupported-dtype",
    "zero-size",
    "too-large",
}


def run(model: onnx.ModelProto, feeds: list[NDArray[Any]]) -> list[NDArray[Any]]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    names = [value.name for value in model.graph.input]
    return [np.asarray(output) for output in session.run(None, dict(zip(names, feeds, strict=True)))]


def check(case: Case, expected: list[NDArray[Any]]) -> None:
    model = convert(case.data)
    onnx.checker.check_model(model)
    for output, wanted in zip(run(model, case.feeds()), expected, strict=True):
        assert (output.shape, output.dtype) == (wanted.shape, wanted.dtype)
        # Quantised, LiteRT computes with integers: a number may be rounded to the next step.
        step = 1.01 if wanted.dtype.name in ("int8", "uint8", "int16") else 2e-5
        np.testing.assert_allclose(output.astype(np.float64), wanted.astype(np.float64), rtol=1e-5, atol=step)


def operators(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def refused(data: bytes) -> InvalidModelError:
    with pytest.raises(InvalidModelError) as caught:
        convert(data)
    return caught.value


def test_every_file_of_the_zoo_is_recorded() -> None:
    assert set(OUTPUTS) == set(ZOO)


@pytest.mark.parametrize("name", list(ZOO))
def test_the_numbers_are_litert_s(name: str) -> None:
    check(ZOO[name](), OUTPUTS[name])


def test_every_operator_that_is_read_is_in_the_zoo() -> None:
    files = [make().data for make in (*ZOO.values(), *CUSTOM.values())]
    seen = {operator.kind for file in files for graph in read_graphs(file) for operator in graph.operators}
    # These two are casts of a part, once complex tensors are two.
    assert set(CONVERTERS) | {"REAL", "IMAG"} == seen


def test_equal_files_make_equal_models() -> None:
    data = ZOO["a_block_with_a_gate"]().data
    assert convert(data).SerializeToString() == convert(data).SerializeToString()


def test_a_chain_is_transposed_at_its_ends_alone() -> None:
    kinds = operators(convert(ZOO["a_block_with_a_gate"]().data))
    assert [i for i, kind in enumerate(kinds) if kind == "Transpose"] == [0, len(kinds) - 1]


def test_transposes_of_the_file_s_own_cancel() -> None:
    kinds = operators(convert(ZOO["transpose_around_convolutions"]().data))
    assert kinds == ["Conv", "Transpose"]  # the last one is not about layouts


def test_padding_becomes_the_convolution_s() -> None:
    for name in ("conv_2d_of_padded", "quantized_conv_of_padded"):
        assert "Pad" not in operators(convert(ZOO[name]().data))
    assert "Pad" in operators(convert(ZOO["padv2_then_conv"]().data))


def test_weights_stay_as_small_as_they_are() -> None:
    def kinds(name: str) -> Counter[int]:
        return Counter(w.data_type for w in convert(ZOO[name]().data).graph.initializer if len(w.dims) == 4)

    assert kinds("quantized_network") == {onnx.TensorProto.INT8: 2}
    assert kinds("conv_2d_of_float16") == {onnx.TensorProto.FLOAT16: 1}


def test_names_of_inputs_and_outputs_are_the_file_s() -> None:
    net = TfliteWriter()
    x = net.input((2, 3), name="serving_default_x:0")
    y = net.op("RELU", [x], (2, 3), name="StatefulPartitionedCall:0")
    z = net.op("NEG", [y], (2, 3), name="StatefulPartitionedCall:0")
    model = convert(net.data([y, z]))
    assert [v.name for v in model.graph.input] == ["serving_default_x:0"]
    assert [v.name for v in model.graph.output] == [
        "StatefulPartitionedCall:0",
        "StatefulPartitionedCall:0__2",
    ]


def test_weights_alone_in_integers_are_read_as_what_they_stand_for() -> None:
    """LiteRT rounds the activations too; that is its speed, not the model's meaning."""
    net = Net()
    numbers = np.array([[10, -20, 30], [-127, 0, 5]], np.int8)
    w = net.constant(numbers, scale=[0.1, 0.02], axis=0)
    case = net.case(
        net.op("FULLY_CONNECTED", [net.input((2, 3)), w, -1], (2, 2), options="FullyConnectedOptions")
    )
    (x,) = case.feeds()
    (output,) = run(convert(case.data), [x])
    weights = numbers.astype(np.float32) * np.array([[0.1], [0.02]], np.float32)
    np.testing.assert_allclose(output, x @ weights.T, rtol=1e-5, atol=1e-5)


def test_an_lstm_of_8_bit_weights_is_one_of_the_numbers_that_they_stand_for() -> None:
    lstms = [lstm_layer(5, hybrid=hybrid) for hybrid in (True, False)]
    (x,) = lstms[0].feeds()
    (output,), (expected,) = (run(convert(case.data), [x]) for case in lstms)
    np.testing.assert_allclose(output, expected, atol=1e-5)


def test_a_dilated_convolution_in_blocks_is_one_convolution() -> None:
    for name in ("in_blocks_same", "in_blocks_same_of_3_depthwise", "in_blocks_valid"):
        model = convert(ZOO[name]().data)
        assert [kind for kind in operators(model) if kind in ("Conv", "Reshape", "Pad")] == ["Conv"]


def test_all_operators_that_are_not_read_are_named_at_once() -> None:
    net = TfliteWriter()
    x = net.input((2, 3))
    y = net.op("RELU", [x], (2, 3))
    for _ in range(3):
        y = net.op("FAKE_QUANT", [y], (2, 3))
    out = net.tensor((2, 3))
    net.op_of("CUSTOM", [y], [out], custom="Flex\nThing")
    error = refused(net.data([out]))
    assert error.code == "unsupported-operator"
    assert "FAKE_QUANT (operator number 1, 3 in all)" in error.message
    assert r"custom operator Flex\nThing (operator number 4)" in error.message
    assert error.fields["operators"] == ["FAKE_QUANT", r"custom operator Flex\nThing"]


def test_open_dimensions_take_the_sizes_that_are_given() -> None:
    """A batch of three computes what three calls compute; the sizes inside follow."""
    case = ZOO["open_dimensions"]()
    batch = np.concatenate([feeds + np.float32(i) for i, feeds in enumerate(case.feeds() * 3)])
    model = convert(case.data, {"t0": batch.shape})
    assert [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim] == [3, 8, 3]
    images, rows = run(model, [batch])
    single = [run(convert(case.data), [batch[i : i + 1]]) for i in range(3)]
    np.testing.assert_allclose(images, np.concatenate([image for image, _ in single]), atol=1e-5)
    np.testing.assert_allclose(rows, np.concatenate([row for _, row in single]), atol=1e-5)
    longer = convert(case.data, {"t0": (1, 21, 3)})
    assert [d.dim_value for d in longer.graph.output[0].type.tensor_type.shape.dim] == [1, 11, 4]
    assert convert(case.data, {"t0": (1, 8, 3)}) == convert(case.data)


@pytest.mark.parametrize(
    ("shape", "code", "words"),
    [
        ((2, 8), "bad-shape", "give as many sizes"),
        ((0, 8, 3), "bad-shape", "above zero"),
        ((1, "x", 3), "bad-shape", "above zero"),
        ((1, 8, 4), "bad-shape", "cannot have the shapes that are given: .* do not fit"),
    ],
)
def test_a_shape_that_the_network_cannot_have_is_refused(shape: Any, code: str, words: str) -> None:
    with pytest.raises(InvalidModelError, match=words) as caught:
        convert(ZOO["open_dimensions"]().data, {"t0": shape})
    assert caught.value.code == code


def test_a_fixed_size_may_change_where_the_graph_allows_it() -> None:
    model = convert(ZOO["a_block_with_a_gate"]().data)
    name = model.graph.input[0].name
    shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    wider = convert(ZOO["a_block_with_a_gate"]().data, {name: (2, *shape[1:])})
    assert wider.graph.output[0].type.tensor_type.shape.dim[0].dim_value == 2


def test_products_with_a_spectrum_become_one() -> None:
    kinds = operators(convert(ZOO["bands_of_a_spectrum"]().data))
    assert kinds.count("MatMul") == 1
    assert "Gemm" not in kinds


def sparse(**changes: Any) -> bytes:
    layout = {"order": (0, 1), "levels": (3, ((0, 2, 2, 3), (0, 3, 1)))} | changes
    net = TfliteWriter()
    shape = layout.pop("shape", (3, 4))
    w = net.tensor(shape, data=np.ones(3, np.float32), sparsity=Sparsity(**layout))
    return net.data([net.op("ADD", [net.input(shape), w], shape)])


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({"order": (0, 0)}, "invalid-tflite", "levels are not those"),
        ({"order": (0,)}, "invalid-tflite", "levels are not those"),
        ({"levels": (2, ((0, 2, 3), (0, 3, 1)))}, "invalid-tflite", "has 2 positions"),
        ({"levels": (3, ((0, 2, 3), (0, 3, 1)))}, "invalid-tflite", "lists of positions"),
        ({"levels": (3, ((0, 2, 1, 3), (0, 3, 1)))}, "invalid-tflite", "lists of positions"),
        ({"levels": (3, ((0, 2, 2, 3), (0, 4, 1)))}, "invalid-tflite", "lists of positions"),
        ({"levels": (3, ((0, 2, 2, 3), (1, 1, 1)))}, "invalid-tflite", "stores an element twice"),
        ({"levels": (3, ((0, 1, 1, 1), (0,)))}, "invalid-tflite", "should hold 4 bytes"),
        ({"order": (0, 1, 2), "blocks": (5,), "levels": (3, 4, 1)}, "invalid-tflite", "blocks are of no dim"),
        ({"order": (0, 1, 2), "blocks": (1,), "levels": (3, 1, 3)}, "invalid-tflite", "blocks of 3 do not"),
        ({"shape": (1 << 15, 1 << 15)}, "too-large", "the limit is"),
    ],
)
def test_damaged_sparse_tensors_are_errors(changes: Any, code: str, words: str) -> None:
    with pytest.raises(InvalidModelError, match=words) as caught:
        convert(sparse(**changes))
    assert caught.value.code == code


def running_sum(*, in_branch: bool = False, wider: bool = False) -> bytes:
    """A network that adds its input to what it has added up before, and gives twice the sum."""
    net = TfliteWriter()
    x = net.input((2,))
    start = net.subgraph()
    options = {"SharedName": "sum"}
    first = start.op("VAR_HANDLE", [], (), "resource", "VarHandleOptions", options)
    start.op_of("ASSIGN_VARIABLE", [first, start.constant(np.array([5, 5], np.float32))], [])
    net.op_of("CALL_ONCE", [], [], "CallOnceOptions", {"InitSubgraphIndex": start.number})
    handle = net.op("VAR_HANDLE", [], (), "resource", "VarHandleOptions", options)
    old = net.op("READ_VARIABLE", [handle], (2,), options="ReadVariableOptions")
    total = net.op("ADD", [old, x], (2,), options="AddOptions")
    if wider:
        total = net.op("CONCATENATION", [total, x], (4,), "float32", "ConcatenationOptions", {"Axis": 0})
    if in_branch:
        body = net.subgraph()
        inner = body.op("VAR_HANDLE", [], (), "resource", "VarHandleOptions", {"SharedName": "other"})
        body._inputs.append(body.tensor((2,)))
        body.op_of("ASSIGN_VARIABLE", [inner, body._inputs[0]], [])
        body.returns(body._inputs[0])
        net.op_of("CALL_ONCE", [], [], "CallOnceOptions", {"InitSubgraphIndex": start.number})
        fields = {"DecompositionSubgraphIndex": body.number}
        total = net.op("STABLEHLO_COMPOSITE", [total], (2,), "float32", "StableHLOCompositeOptions", fields)
    net.op_of("ASSIGN_VARIABLE", [handle, total], [])
    new = net.op("READ_VARIABLE", [handle], (2,), options="ReadVariableOptions")
    return net.data([net.op("ADD", [new, new], (2,), options="AddOptions")])


def test_state_is_an_input_and_an_output() -> None:
    model = convert(running_sum())
    assert [value.name for value in model.graph.input] == ["t0", "sum"]
    assert [value.name for value in model.graph.output][1:] == ["sum_next"]
    assert [(prop.key, prop.value) for prop in model.metadata_props] == [("tunefarm.state.sum", "sum_next")]
    state = np.array([5, 5], np.float32)
    for number in range(3):
        doubled, state = run(model, [np.array([1, number], np.float32), state])
        np.testing.assert_allclose(doubled, 2 * state)
    np.testing.assert_allclose(state, [8, 8])


@pytest.mark.parametrize(
    ("data", "code", "words"),
    [
        (running_sum(in_branch=True), "unsupported-operator", "does not read in its first graph"),
        (running_sum(wider=True), "invalid-tflite", r"state 'sum' of shape \[2\] to a tensor of shape \[4\]"),
    ],
)
def test_state_that_cannot_be_an_input_is_refused(data: bytes, code: str, words: str) -> None:
    with pytest.raises(InvalidModelError, match=words) as caught:
        convert(data)
    assert caught.value.code == code


def code_of(data: bytes) -> str | None:
    try:
        convert(data)
    except InvalidModelError as error:
        return error.code
    return None


def a_graph_that_is_not_there() -> bytes:
    net = TfliteWriter()
    net.op_of("CALL_ONCE", [], [], "CallOnceOptions", {"InitSubgraphIndex": 3})
    return net.data([net.op("RELU", [net.input((2,))], (2,))])


def a_graph_that_calls_itself() -> bytes:
    net = TfliteWriter()
    inner = net.subgraph()
    inner.op_of("CALL_ONCE", [], [], "CallOnceOptions", {"InitSubgraphIndex": 1})
    net.op_of("CALL_ONCE", [], [], "CallOnceOptions", {"InitSubgraphIndex": 1})
    return net.data([net.op("RELU", [net.input((2,))], (2,))])


def used_before_it_is_computed() -> bytes:
    net = TfliteWriter()
    a, b = net.tensor((2,)), net.tensor((2,))
    net.op_of("RELU", [a], [b])
    net.op_of("RELU", [b], [a])
    return net.data([b])


def of_strings() -> bytes:
    net = TfliteWriter()
    return net.data([net.input((2,), "string")])


def of_nothing() -> bytes:
    net = TfliteWriter()
    return net.data([net.op("RELU", [net.input((0, 3))], (0, 3))])


def of_negative_size() -> bytes:
    net = TfliteWriter()
    return net.data([net.op("RELU", [net.input((-2, 3))], (-2, 3))])


def reshaped_to_another_size() -> bytes:
    net = TfliteWriter()
    return net.data([net.op("RESHAPE", [net.input((2, 3))], (7,))])


def wrong_shape_inside() -> bytes:
    net = TfliteWriter()
    y = net.op("RELU", [net.input((2, 3))], (3, 3))
    return net.data([net.op("NEG", [y], (3, 3))])


def short_weights() -> bytes:
    net = TfliteWriter()
    w = net.tensor((2, 3), data=np.zeros(5, np.float32))
    return net.data([net.op("ADD", [net.input((2, 3)), w], (2, 3))])


def zero_strides() -> bytes:
    net = TfliteWriter()
    x, w = net.input((1, 4, 4, 1)), net.weight(1, 1, 1, 1)
    return net.data([net.op("CONV_2D", [x, w], (1, 4, 4, 1), options="Conv2DOptions")])


def computed_axis() -> bytes:
    net = TfliteWriter()
    axis = net.input((1,), "int32")
    return net.data([net.op("SUM", [net.input((2, 3)), axis], (2,), options="ReducerOptions")])


@pytest.mark.parametrize(
    ("make", "code", "words"),
    [
        (a_graph_that_is_not_there, "invalid-tflite", "calls graph number 3 of 1"),
        (a_graph_that_calls_itself, "invalid-tflite", "more than 16 graphs"),
        (used_before_it_is_computed, "invalid-tflite", "before anything computes it"),
        (of_strings, "unsupported-dtype", "string"),
        (of_nothing, "zero-size", "nothing to compute"),
        (of_negative_size, "invalid-tflite", "invalid shape"),
        (reshaped_to_another_size, "invalid-tflite", "number of elements"),
        (wrong_shape_inside, "invalid-tflite", r"but the operators before it make \[2, 3\]"),
        (short_weights, "invalid-tflite", "should hold 24 bytes, but holds 20"),
        (zero_strides, "invalid-tflite", "above zero"),
        (computed_axis, "unsupported-operator", "computed by the graph"),
    ],
)
def test_what_cannot_be_read_is_said(make: Any, code: str, words: str) -> None:
    with pytest.raises(InvalidModelError, match=words) as caught:
        convert(make())
    assert caught.value.code == code


@given(st.integers(min_value=0, max_value=2**32))
@settings(max_examples=60, deadline=None)
def test_whatever_is_broken_is_an_error_of_ours(seed: int) -> None:
    draw = random.Random(seed)
    data = bytearray(BROKEN[draw.choice(sorted(BROKEN))])
    for _ in range(draw.choice([1, 1, 2, 4, 16])):
        at = draw.randrange(len(data))
        data[at] = draw.choice([0, 255, 127, 128, data[at] ^ (1 << draw.randrange(8))])
    broken = bytes(data) if draw.random() < 0.8 else bytes(data[: draw.randrange(len(data))])
    assert code_of(broken) in CODES


BROKEN = {
    name: ZOO[name]().data
    for name in (
        "a_block_with_a_gate",
        "quantized_network",
        "reshape_by_shape",
        "sparse_weights_in_blocks",
        "open_dimensions",
        "a_loop_of_fixed_rounds",
        "detections_of_two_classes_each",
        "lstm_with_peepholes",
        "in_blocks_same",
        "spectrum_of_images_cut_and_padded",
    )
} | {"crop_of_landmarks": CUSTOM["crop_of_landmarks"]().data, "state": running_sum()}


def test_an_onnx_file_whose_producer_s_name_begins_as_a_tflite_file_is_onnx(tmp_path: Path) -> None:
    path = tmp_path / "net"
    g = GraphBuilder()
    g.output(g.linear(g.input("x", [1, 8]), 8, 4))
    onnx.save(g.model(producer_name="TFL3-export"), path)
    assert path.read_bytes()[4:8] == b"TFL3"
    assert read_model(path).producer_name == "TFL3-export"
    assert all(file_format(make().data) is FileFormat.TFLITE for make in ZOO.values())
