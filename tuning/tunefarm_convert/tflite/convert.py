"""Convert a TFLite file to an ONNX model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import onnx

from tunefarm_convert.onnx_writer import OnnxWriter, value_info
from tunefarm_convert.tflite import elementwise, matrices, movement, reductions, resizing, slicing, windows
from tunefarm_convert.tflite.converter import Converter, OperatorContext
from tunefarm_convert.tflite.graph import Graph, Tensor, bad_file
from tunefarm_convert.tflite.parser import read_graph
from tunefarm_convert.tflite.shape_check import check_shapes
from tunefarm_convert.tflite.values import Values
from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.core.untrusted_text import clean, clean_message

_MAX_LISTED = 24

CONVERTERS: Mapping[str, Converter] = {
    **elementwise.CONVERTERS,
    **matrices.CONVERTERS,
    **movement.CONVERTERS,
    **reductions.CONVERTERS,
    **resizing.CONVERTERS,
    **slicing.CONVERTERS,
    **windows.CONVERTERS,
}


def convert(data: bytes) -> onnx.ModelProto:
    """Convert a TFLite file to ONNX. Equal bytes give equal models.

    Inputs and outputs keep their order, their layout, and their dtype: integers where the file takes or gives
    quantised tensors.

    Raises:
        InvalidModelError: invalid-tflite, truncated-model, unsupported-operator, unsupported-dtype, zero-size, too-large.
    """
    graph = read_graph(data)
    try:
        return _convert(graph)
    except (InvalidModelError, MemoryError):
        raise
    except Exception as error:
        # sizes, counts and names that no valid file has
        raise bad_file(f"the TFLite file is malformed: {clean_message(error, 200)}") from error


def _convert(graph: Graph) -> onnx.ModelProto:
    _refuse_unknown(graph)
    _refuse_empty(graph)
    writer = OnnxWriter("tflite")
    values = Values(graph, writer)
    # Reserved first: no inner tensor may take them.
    names = _edge_names(graph, graph.inputs, "input", writer)
    output_names = _edge_names(graph, graph.outputs, "output", writer)
    inputs = []
    for name, index in zip(names, graph.inputs, strict=True):
        if values.exists(index):
            raise bad_file(
                f"the TFLite file takes tensor {index} as an input twice, or says that it is a constant"
            )
        values.put(index, name, raw=True)
        inputs.append(_value_info(name, graph.tensors[index]))
    for operator in graph.operators:
        if any(values.exists(index) for index in operator.outputs):
            raise bad_file(f"{operator.label}: something else computes its output already")
        writer.scope = f"{operator.kind}_{operator.index}"
        try:
            CONVERTERS[operator.kind](OperatorContext(operator=operator, values=values, writer=writer))
        except (InvalidModelError, MemoryError):
            raise
        except Exception as error:
            raise bad_file(f"{operator.label}, is malformed: {clean_message(error, 200)}") from error
    outputs = [
        (values.get(index, raw=True), _value_info(name, graph.tensors[index]))
        for name, index in zip(output_names, graph.outputs, strict=True)
    ]
    model = writer.model(inputs, outputs)
    renamed = {tensor: info.name for tensor, info in reversed(outputs)}
    check_shapes(model, {renamed.get(name, name): declared for name, declared in values.forms().items()})
    return model


def _refuse_unknown(graph: Graph) -> None:
    counts = Counter(operator.kind for operator in graph.operators if operator.kind not in CONVERTERS)
    if not counts:
        return
    first_indexes: dict[str, int] = {}
    for operator in graph.operators:
        first_indexes.setdefault(operator.kind, operator.index)
    described = [
        f"{clean(kind, 60)} (operator number {first_indexes[kind]}{f', {count} in all' if count > 1 else ''})"
        for kind, count in counts.items()
    ]
    more = f" and {len(described) - _MAX_LISTED} more kinds" if len(described) > _MAX_LISTED else ""
    raise InvalidModelError(
        f"tunefarm does not support these TFLite operators: {', '.join(described[:_MAX_LISTED])}{more}",
        code="unsupported-operator",
        operator=clean(next(iter(counts)), 60),
        node=str(first_indexes[next(iter(counts))]),
        operators=[clean(kind, 60) for kind in counts][:_MAX_LISTED],
    )


def _refuse_empty(graph: Graph) -> None:
    used = {index for op in graph.operators for index in (*op.inputs, *op.outputs)} | set(graph.inputs)
    for tensor in graph.tensors:
        if 0 in tensor.shape and tensor.data is None and tensor.index in used:
            raise InvalidModelError(
                f"tensor '{clean(tensor.name, 60)}' has the shape {list(tensor.shape)}: there is nothing to compute",
                code="zero-size",
            )


def _edge_names(graph: Graph, indexes: Sequence[int], otherwise: str, writer: OnnxWriter) -> list[str]:
    return [
        writer.unique(graph.tensors[index].name or f"{otherwise}_{position}")
        for position, index in enumerate(indexes)
    ]


def _value_info(name: str, tensor: Tensor) -> onnx.ValueInfoProto:
    return value_info(name, tensor.dtype, tensor.shape)
