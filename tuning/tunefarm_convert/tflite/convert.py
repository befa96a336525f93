"""Convert a TFLite file to an ONNX model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx
from onnx import helper

from tunefarm_convert.onnx_writer import OnnxWriter, value_info
from tunefarm_convert.tflite.complex_parts import split_complex
from tunefarm_convert.tflite.converter import Converter
from tunefarm_convert.tflite.graph import Graph, Tensor, bad_file
from tunefarm_convert.tflite.operators import (
    bidirectional,
    blocks,
    control,
    detection,
    elementwise,
    matrices,
    mediapipe,
    movement,
    recurrent,
    reductions,
    resizing,
    slicing,
    spectra,
    updates,
    volumes,
    windows,
)
from tunefarm_convert.tflite.parser import read_graphs
from tunefarm_convert.tflite.program import FileProgram, check_dtype, empty_tensor
from tunefarm_convert.tflite.shape_check import check_shapes
from tunefarm_convert.tflite.states import read_states
from tunefarm_convert.tflite.values import Values
from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.core.untrusted_text import clean, clean_message

_MAX_SIZE = 1 << 31
STATE_KEY = "tunefarm.state."
"""Begins the keys of the model's properties that give the output with the next value of an input with state."""

CONVERTERS: Mapping[str, Converter] = {
    **bidirectional.CONVERTERS,
    **blocks.CONVERTERS,
    **control.CONVERTERS,
    **detection.CONVERTERS,
    **elementwise.CONVERTERS,
    **matrices.CONVERTERS,
    **mediapipe.CONVERTERS,
    **movement.CONVERTERS,
    **recurrent.CONVERTERS,
    **reductions.CONVERTERS,
    **resizing.CONVERTERS,
    **slicing.CONVERTERS,
    **spectra.CONVERTERS,
    **updates.CONVERTERS,
    **volumes.CONVERTERS,
    **windows.CONVERTERS,
}


def convert(
    data: bytes, shapes: Mapping[str, Sequence[int]] | None = None, *, needs_sizes: bool = False
) -> onnx.ModelProto:
    """Convert a TFLite file to ONNX. Equal bytes and shapes give equal models.

    Inputs and outputs keep their order, their layout, and their dtype: integers where the file takes or gives
    quantised tensors. Variables that the network reads and sets at each call follow, as inputs and as outputs.

    Args:
        data: The file.
        shapes: Shapes of inputs by name, where they are not the file's.
        needs_sizes: Whether `shapes` must have the inputs of which the file leaves sizes open and says 1.

    Raises:
        InvalidModelError: invalid-tflite, truncated-model, unsupported-operator, unsupported-dtype, zero-size, too-large,
            bad-shape, unknown-dimension.
    """
    graphs = read_graphs(data)
    if needs_sizes:
        _refuse_unknown_sizes(graphs[0], shapes or {})
    try:
        return _convert(graphs, shapes or {})
    except InvalidModelError as error:
        if error.code == "invalid-tflite" and _changes_shapes(graphs[0], shapes or {}):
            raise InvalidModelError(
                f"the network cannot have the shapes that are given: {error.message}", code="bad-shape"
            ) from error
        raise
    except MemoryError:
        raise
    except Exception as error:
        # sizes, counts and names that no valid file has
        raise bad_file(f"the TFLite file is malformed: {clean_message(error, 200)}") from error


def inputs_alone(data: bytes) -> onnx.ModelProto:
    """Return a model of a TFLite file's inputs alone, in which sizes that have to be given are open.

    Raises:
        InvalidModelError: invalid-tflite, truncated-model, unsupported-dtype.
    """
    graph = read_graphs(data)[0]
    writer = OnnxWriter("tflite")
    names = _edge_names(graph, graph.inputs, "input", writer)
    inputs = []
    for name, index in zip(names, graph.inputs, strict=True):
        tensor = graph.tensors[index]
        check_dtype(tensor)
        value = _value_info(name, tensor)
        for position in _unknown(tensor):
            value.type.tensor_type.shape.dim[position].ClearField("value")
        inputs.append(value)
    return writer.model(inputs, [])


