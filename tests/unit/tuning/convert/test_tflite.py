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
from tflite_writer import TfliteWriter
from tflite_zoo import ZOO, Case, Net
from tflite_zoo.bidirectional import bidirectional_lstm
from tflite_zoo.custom import CUSTOM
from tflite_zoo.program import running_sum
from tflite_zoo.recurrent import lstm_layer, svdf_layer

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


@pytest.mark.matrix(every=3, each_value=False)
@pytest.mark.parametrize("name", list(ZOO))
def test_the_numbers_are_litert_s(name: str) -> None:
    check(ZOO[name](), OUTPUTS[name])


def test_both_directions_of_several_samples_are_merged() -> None:
    """The interpreter merges other numbers at each call."""
    apart, merged = (bidirectional_lstm(merged=merged) for merged in (False, True))
    (output,) = run(convert(merged.data), merged.feeds())
    np.testing.assert_array_equal(output, np.concatenate(run(convert(apart.data), apart.feeds()), axis=2))
    np.testing.assert_allclose(output[..., :4], OUTPUTS["bidirectional_lstm_of_two_outputs"][0], atol=2e-5)


def test_windows_of_another_shape() -> None:
    (x,) = ZOO["reduce_window_sum"]().feeds()
    model = convert(ZOO["reduce_window_sum"]().data, {"t0": (4, 7, 6)})
    (output,) = run(model, [np.concatenate([x, x])])
    np.testing.assert_allclose(output, np.concatenate(OUTPUTS["reduce_window_sum"] * 2), rtol=1e-5)


def test_rows_of_no_segment_are_left_out() -> None:
    net = Net()
    inputs = [net.input((5, 2)), net.input((5,), "int32"), net.constant(np.array(3, np.int32))]
    output = net.op("UNSORTED_SEGMENT_SUM", inputs, (3, 2), options="UnsortedSegmentSumOptions")
    rows = np.arange(10, dtype=np.float32).reshape(5, 2)
    (sums,) = run(convert(net.data([output])), [rows, np.array([2, 3, -1, 2**31 - 1, 0], np.int32)])
    np.testing.assert_array_equal(sums, [rows[4], [0, 0], rows[0]])


def test_every_operator_that_is_read_is_in_the_zoo() -> None:
    # A layer with a memory has inputs that its file lacks; `test_tflite_programs` runs it.
    files = [make().data for make in (*ZOO.values(), *CUSTOM.values(), svdf_layer)]
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
        y = net.op("BITCAST", [y], (2, 3))
    out = net.tensor((2, 3))
    net.op_of("CUSTOM", [y], [out], custom="Flex\nThing")
    error = refused(net.data([out]))
    assert error.code == "unsupported-operator"
    assert "BITCAST (operator number 1, 3 in all)" in error.message
    assert r"custom operator Flex\nThing (operator number 4)" in error.message
    assert error.fields["operators"] == ["BITCAST", r"custom operator Flex\nThing"]


def test_products_with_a_spectrum_become_one() -> None:
    kinds = operators(convert(ZOO["bands_of_a_spectrum"]().data))
    assert kinds.count("MatMul") == 1
    assert "Gemm" not in kinds


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
} | {
    "crop_of_landmarks": CUSTOM["crop_of_landmarks"]().data,
    "state": running_sum(),
    "memory": svdf_layer().data,
}


def test_an_onnx_file_whose_producer_s_name_begins_as_a_tflite_file_is_onnx(tmp_path: Path) -> None:
    path = tmp_path / "net"
    g = GraphBuilder()
    g.output(g.linear(g.input("x", [1, 8]), 8, 4))
    onnx.save(g.model(producer_name="TFL3-export"), path)
    assert path.read_bytes()[4:8] == b"TFL3"
    assert read_model(path).producer_name == "TFL3-export"
    assert all(file_format(make().data) is FileFormat.TFLITE for make in ZOO.values())
