"""TFLite files with open dimensions, sparse weights and state."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from tflite_writer import Sparsity, TfliteWriter
from tflite_zoo import ZOO
from tflite_zoo.program import running_sum
from tflite_zoo.recurrent import svdf_layer

from tunefarm_convert.tflite.convert import convert
from tunefarm_convert.tflite.parser import read_graphs
from tunefarm_tuning.core.errors import InvalidModelError

SVDF_OUTPUTS = (
    [[-53, -45, -4], [-115, -1, -4]],
    [[27, 59, -103], [26, 58, 13]],
    [[-128, -123, 35], [-128, -128, -128]],
)


def run(model: onnx.ModelProto, feeds: list[NDArray[Any]]) -> list[NDArray[Any]]:
    session = onnxruntime.InferenceSession(model.SerializeToString())
    names = [value.name for value in model.graph.input]
    return [np.asarray(output) for output in session.run(None, dict(zip(names, feeds, strict=True)))]


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


@pytest.mark.parametrize("options", [{}, {"rank": 1, "with_bias": False}, {"steps": 1}])
def test_an_svdf_layer_keeps_its_last_steps(options: dict[str, Any]) -> None:
    """The memory of each filter goes on by a step a call; the sums of a unit's filters are its output."""
    data = svdf_layer(**options).data
    model = convert(data)
    assert [value.name for value in model.graph.input] == ["t0", "steps_4"]
    constants = [tensor.data for tensor in read_graphs(data)[0].tensors if tensor.data is not None]
    features, times, bias = constants
    filters, steps = times.shape
    memory = np.zeros((2, filters * steps), np.float32)
    expected = np.zeros((2, filters, steps))
    for number in range(3):
        x = np.random.default_rng(number).normal(size=(2, 5)).astype(np.float32)
        expected = np.concatenate([expected[:, :, 1:], (x @ features.T)[:, :, None]], axis=2)
        sums = (expected * times).sum(axis=2).reshape(2, 3, -1).sum(axis=2)
        y, memory = run(model, [x, memory])
        np.testing.assert_allclose(
            y, np.maximum(sums + (bias if options.get("with_bias", True) else 0), 0), atol=1e-5
        )
        np.testing.assert_allclose(memory.reshape(expected.shape), expected, atol=1e-5)


def test_an_svdf_layer_of_integers_gives_what_the_interpreter_gives() -> None:
    """Recorded of TFLite's interpreter, TensorFlow 2.21, over three calls."""
    model = convert(svdf_layer(quantised=True).data)
    memory = np.zeros((2, 24), np.int16)
    for number, expected in enumerate(SVDF_OUTPUTS):
        x = np.random.default_rng(number).integers(-128, 128, (2, 5)).astype(np.int8)
        y, memory = run(model, [x, memory])
        np.testing.assert_array_equal(y, expected)


def test_an_svdf_layer_whose_memory_is_fed_is_refused() -> None:
    with pytest.raises(InvalidModelError, match="memory is not a variable") as caught:
        convert(svdf_layer(own_memory=True).data)
    assert caught.value.code == "unsupported-operator"


def test_a_bias_has_the_scales_of_its_only_dimension() -> None:
    """Older converters wrote the dimension of the weights to it, and files of theirs are still shipped."""
    net = TfliteWriter()
    w = net.constant(np.ones((1, 1, 1, 2), np.int8), scale=[0.5, 0.25], zero=[0, 0], axis=3)
    bias = net.constant(np.array([4, 8], np.int32), scale=[0.05, 0.025], zero=[0, 0], axis=3)
    x = net.input((1, 2, 2, 2), "int8", scale=0.1)
    fields = {
        "Padding": 1,
        "StrideW": 1,
        "StrideH": 1,
        "DepthMultiplier": 1,
        "DilationWFactor": 1,
        "DilationHFactor": 1,
    }
    y = net.op(
        "DEPTHWISE_CONV_2D", [x, w, bias], (1, 2, 2, 2), "int8", "DepthwiseConv2DOptions", fields, scale=0.05
    )
    (output,) = run(convert(net.data([y])), [np.full((1, 2, 2, 2), 4, np.int8)])
    np.testing.assert_array_equal(
        output[0, 0, 0], [8, 6]
    )  # 0.4 x 0.5 + 0.2 and 0.4 x 0.25 + 0.2, in steps of 0.05


def test_integers_of_32_bits_are_quantised() -> None:
    net = TfliteWriter()
    x = net.input((4,), "int16", scale=0.5)
    y = net.op("QUANTIZE", [x], (4,), "int32", "QuantizeOptions", scale=1e-5, zero=7)
    (output,) = run(convert(net.data([y])), [np.array([-32768, -1, 0, 32767], np.int16)])
    np.testing.assert_allclose(output, np.array([-1638400000, -50000, 0, 1638350000]) + 7, atol=100)
    assert output.dtype == np.int32


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