def _convert(graphs: Sequence[Graph], shapes: Mapping[str, Sequence[int]]) -> onnx.ModelProto:
    writer = OnnxWriter("tflite")
    program = FileProgram([split_complex(graph) for graph in graphs], writer, CONVERTERS)
    graph = split_complex(graphs[0])
    for index in (*graph.inputs, *graph.outputs):
        check_dtype(graph.tensors[index])
    program.refuse_unknown(graph)
    values = Values(graph, writer)
    # Reserved first: no inner tensor may take them.
    names = _edge_names(graph, graph.inputs, "input", writer)
    output_names = _edge_names(graph, graph.outputs, "output", writer)
    inputs = []
    recomputes = any(tensor.open_dims for tensor in graph.tensors)
    for name, index in zip(names, graph.inputs, strict=True):
        if values.exists(index):
            raise bad_file(
                f"the TFLite file takes tensor {index} as an input twice, or says that it is a constant"
            )
        if name in shapes and tuple(shapes[name]) != graph.tensors[index].shape:
            values.set_shape(index, _bound_shape(name, shapes[name], graph.tensors[index]))
            recomputes = True
        if 0 in values.shape(index):
            raise empty_tensor(values.tensor(index))
        values.put(index, name, raw=True)
        inputs.append(_value_info(name, values.tensor(index)))
    states = read_states(graph, writer)
    program.states = frozenset(state.variable for state in states)
    for state in states:
        check_dtype(state.values.tensor(state.tensor))
        program.variables[state.variable] = (state.values, state.tensor)
        inputs.append(_value_info(state.source, state.values.tensor(state.tensor)))
    program.run(graph, values, recomputes=recomputes)
    outputs = [
        (values.get(index, raw=True), _value_info(name, values.tensor(index)))
        for name, index in zip(output_names, graph.outputs, strict=True)
    ]
    for state in states:
        other, index = program.variables[state.variable]
        before, after = state.values.tensor(state.tensor), other.tensor(index)
        if (before.shape, before.dtype) != (after.shape, after.dtype):
            raise bad_file(
                f"the TFLite file sets the state '{clean(state.source, 60)}' of shape {list(before.shape)} to a tensor of "
                f"shape {list(after.shape)}"
            )
        outputs.append((other.get(index, raw=True), _value_info(state.result, after)))
    model = writer.model(inputs, outputs)
    helper.set_model_props(model, {STATE_KEY + state.source: state.result for state in states})
    renamed = {tensor: info.name for tensor, info in reversed(outputs)}
    declared = {name: shape for part in program.converted for name, shape in part.forms().items()}
    check_shapes(model, {renamed.get(name, name): shape for name, shape in declared.items()})
    return model


def _unknown(tensor: Tensor) -> tuple[int, ...]:
    """Return the dimensions that a file leaves open, and for which its 1 is no answer: a text of one token, a sound of one sample.

    The first is the batch, of which 1 is one.
    """
    return tuple(position for position in tensor.open_dims if position > 0 and tensor.shape[position] <= 1)


def _refuse_unknown_sizes(graph: Graph, shapes: Mapping[str, Sequence[int]]) -> None:
    names = _edge_names(graph, graph.inputs, "input", OnnxWriter("tflite"))
    for name, index in zip(names, graph.inputs, strict=True):
        tensor = graph.tensors[index]
        unknown = _unknown(tensor)
        if name in shapes or not unknown:
            continue
        label = clean(name, 60)
        sizes = [
            "?" if position in tensor.open_dims else str(size) for position, size in enumerate(tensor.shape)
        ]
        raise InvalidModelError(
            f"dimension {unknown[0]} of input '{label}' is not fixed by the model, whose shape is [{', '.join(sizes)}]; give the shape "
            "of every open input",
            code="unknown-dimension",
            input=label,
            dimension=unknown[0],
            example=f"--shape {label}={','.join(map(str, tensor.shape))}",
        )


def _changes_shapes(graph: Graph, shapes: Mapping[str, Sequence[int]]) -> bool:
    return any(
        tuple(shapes.get(graph.tensors[index].name, graph.tensors[index].shape)) != graph.tensors[index].shape
        for index in graph.inputs
    )


def _bound_shape(name: str, shape: Sequence[int], tensor: Tensor) -> tuple[int, ...]:
    """Return the shape that a user gives an input, if it has the file's number of dimensions."""
    sizes = clean(str(list(shape[:16])), 120)
    valid = all(isinstance(size, int) and 0 < size < _MAX_SIZE for size in shape)
    if len(shape) != len(tensor.shape) or not valid:
        raise InvalidModelError(
            f"the shape {sizes} given for input '{clean(name, 60)}' does not fit the file's, "
            f"{list(tensor.shape)}: give as many sizes, all above zero",
            code="bad-shape",
            input=clean(name, 60),
        )
    return tuple(shape)


def _edge_names(graph: Graph, indexes: Sequence[int], otherwise: str, writer: OnnxWriter) -> list[str]:
    return [
        writer.unique(graph.tensors[index].name or f"{otherwise}_{position}")
        for position, index in enumerate(indexes)
    ]


def _value_info(name: str, tensor: Tensor) -> onnx.ValueInfoProto:
    return value_info(name, tensor.dtype, tensor.shape)
