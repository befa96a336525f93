"""Forms of TFLite's larger operators that cannot be converted are refused, and say why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from flatbuffers import flexbuffers
from tflite_writer import TfliteWriter
from tflite_zoo.cases import SAME, Net
from tflite_zoo.recurrent import lstm_layer

from tunefarm_convert.tflite.convert import convert
from tunefarm_convert.tflite.operators import control
from tunefarm_tuning.core.errors import InvalidModelError

DETECTION = {
    "max_detections": 3,
    "max_classes_per_detection": 1,
    "use_regular_nms": False,
    "nms_score_threshold": 0.1,
    "nms_iou_threshold": 0.4,
    "num_classes": 2,
    "y_scale": 1.0,
    "x_scale": 1.0,
    "h_scale": 1.0,
    "w_scale": 1.0,
}


def detections(**changes: Any) -> bytes:
    options = {name: value for name, value in (DETECTION | changes).items() if value is not None}
    net = Net()
    inputs = [net.input((1, 5, 4)), net.input((1, 5, 3)), net.weight(5, 4)]
    outputs = [net.tensor(shape) for shape in ((1, 3, 4), (1, 3), (1, 3), (1,))]
    data = bytes(flexbuffers.Dumps(options))
    net.op_of("CUSTOM", inputs, outputs, custom="TFLite_Detection_PostProcess", custom_options=data)
    return net.data(outputs)


def suppression(*, sigma: float = 0.0, rounds: int = 3) -> bytes:
    net = Net()
    scalars = [net.constant(np.array(value, np.float32)) for value in (0.5, 0.1, sigma)]
    inputs = [net.input((6, 4)), net.input((6,)), net.constant(np.array(rounds, np.int32)), *scalars]
    outputs = [net.tensor((rounds,), "int32"), net.tensor((rounds,)), net.tensor((), "int32")]
    net.op_of("NON_MAX_SUPPRESSION_V5", inputs, outputs, "NonMaxSuppressionV5Options")
    return net.data(outputs)


def loop(*, counts: bool) -> bytes:
    """A loop whose end an input decides, or (`counts`) that has none."""
    net = Net()
    x = net.input((), "int32")
    condition, body = net.subgraph(), net.subgraph()
    for graph in (condition, body):
        graph._inputs.append(graph.tensor((), "int32"))
    limit = condition.constant(np.array(9, np.int32))
    kind = "NOT_EQUAL" if counts else "LESS"
    condition.returns(condition.op(kind, [condition._inputs[0], limit], (), "bool"))
    step = body.constant(np.array(2, np.int32))
    body.returns(body.op("ADD", [body._inputs[0], step], (), "int32", "AddOptions"))
    start = net.constant(np.array(0, np.int32)) if counts else x
    output = net.tensor((), "int32")
    fields = {"CondSubgraphIndex": condition.number, "BodySubgraphIndex": body.number}
    net.op_of("WHILE", [start], [output], "WhileOptions", fields)
    return net.data([output])


def branches_of_two_shapes() -> bytes:
    net = Net()
    x = net.input((2, 3))
    numbers = []
    for axis in (0, 1):
        graph = net.subgraph()
        graph._inputs.append(graph.tensor((2, 3)))
        fields = {"KeepDims": False}
        shape = (3,) if axis == 0 else (2,)
        inputs = [graph._inputs[0], graph.ints(axis)]
        graph.returns(graph.op("SUM", inputs, shape, "float32", "ReducerOptions", fields))
        numbers.append(graph.number)
    condition = net.input((), "bool")
    fields = {"ThenSubgraphIndex": numbers[0], "ElseSubgraphIndex": numbers[1]}
    return net.data([net.op("IF", [condition, x], (3,), "float32", "IfOptions", fields)])


def operator(kind: str, shapes: list[tuple[int, ...]], options: str = "", **fields: Any) -> bytes:
    net = TfliteWriter()
    inputs = [net.input(shape) for shape in shapes]
    return net.data([net.op(kind, inputs, (2, 2), "float32", options, fields)])


def blocks(sizes: list[int], pads: list[list[int]], kind: str = "SPACE_TO_BATCH_ND") -> bytes:
    net = TfliteWriter()
    around = net.constant(np.array(pads, np.int32))
    return net.data([net.op(kind, [net.input((4, 5, 5, 2)), net.ints(*sizes), around], (1, 1, 1, 2))])


def normalised_lstm() -> bytes:
    net = Net()
    inputs = [
        net.input((1, 2, 3)),
        *(net.weight(4, 3) for _ in range(4)),
        *(net.weight(4, 4) for _ in range(4)),
    ]
    inputs += [-1, -1, -1, *(net.weight(4) for _ in range(4)), -1, -1]
    inputs += [net.tensor((1, 4), variable=True), net.tensor((1, 4), variable=True)]
    inputs += [net.weight(4) for _ in range(4)]
    options: Mapping[str, Any] = {"FusedActivationFunction": 4}
    kind = "UNIDIRECTIONAL_SEQUENCE_LSTM"
    return net.data(
        [net.op(kind, inputs, (1, 2, 4), "float32", "UnidirectionalSequenceLSTMOptions", options)]
    )


def volume_of_other_channels() -> bytes:
    net = Net()
    fields = {"Padding": SAME}
    for axis in "DHW":
        fields |= {f"Stride{axis}": 1, f"Dilation{axis}Factor": 1}
    inputs = [net.input((1, 4, 4, 4, 2)), net.weight(1, 1, 1, 3, 2)]
    return net.data([net.op("CONV_3D", inputs, (1, 4, 4, 4, 2), "float32", "Conv3DOptions", fields)])


def windows(*window: int, function: int = 1, strides: tuple[int, ...] = (1, 1)) -> bytes:
    net = Net()
    inputs = [net.input((9, 9)), net.constant(np.array(0, np.float32))]
    inputs += [net.constant(np.array(part, np.int64)) for part in (window, strides, (1, 1))]
    fields = {"ReduceFunction": function}
    return net.data([net.op("REDUCE_WINDOW", inputs, (1, 1), "float32", "ReduceWindowOptions", fields)])


def of_other_sizes() -> bytes:
    """A layer forward and backward whose second input has another number of steps."""
    net = Net()
    inputs = [net.input((1, 5, 3))]
    for _ in range(2):
        inputs += [net.weight(4, 3), net.weight(4, 4), net.weight(4), net.tensor((1, 4), variable=True)]
    inputs += [net.input((1, 6, 2)), net.weight(4, 2), net.weight(4, 2)]
    options = {"FusedActivationFunction": 4, "MergeOutputs": True}
    kind = "BIDIRECTIONAL_SEQUENCE_RNN"
    return net.data([net.op(kind, inputs, (1, 5, 8), "float32", "BidirectionalSequenceRNNOptions", options)])


def volume_of_a_size_out_of_reach() -> bytes:
    net = Net()
    fields = {"Padding": SAME}
    for axis in "DHW":
        fields |= {f"Stride{axis}": 1, f"Dilation{axis}Factor": 1}
    inputs = [net.ints(1, 4, 4, 9, 2), net.weight(1, 1, 1, 2, 2), net.input((1, 4, 4, 4, 2))]
    return net.data(
        [net.op("CONV_3D_TRANSPOSE", inputs, (1, 4, 4, 9, 2), "float32", "Conv3DOptions", fields)]
    )


def rounding(low: float, high: float, bits: int) -> bytes:
    return operator("FAKE_QUANT", [(2, 2)], "FakeQuantOptions", Min=low, Max=high, NumBits=bits)


def test_a_loop_without_an_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "_MAX_ROUNDS", 20)
    with pytest.raises(InvalidModelError, match="more than 20 times") as caught:
        convert(loop(counts=True))
    assert caught.value.code == "unsupported-operator"


@pytest.mark.parametrize(
    ("data", "code", "words"),
    [
        (detections(max_detections=101), "unsupported-operator", "chooses 101 boxes; the limit is 100"),
        (detections(num_classes=None), "invalid-tflite", "option num_classes is missing"),
        (detections(num_classes=9), "invalid-tflite", "do not fit 5 boxes and 9 classes"),
        (detections(y_scale=float("nan")), "invalid-tflite", "y_scale is not a number"),
        (
            detections(use_regular_nms=True, detections_per_class=2),
            "unsupported-operator",
            "limits the boxes of each class",
        ),
        (suppression(sigma=0.5), "unsupported-operator", "soft suppression"),
        (suppression(rounds=0), "unsupported-operator", "chooses 0 boxes"),
        (loop(counts=False), "unsupported-operator", "inputs decide how often"),
        (branches_of_two_shapes(), "unsupported-operator", r"branches give shapes \[3\] and \[2\]"),
        (blocks([0, 2], [[0, 0], [0, 0]]), "invalid-tflite", "do not fit"),
        (blocks([2, 2], [[0, 0], [0, 0]]), "invalid-tflite", "do not fit"),
        (blocks([2, 2], [[5, 6], [0, 0]], "BATCH_TO_SPACE_ND"), "invalid-tflite", "nothing stays"),
        (
            blocks([3, 1], [[0, 0], [0, 0]], "BATCH_TO_SPACE_ND"),
            "invalid-tflite",
            "cannot be divided into blocks of",
        ),
        (normalised_lstm(), "unsupported-operator", "normalises its gates"),
        (lstm_layer(3000, clip=1.0).data, "unsupported-operator", "3000 steps"),
        (volume_of_other_channels(), "invalid-tflite", "do not fit a volume"),
        (volume_of_a_size_out_of_reach(), "unsupported-operator", "for a volume of"),
        (of_other_sizes(), "invalid-tflite", "inputs of shapes"),
        (windows(5, 13), "unsupported-operator", "65 elements; the limit is 64"),
        (windows(2, 2, function=7), "unsupported-operator", "reduction number 7"),
        (windows(2, 0), "invalid-tflite", "does not fit 2 dimensions"),
        (windows(2, 2, strides=(1, 1, 1)), "invalid-tflite", "does not fit 2 dimensions"),
        (windows(1, 10), "invalid-tflite", "larger than"),
        (operator("MATRIX_SET_DIAG", [(2, 3), (2,)]), "unsupported-operator", "not square"),
        (operator("DYNAMIC_UPDATE_SLICE", [(2, 2), (3, 2), (2,)]), "invalid-tflite", "does not fit"),
        (operator("BUCKETIZE", [(2, 2)], "BucketizeOptions"), "invalid-tflite", "boundaries"),
        (rounding(0.0, 1.0, 9), "unsupported-operator", "9 bits"),
        (rounding(0.0, 1.0, 2**31 - 1), "unsupported-operator", "2147483647 bits"),
        (rounding(0.0, 1.0, -1), "unsupported-operator", "-1 bits"),
        (rounding(1.0, 1.0, 8), "invalid-tflite", "from 1.0 to 1.0"),
        (rounding(-np.inf, 1.0, 8), "invalid-tflite", "from -inf to 1.0"),
        (rounding(-3e38, 3e38, 8), "invalid-tflite", "to 3"),
        (rounding(0.0, 1e-44, 8), "invalid-tflite", "from 0.0 to 9"),
        (rounding(0.0, np.nan, 8), "invalid-tflite", "from 0.0 to nan"),
        (
            operator("STABLEHLO_COMPOSITE", [(2, 2)], "StableHLOCompositeOptions", Name="x"),
            "invalid-tflite",
            "calls graph number 0",
        ),
    ],
)
def test_what_cannot_be_read_is_said(data: bytes, code: str, words: str) -> None:
    with pytest.raises(InvalidModelError, match=words) as caught:
        convert(data)
    assert caught.value.code == code
