"""Recurrent layers, dilated convolutions in blocks, volumes, and operators that write into tensors."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from tflite_writer import scattered

from tflite_zoo.cases import RELU, SAME, VALID, ZOO, Case, Net, case

TANH = 4


def lstm_layer(
    steps: int,
    *,
    clip: float = 0.0,
    coupled: bool = False,
    peepholes: bool = False,
    projected: int = 0,
    time_major: bool = False,
    own_state: bool = False,
    hybrid: bool | None = None,
) -> Case:
    """A layer of 4 units, of inputs of 3 elements, of two samples.

    Args:
        steps: The number of steps.
        clip: Where cells are cut; 0 for nowhere.
        coupled: Whether the input gate is what the forget gate leaves.
        peepholes: Whether gates see the cells.
        projected: The number of elements that states are projected to; 0 for no projection.
        time_major: Whether the steps come before the batch.
        own_state: Whether inputs of the network are the first state.
        hybrid: Weights of 8 bits, or the floats that these stand for (False); other floats, if None.
    """
    net = Net()
    units, size, out = 4, 3, projected or 4
    shape = (steps, 2) if time_major else (2, steps)

    def weight(*sizes: int) -> int:
        if hybrid is None:
            return net.weight(*sizes)
        net._seed += 1
        rounded = np.round(scattered(sizes, net._seed) * 127)
        if hybrid:
            return net.constant(rounded.astype(np.int8), scale=0.01)
        return net.constant((rounded * np.float64(np.float32(0.01))).astype(np.float32))

    def each(*sizes: int) -> list[int]:
        return [-1 if coupled else weight(*sizes), *(weight(*sizes) for _ in range(3))]

    inputs = [net.input((*shape, size)), *each(units, size), *each(units, out)]
    inputs += [net.weight(units) if peepholes and not (coupled and not i) else -1 for i in range(3)]
    inputs += [net.weight(units) if i or not coupled else -1 for i in range(4)]
    inputs += [net.weight(out, units) if projected else -1, -1]
    for length in (out, units):
        inputs.append(net.input((2, length)) if own_state else net.tensor((2, length), variable=True))
    inputs += [-1] * 4
    fields = {"FusedActivationFunction": TANH, "CellClip": clip, "TimeMajor": time_major}
    options = "UnidirectionalSequenceLSTMOptions"
    result = net.op("UNIDIRECTIONAL_SEQUENCE_LSTM", inputs, (*shape, out), "float32", options, fields)
    return net.case(result)


def _lstm(name: str, steps: int, **fields: Any) -> None:
    ZOO[f"lstm_{name}"] = lambda: lstm_layer(steps, **fields)


_lstm("plain", 5)
_lstm("with_steps_first", 5, time_major=True)
_lstm("without_input_gate", 5, coupled=True)
_lstm("with_peepholes", 4, peepholes=True)
_lstm("without_input_gate_with_peepholes", 4, coupled=True, peepholes=True)
_lstm("with_projection", 4, projected=2)
_lstm("with_projection_and_peepholes", 4, projected=2, peepholes=True)
_lstm("with_cells_cut", 12, clip=0.4)
_lstm("with_a_clip_that_is_not_reached", 5, clip=10.0)


def _rnn(name: str, activation: int, *, time_major: bool = False) -> None:
    def make() -> Case:
        net = Net()
        shape = (5, 2) if time_major else (2, 5)
        inputs = [net.input((*shape, 3)), net.weight(4, 3), net.weight(4, 4, spread=0.5), net.weight(4)]
        inputs.append(net.tensor((2, 4), variable=True))
        fields = {"FusedActivationFunction": activation, "TimeMajor": time_major}
        result = net.op(
            "UNIDIRECTIONAL_SEQUENCE_RNN", inputs, (*shape, 4), "float32", "SequenceRNNOptions", fields
        )
        return net.case(result)

    ZOO[f"rnn_{name}"] = make


_rnn("tanh", TANH)
_rnn("relu_with_steps_first", RELU, time_major=True)


def svdf_layer(
    *,
    rank: int = 2,
    steps: int = 4,
    with_bias: bool = True,
    quantised: bool = False,
    own_memory: bool = False,
) -> Case:
    """A layer of 3 units, of inputs of 5 elements, of two samples."""
    net = Net()
    filters, units, size = 3 * rank, 3, 5
    if quantised:
        x = net.input((2, size), "int8", scale=0.05, zero=3)
        rng = np.random.default_rng(4)
        weights = [
            net.constant(rng.integers(-127, 128, (filters, size)).astype(np.int8), scale=0.01),
            net.constant(rng.integers(-3000, 3000, (filters, steps)).astype(np.int16), scale=1e-4),
        ]
        bias = net.constant(rng.integers(-500, 500, units).astype(np.int32), scale=1e-6)
        memory = net.tensor((2, filters * steps), "int16", variable=True, scale=0.01)
        output = {"scale": 0.02, "zero": -4}
    else:
        x, weights = net.input((2, size)), [net.weight(filters, size), net.weight(filters, steps)]
        bias = net.weight(units)
        shape = (2, filters * steps)
        memory = net.input(shape) if own_memory else net.tensor(shape, variable=True)
        output = {}
    inputs = [x, *weights, bias if with_bias else -1, memory]
    fields = {"Rank": rank, "FusedActivationFunction": RELU}
    dtype = "int8" if quantised else "float32"
    return net.case(net.op("SVDF", inputs, (2, units), dtype, "SVDFOptions", fields, **output))


def _in_blocks(
    name: str,
    block: int,
    pads: Sequence[int],
    crops: Sequence[int],
    *,
    depthwise: bool = False,
    stride: int = 1,
) -> None:
    """A dilated convolution as older converters write it, of an image of 9 by 9."""

    def make() -> Case:
        net = Net()
        padded = 9 + pads[0] + pads[1]
        batch, size = block * block, padded // block
        around = net.constant(np.array([pads, pads], np.int32))
        x = net.op(
            "SPACE_TO_BATCH_ND",
            [net.input((1, 9, 9, 3)), net.ints(block, block), around],
            (batch, size, size, 3),
            options="SpaceToBatchNDOptions",
        )
        fields: dict[str, Any] = {"Padding": VALID, "StrideH": stride, "StrideW": stride}
        fields |= {"DilationHFactor": 1, "DilationWFactor": 1, "FusedActivationFunction": RELU}
        inner = (size - 3) // stride + 1
        if depthwise:
            fields["DepthMultiplier"] = 1
            weights = [net.weight(1, 3, 3, 3), net.weight(3)]
            kind, channels = "DEPTHWISE_CONV_2D", 3
        else:
            weights = [net.weight(5, 3, 3, 3), net.weight(5)]
            kind, channels = "CONV_2D", 5
        options = "DepthwiseConv2DOptions" if depthwise else "Conv2DOptions"
        y = net.op(kind, [x, *weights], (batch, inner, inner, channels), "float32", options, fields)
        cut = net.constant(np.array([crops, crops], np.int32))
        out = inner * block - crops[0] - crops[1]
        inputs = [y, net.ints(block, block), cut]
        return net.case(
            net.op("BATCH_TO_SPACE_ND", inputs, (1, out, out, channels), options="BatchToSpaceNDOptions")
        )

    ZOO[f"in_blocks_{name}"] = make


_in_blocks("same", 2, (2, 3), (0, 1))
_in_blocks("same_of_3_depthwise", 3, (3, 3), (0, 0), depthwise=True)
_in_blocks("valid", 2, (0, 1), (0, 1))
_in_blocks("cropped_by_more_than_padded", 2, (0, 1), (1, 2))
_in_blocks("strided", 2, (2, 3), (0, 1), stride=2)


@case
def blocks_of_a_sequence() -> Case:
    net = Net()
    pads = net.constant(np.array([[1, 0]], np.int32))
    x = net.op(
        "SPACE_TO_BATCH_ND",
        [net.input((2, 5, 3)), net.ints(3), pads],
        (6, 2, 3),
        options="SpaceToBatchNDOptions",
    )
    y = net.op("TANH", [x], (6, 2, 3))
    crops = net.constant(np.array([[1, 0]], np.int32))
    return net.case(
        net.op("BATCH_TO_SPACE_ND", [y, net.ints(3), crops], (2, 5, 3), options="BatchToSpaceNDOptions")
    )


def _volume(name: str, padding: int, stride: int, dilation: int, out: Sequence[int]) -> None:
    def make() -> Case:
        net = Net()
        fields = {"Padding": padding, "FusedActivationFunction": RELU}
        for axis in "DHW":
            fields |= {f"Stride{axis}": stride, f"Dilation{axis}Factor": dilation}
        inputs = [net.input((1, 5, 6, 7, 2)), net.weight(2, 3, 3, 2, 4), net.weight(4)]
        return net.case(net.op("CONV_3D", inputs, (1, *out, 4), "float32", "Conv3DOptions", fields))

    ZOO[f"conv_3d_{name}"] = make


_volume("same", SAME, 1, 1, (5, 6, 7))
_volume("same_strided", SAME, 2, 1, (3, 3, 4))
_volume("valid", VALID, 1, 1, (4, 4, 5))


def _transposed_volume(
    name: str, padding: int, stride: int, out: Sequence[int], *, dilation: int = 1, bias: bool = True
) -> None:
    def make() -> Case:
        net = Net()
        fields = {"Padding": padding, "FusedActivationFunction": RELU if bias else 0}
        for axis in "DHW":
            fields |= {f"Stride{axis}": stride, f"Dilation{axis}Factor": dilation}
        inputs = [net.ints(1, *out, 4), net.weight(2, 3, 3, 4, 2), net.input((1, 3, 4, 2, 2))]
        inputs += [net.weight(4)] if bias else []
        return net.case(net.op("CONV_3D_TRANSPOSE", inputs, (1, *out, 4), "float32", "Conv3DOptions", fields))

    ZOO[f"conv_3d_transpose_{name}"] = make


_transposed_volume("same", SAME, 1, (3, 4, 2))
_transposed_volume("same_strided", SAME, 2, (6, 8, 4))
_transposed_volume("same_of_odd_sizes", SAME, 2, (5, 7, 3))
_transposed_volume("valid", VALID, 2, (6, 9, 5), bias=False)
_transposed_volume("valid_with_rows_that_no_window_reaches", VALID, 3, (8, 13, 7))
_transposed_volume("dilated", VALID, 1, (5, 8, 6), dilation=2)


@case
def scattered_rows_add_up() -> Case:
    net = Net()
    rows = net.constant(np.array([[3], [0], [3]], np.int32))
    inputs = [rows, net.input((3, 2)), net.ints(5, 2)]
    return net.case(net.op("SCATTER_ND", inputs, (5, 2), options="ScatterNdOptions"))


def segments(kind: str, ids: Any, count: int) -> Case:
    net = Net()
    inputs = [net.input((*np.shape(ids), 3)), net.constant(np.array(ids, np.int32))]
    inputs += [] if kind == "SEGMENT_SUM" else [net.constant(np.array(count, np.int32))]
    options = {"SEGMENT_SUM": "SegmentSumOptions", "UNSORTED_SEGMENT_SUM": "UnsortedSegmentSumOptions"}
    return net.case(net.op(kind, inputs, (count, 3), options=options.get(kind, "")))


for kind in ("MAX", "MIN", "PROD", "SUM"):
    name = f"unsorted_segments_{kind.lower()}"
    ZOO[name] = partial(segments, f"UNSORTED_SEGMENT_{kind}", [3, 0, 3, 0, 1], 4)
ZOO["segments_of_a_matrix"] = partial(segments, "UNSORTED_SEGMENT_SUM", [[2, 0], [2, 1], [0, 0]], 3)
ZOO["segments_in_order"] = partial(segments, "SEGMENT_SUM", [0, 0, 1, 2, 2], 3)


@case
def sparse_to_dense() -> Case:
    net = Net()
    places = net.constant(np.array([[0, 1], [2, 0]], np.int32))
    filler = net.constant(np.array(-1, np.float32))
    inputs = [places, net.ints(3, 2), net.input((2,)), filler]
    return net.case(net.op("SPARSE_TO_DENSE", inputs, (3, 2), options="SparseToDenseOptions"))


@case
def a_slice_is_replaced() -> Case:
    net = Net()
    x, part = net.input((3, 5, 2)), net.input((2, 3, 2))
    inner = net.op(
        "DYNAMIC_UPDATE_SLICE", [x, part, net.ints(1, 1, 0)], (3, 5, 2), options="DynamicUpdateSliceOptions"
    )
    beyond = net.op(
        "DYNAMIC_UPDATE_SLICE", [x, part, net.ints(-4, 9, 0)], (3, 5, 2), options="DynamicUpdateSliceOptions"
    )
    return net.case(inner, beyond)


@case
def a_slice_is_replaced_where_an_input_says() -> Case:
    net = Net()
    x, part, starts = net.input((4, 3)), net.input((2, 3)), net.input((2,), "int32")
    result = net.op("DYNAMIC_UPDATE_SLICE", [x, part, starts], (4, 3), options="DynamicUpdateSliceOptions")
    return net.case(result, low=0, high=3)


@case
def diagonals() -> Case:
    net = Net()
    x, matrix = net.input((2, 3)), net.input((2, 3, 3))
    return net.case(
        net.op("MATRIX_DIAG", [x], (2, 3, 3), options="MatrixDiagOptions"),
        net.op("MATRIX_SET_DIAG", [matrix, x], (2, 3, 3), options="MatrixSetDiagOptions"),
    )


@case
def angles() -> Case:
    net = Net()
    grid = np.array([[-2, -1, 0, 1, 2]] * 5, np.float32)
    x, y = net.input((4, 6)), net.input((4, 6))
    whole = net.input((5, 5))
    still = net.op("MUL", [whole, net.constant(np.zeros((1, 1), np.float32))], (5, 5), options="MulOptions")
    rows, columns = (
        net.op("ADD", [still, net.constant(np.ascontiguousarray(part))], (5, 5), options="AddOptions")
        for part in (grid, grid.T)
    )
    return net.case(
        net.op("ATAN2", [x, y], (4, 6)),
        net.op("ATAN2", [rows, columns], (5, 5)),
    )


@case
def exclusive_or() -> Case:
    net = Net()
    a, b = net.input((2, 3), "int32"), net.input((2, 3), "int32")
    return net.case(net.op("BITWISE_XOR", [a, b], (2, 3), "int32", "BitwiseXorOptions"))


@case
def shapes_that_broadcast() -> Case:
    net = Net()
    x = net.input((1, 3))
    wanted = net.op("BROADCAST_ARGS", [net.ints(4, 1), net.ints(1, 3)], (2,), "int32")
    return net.case(net.op("BROADCAST_TO", [x, wanted], (4, 3), options="BroadcastToOptions"))


@case
def sequences_reversed() -> Case:
    net = Net()
    x, lengths = net.input((3, 4, 2)), net.ints(1, 4, 3)
    fields = {"SeqDim": 1, "BatchDim": 0}
    return net.case(
        net.op("REVERSE_SEQUENCE", [x, lengths], (3, 4, 2), "float32", "ReverseSequenceOptions", fields)
    )


@case
def gather_by_batch() -> Case:
    net = Net()
    x = net.input((2, 5, 3))
    rows = net.constant(np.array([[4, 0], [1, 1]], np.int32))
    fields = {"Axis": 1, "BatchDims": 1}
    return net.case(net.op("GATHER", [x, rows], (2, 2, 3), "float32", "GatherOptions", fields))
