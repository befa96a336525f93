"""Sparse weights, complex numbers, open dimensions, and files of several graphs."""

from __future__ import annotations

import numpy as np
from tflite_writer import Sparsity, TfliteWriter, scattered

from tflite_zoo.cases import SAME, Case, Net, case


@case
def sparse_weights() -> Case:
    """Rows are dense, columns compressed, as MediaPipe's detectors have them."""
    net = Net()
    layout = Sparsity(order=(0, 1), levels=(3, ((0, 2, 2, 3), (0, 3, 1))))
    stored = net.tensor((3, 4), data=np.array([1.5, -2, 0.5], np.float32), sparsity=layout)
    weights = net.op("DENSIFY", [stored], (3, 4), options="DensifyOptions")
    x = net.input((2, 4))
    return net.case(net.op("FULLY_CONNECTED", [x, weights, -1], (2, 3), options="FullyConnectedOptions"))


@case
def sparse_weights_of_float16() -> Case:
    net = Net()
    layout = Sparsity(order=(0, 1, 2, 3), levels=(2, 1, 1, ((0, 1, 3), (2, 0, 3))))
    half = np.array([1.5, -2, 0.5], np.float16)
    stored = net.tensor((2, 1, 1, 4), "float16", data=half, sparsity=layout)
    dense = net.op("DENSIFY", [stored], (2, 1, 1, 4), "float16", "DensifyOptions")
    weights = net.op("DEQUANTIZE", [dense], (2, 1, 1, 4), options="DequantizeOptions")
    fields = {"Padding": SAME, "StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1}
    inputs = [net.input((1, 3, 3, 4)), weights, net.weight(2)]
    return net.case(net.op("CONV_2D", inputs, (1, 3, 3, 2), options="Conv2DOptions", fields=fields))


@case
def sparse_weights_in_blocks() -> Case:
    """Blocks of 2 by 2 of a 4 by 6 matrix, by columns: the second and third of the first row, the first of the second."""
    net = Net()
    layout = Sparsity(order=(0, 1, 3, 2), blocks=(0, 1), levels=(2, ((0, 2, 3), (1, 2, 0)), 2, 2))
    stored = net.tensor((4, 6), data=scattered((12,), 4), sparsity=layout)
    weights = net.op("DENSIFY", [stored], (4, 6), options="DensifyOptions")
    x = net.input((2, 6))
    return net.case(net.op("FULLY_CONNECTED", [x, weights, -1], (2, 4), options="FullyConnectedOptions"))


def _spectrum(
    net: Net, x: int, shape: tuple[int, ...], lengths: tuple[int, int]
) -> tuple[int, tuple[int, ...]]:
    result = (*shape[:-2], lengths[0], lengths[1] // 2 + 1)
    return net.op("RFFT2D", [x, net.ints(*lengths)], result, "complex64", "Rfft2dOptions"), result


@case
def spectrum_of_frames() -> Case:
    net = Net()
    spectrum, shape = _spectrum(net, net.input((3, 1, 16)), (3, 1, 16), (1, 16))
    parts = [
        net.op("REAL", [spectrum], shape, options=""),
        net.op("IMAG", [spectrum], shape, options=""),
        net.op("COMPLEX_ABS", [spectrum], shape),
    ]
    return net.case(*parts)


@case
def spectrum_of_images_cut_and_padded() -> Case:
    net = Net()
    shape = (2, 6, 5)
    x = net.input(shape)
    cut, cut_shape = _spectrum(net, x, shape, (4, 4))
    padded, padded_shape = _spectrum(net, x, shape, (8, 8))
    return net.case(
        net.op("COMPLEX_ABS", [cut], cut_shape),
        net.op("REAL", [padded], padded_shape),
        net.op("IMAG", [padded], padded_shape),
    )


@case
def bands_of_a_spectrum() -> Case:
    """The real part times a matrix, as BirdNET has it, becomes one product."""
    net = Net()
    spectrum, _ = _spectrum(net, net.input((2, 3, 1, 32)), (2, 3, 1, 32), (1, 32))
    squeezed = net.op("SQUEEZE", [spectrum], (2, 3, 17), "complex64", "SqueezeOptions", {"SqueezeDims": [2]})
    real = net.op("CAST", [squeezed], (2, 3, 17), options="CastOptions")
    flat = net.op("RESHAPE", [real, net.ints(6, 17)], (6, 17), options="ReshapeOptions")
    bands = net.op("FULLY_CONNECTED", [flat, net.weight(4, 17), -1], (6, 4), options="FullyConnectedOptions")
    return net.case(net.op("RESHAPE", [bands, net.ints(2, 3, 4)], (2, 3, 4), options="ReshapeOptions"))


def opened(batch: int = -1) -> Case:
    """A network whose batch and length the file leaves open: sizes inside are marks of a place."""
    net = Net()
    x = net.input((1, 8, 3), signature=(batch, -1, 3))
    fields = {"SqueezeDims": [1]}
    shape = net.op("SHAPE", [x], (3,), "int32", "ShapeOptions", {"OutType": 2})
    count = net.op(
        "STRIDED_SLICE",
        [shape, net.ints(0), net.ints(2), net.ints(1)],
        (2,),
        "int32",
        "StridedSliceOptions",
    )
    wide = net.op(
        "EXPAND_DIMS", [x, net.ints(1)], (1, 1, 1, 3), options="ExpandDimsOptions", signature=(-1, 1, -1, 3)
    )
    conv = {"Padding": SAME, "StrideH": 1, "StrideW": 2, "DilationHFactor": 1, "DilationWFactor": 1}
    y = net.op(
        "CONV_2D",
        [wide, net.weight(4, 1, 3, 3), net.weight(4)],
        (1, 1, 1, 4),
        options="Conv2DOptions",
        fields=conv,
        signature=(-1, 1, -1, 4),
    )
    y = net.op("SQUEEZE", [y], (1, 1, 4), options="SqueezeOptions", fields=fields, signature=(-1, -1, 4))
    total = net.op("REDUCE_PROD", [count, net.ints(0)], (), "int32", "ReducerOptions")
    rows = net.op(
        "PACK", [total, net.constant(np.array(3, np.int32))], (2,), "int32", "PackOptions", {"ValuesCount": 2}
    )
    flat = net.op("RESHAPE", [x, rows], (1, 1), options="ReshapeOptions", signature=(-1, -1))
    z = net.op(
        "FULLY_CONNECTED",
        [flat, net.weight(2, 3), -1],
        (1, 2),
        options="FullyConnectedOptions",
        signature=(-1, 2),
    )
    return net.case(y, z)


@case
def open_dimensions() -> Case:
    return opened()


@case
def a_branch_that_constants_choose() -> Case:
    net = Net()
    x = net.input((2, 3))
    branches = []
    for kind in ("RELU", "NEG"):
        graph = net.subgraph()
        inner = graph.tensor((2, 3))
        graph._inputs.append(inner)
        graph.returns(graph.op(kind, [inner], (2, 3)))
        branches.append(graph.number)
    size = net.op("RANK", [x], (), "int32", "RankOptions")
    condition = net.op("LESS", [size, net.constant(np.array(2, np.int32))], (), "bool", "LessOptions")
    fields = {"ThenSubgraphIndex": branches[0], "ElseSubgraphIndex": branches[1]}
    return net.case(net.op("IF", [condition, x], (2, 3), options="IfOptions", fields=fields))


@case
def a_branch_that_an_input_chooses() -> Case:
    net = Net()
    x = net.input((2, 3))
    branches = []
    for kind in ("EXP", "NEG"):
        graph = net.subgraph()
        inner = graph.tensor((2, 3))
        graph._inputs.append(inner)
        graph.returns(graph.op(kind, [inner], (2, 3)))
        branches.append(graph.number)
    total = net.op("SUM", [x, net.ints(0, 1)], (), options="ReducerOptions")
    condition = net.op("LESS", [total, net.constant(np.array(0, np.float32))], (), "bool", "LessOptions")
    fields = {"ThenSubgraphIndex": branches[0], "ElseSubgraphIndex": branches[1]}
    return net.case(net.op("IF", [condition, x], (2, 3), options="IfOptions", fields=fields))


@case
def a_loop_of_fixed_rounds() -> Case:
    """A recurrence over the rows of a tensor, with a counter, as TensorFlow writes loops."""
    net = Net()
    rows = net.input((4, 1, 3))
    condition, body = net.subgraph(), net.subgraph()
    for graph in (condition, body):
        for shape, dtype in (((), "int32"), ((4, 1, 3), "float32"), ((1, 3), "float32")):
            graph._inputs.append(graph.tensor(shape, dtype))
    end = condition.constant(np.array(4, np.int32))
    condition.returns(condition.op("LESS", [condition._inputs[0], end], (), "bool", "LessOptions"))
    counter, table, state = body._inputs
    row = body.op("GATHER", [table, counter], (1, 3), options="GatherOptions")
    mixed = body.op(
        "FULLY_CONNECTED", [state, body.weight(3, 3), -1], (1, 3), options="FullyConnectedOptions"
    )
    new_state = body.op("TANH", [body.op("ADD", [mixed, row], (1, 3), options="AddOptions")], (1, 3))
    step = body.constant(np.array(1, np.int32))
    body.returns(body.op("ADD", [counter, step], (), "int32", "AddOptions"), table, new_state)
    start = net.constant(np.array(0, np.int32))
    zeros = net.constant(np.zeros((1, 3), np.float32))
    outputs = [net.tensor((), "int32"), net.tensor((4, 1, 3)), net.tensor((1, 3))]
    fields = {"CondSubgraphIndex": condition.number, "BodySubgraphIndex": body.number}
    net.op_of("WHILE", [start, rows, zeros], outputs, "WhileOptions", fields)
    return net.case(outputs[2], outputs[0])


@case
def a_variable_that_is_only_read() -> Case:
    net = Net()
    x = net.input((2, 3))
    start = net.subgraph()
    names = {"Container": "", "SharedName": "scale"}
    handle = start.op("VAR_HANDLE", [], (), "resource", "VarHandleOptions", names)
    value = start.constant(scattered((2, 3), 5))
    start.op_of("ASSIGN_VARIABLE", [handle, value], [], "AssignVariableOptions")
    net.op_of("CALL_ONCE", [], [], "CallOnceOptions", {"InitSubgraphIndex": start.number})
    own = net.op("VAR_HANDLE", [], (), "resource", "VarHandleOptions", names)
    scale = net.op("READ_VARIABLE", [own], (2, 3), options="ReadVariableOptions")
    return net.case(net.op("MUL", [x, scale], (2, 3), options="MulOptions"))


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
