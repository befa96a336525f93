"""tunefarm's own rules for uploaded networks, checked before any loader sees the model."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.frontend.onnx.bfloat16 import narrow_tensors
from tunefarm_tuning.frontend.onnx.binding import (
    TAKEN,
    article,
    dtype_name,
    onnx_name,
    real_inputs,
    type_word,
)
from tunefarm_tuning.frontend.onnx.control_flow.flatten import has_control_flow, is_control_flow
from tunefarm_tuning.frontend.onnx.graph_reading import (
    ONNX_DOMAINS,
    all_graphs,
    all_nodes,
    constant_tensors,
    opsets_of,
)
from tunefarm_tuning.frontend.onnx.operators import is_supported
from tunefarm_tuning.frontend.onnx.sanitize import FEW_BITS, are_dequantised
from tunefarm_tuning.frontend.onnx.standard_form.local_functions import check_functions
from tunefarm_tuning.workload.task import TensorSpec

MAX_RANK = 32
"""Maximum number of dimensions of an input: NumPy holds 64, and kernels have a loop for each."""
_LISTED = 8
_TYPE_ATTRIBUTES = {"Cast": "to", "EyeLike": "dtype", "QuantizeLinear": "output_dtype"}


def check_file_rules(model: onnx.ModelProto, *, max_nodes: int) -> None:
    """Refuse a file's model, its functions included, before anything else reads it.

    Raises:
        InvalidModelError: external-data, invalid-onnx, or too-large.
    """
    if not model.HasField("graph"):
        raise InvalidModelError("the model has no graph; is the ONNX file complete?", code="invalid-onnx")
    _refuse_bad_text(model)
    _refuse_external_data(model)
    check_functions(model, max_nodes=max_nodes)


def check_rules(model: onnx.ModelProto, *, max_nodes: int) -> InvalidModelError | None:
    """Refuse a model without functions that tunefarm does not take, even if it is valid ONNX.

    Operators of inner graphs are not looked at: which of them are computed is known once inputs are bound; see
    `check_bound_rules`.

    Returns:
        Why not all of the model can be compiled: code unsupported-operator or unsupported-dtype. None if this is not known yet.

    Raises:
        InvalidModelError: unsupported-dtype, too-large, invalid-onnx.
    """
    nodes = list(all_nodes(model.graph))
    _refuse_many_nodes(nodes, max_nodes)
    plain = [node for node in model.graph.node if not is_control_flow(node)]
    not_compiled = _unsupported_operators(
        model, plain if has_control_flow(model.graph) else nodes
    ) or _unsupported_dtypes(model, nodes)
    if not model.graph.node or not model.graph.output:
        raise InvalidModelError(
            "the graph computes nothing: it has no nodes, or no outputs", code="invalid-onnx"
        )
    _refuse_shared_names(model.graph)
    _refuse_narrow_outputs(model)
    if not real_inputs(model.graph):
        raise InvalidModelError(
            "the graph takes no inputs, so its outputs are constants: there is nothing to tune",
            code="invalid-onnx",
        )
    _refuse_new_opsets(model)
    return not_compiled


def refuse_other_outputs(graph: onnx.GraphProto) -> None:
    """Refuse outputs that an artifact cannot return, whoever computes them: all but dense tensors of numbers.

    Raises:
        InvalidModelError: unsupported-dtype.
    """
    for value in graph.output:
        kind = type_word(value.type)
        element_type = value.type.tensor_type.elem_type
        if kind == "tensor" and (not element_type or dtype_name(element_type) is not None):
            continue
        what = kind if kind != "tensor" else f"tensor of {onnx_name(element_type)}"
        fix = "train the classifier with integers for classes, or " if what == "tensor of string" else ""
        raise InvalidModelError(
            f"output '{clean(value.name, 60)}' is {article(what)} {what}; an artifact returns only dense tensors of numbers: {fix}remove "
            "this output from the model, or convert it to dense tensors",
            code="unsupported-dtype",
            output=clean(value.name, 60),
            dtype=what,
        )


def why_not_compiled(node: onnx.NodeProto) -> str:
    """Return why these rules leave a node to ONNX Runtime, its inner graphs included; empty if they do not."""
    inside = list(all_nodes(onnx.GraphProto(node=[node])))
    for inner in inside:
        if is_control_flow(inner):
            return "has inner graphs that cannot be resolved before it runs"
        if not is_supported(inner.domain, inner.op_type):
            return "is not supported by TVM's ONNX importer"
    if any(
        not _is_inside(message.data_type) for message in _messages(node) if isinstance(message, TensorProto)
    ):
        return "has a constant of another dtype than numbers"
    narrow = _bad_type_attribute(inside)
    return f"makes a tensor of type {onnx_name(narrow[2])}" if narrow is not None else ""


def check_bound_rules(model: onnx.ModelProto, *, max_nodes: int) -> InvalidModelError | None:
    """Refuse what tunefarm does not take of a bound network, whose control flow is resolved.

    Returns:
        Why not all of the network can be compiled, as `check_rules`.

    Raises:
        InvalidModelError: too-large.
    """
    nodes = list(all_nodes(model.graph))
    _refuse_many_nodes(nodes, max_nodes)
    return _unsupported_operators(model, nodes)


def check_input_sizes(inputs: Sequence[TensorSpec], *, max_bytes: int) -> None:
    """Refuse inputs that could never be held in memory.

    Raises:
        InvalidModelError: too-large.
    """
    for spec in inputs:
        if len(spec.shape) > MAX_RANK:
            raise InvalidModelError(
                f"input '{clean(spec.name, 60)}' has {len(spec.shape)} dimensions; the limit is {MAX_RANK}: reshape it inside "
                "the model",
                code="too-large",
                input=clean(spec.name, 60),
                limit_dimensions=MAX_RANK,
            )
        size = math.prod(spec.shape) * item_bytes(spec.dtype)
        if size > max_bytes:
            raise InvalidModelError(
                f"input '{clean(spec.name, 60)}' would need {size} bytes; the limit of a tensor is "
                f"{max_bytes}",
                code="too-large",
                input=clean(spec.name, 60),
                size_bytes=size,
                limit_bytes=max_bytes,
            )


def item_bytes(dtype: str) -> int:
    """Return the bytes of one element."""
    return 1 if dtype == "bool" else int("".join(c for c in dtype if c.isdigit())) // 8


def count_operators(model: onnx.ModelProto) -> list[tuple[str, int]]:
    """Return how often each operator occurs, the most frequent first."""
    counts = Counter(operator_name(node) for node in all_nodes(model.graph))
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def count_parameters(model: onnx.ModelProto) -> int:
    """Return the number of weights: elements of the floating-point tensors in the file."""
    return sum(
        math.prod(tensor.dims)
        for tensor in tensors_of(model)
        if tensor.data_type == TensorProto.BFLOAT16
        or (dtype_name(tensor.data_type) or "").startswith("float")
    )


def _refuse_many_nodes(nodes: Sequence[onnx.NodeProto], max_nodes: int) -> None:
    if len(nodes) > max_nodes:
        raise InvalidModelError(
            f"the model has {len(nodes)} nodes; the limit is {max_nodes}",
            code="too-large",
            nodes=len(nodes),
            limit_nodes=max_nodes,
        )


def _refuse_shared_names(graph: onnx.GraphProto) -> None:
    for kind, values in (("input", graph.input), ("output", graph.output)):
        for name, count in Counter(value.name for value in values).items():
            if count > 1 or not name:
                raise InvalidModelError(
                    f"the graph has {count} {kind}(s) called '{clean(name, 60)}'; names must be unique",
                    code="invalid-onnx",
                )


def _refuse_bad_text(model: onnx.ModelProto) -> None:
    values = (
        value
        for message in _messages(model)
        for field, value in message.ListFields()
        if field.type == field.TYPE_STRING and field.name != "doc_string"
    )
    for value in values:
        for text in [value] if isinstance(value, str | bytes) else value:
            if isinstance(text, bytes):  # protobuf returns bytes if a string is invalid
                raise InvalidModelError(
                    f"a text in the model is not UTF-8: '{clean(repr(text), 80)}'", code="invalid-onnx"
                )


def _refuse_external_data(model: onnx.ModelProto) -> None:
    for tensor in tensors_of(model):
        if tensor.data_location == TensorProto.EXTERNAL or tensor.external_data:
            location = next((entry.value for entry in tensor.external_data if entry.key == "location"), "")
            raise InvalidModelError(
                f"tensor '{clean(tensor.name, 60)}' keeps its data outside the file (in '{clean(location, 60)}'); make "
                "one file of them: tunefarm models convert model.onnx one.onnx (`tunefarm tune` does so itself if it finds those files)",
                code="external-data",
                tensor=clean(tensor.name),
                location=clean(location),
            )


def _unsupported_operators(
    model: onnx.ModelProto, nodes: Sequence[onnx.NodeProto]
) -> InvalidModelError | None:
    first_nodes: dict[str, str] = {}
    for number, node in enumerate(nodes):
        if not is_supported(node.domain, node.op_type):
            first_nodes.setdefault(
                operator_name(node), f"'{clean(node.name, 100)}'" if node.name else f"number {number}"
            )
    if not first_nodes:
        return None
    operator, where = next(iter(first_nodes.items()))
    others = [f"{name} (node {node})" for name, node in list(first_nodes.items())[1:_LISTED]]
    opset = opsets_of(model).get("", 0)
    message = f"operator {operator} (node {where}, opset {opset}) is not supported by TVM's ONNX importer"
    if others:
        message += f"; nor {'is' if len(others) == 1 else 'are'} {', '.join(others)}"
    if len(first_nodes) > _LISTED:
        message += f" and {len(first_nodes) - _LISTED} more"
    return InvalidModelError(
        message,
        code="unsupported-operator",
        operator=operator,
        node=where.strip("'"),
        opset=opset,
        operators=list(first_nodes)[:_LISTED],
    )


def _unsupported_dtypes(model: onnx.ModelProto, nodes: Sequence[onnx.NodeProto]) -> InvalidModelError | None:
    if any(graph.sparse_initializer for graph in all_graphs(model.graph)):
        return InvalidModelError(
            "the model has sparse weights; tunefarm supports only dense tensors",
            code="unsupported-dtype",
            dtype="sparse",
        )
    few_bits = FEW_BITS if are_dequantised(model.graph) else {}
    for tensor in tensors_of(model):
        if not _is_inside(tensor.data_type) and tensor.data_type not in few_bits:
            return _bad_dtype(f"tensor '{clean(tensor.name, 60)}'", tensor.data_type)
    narrow = _bad_type_attribute(nodes)
    if narrow is None:
        return None
    number, node, element_type = narrow
    return _bad_dtype(f"the output of node '{clean(node.name, 60)}' (number {number})", element_type)


def _bad_type_attribute(nodes: Sequence[onnx.NodeProto]) -> tuple[int, onnx.NodeProto, int] | None:
    """Return the first node whose attribute asks for a dtype that is not supported: its number, itself, the dtype."""
    for number, node in enumerate(nodes):
        wanted = _TYPE_ATTRIBUTES.get(node.op_type)
        for attribute in node.attribute:
            if attribute.name != wanted or not attribute.i:
                continue
            if not _is_inside(attribute.i) or (node.op_type != "Cast" and dtype_name(attribute.i) is None):
                return number, node, attribute.i
    return None


def _is_inside(element_type: int) -> bool:
    """Return whether a tensor within a network may be of a type."""
    return element_type == TensorProto.BFLOAT16 or dtype_name(element_type) is not None


def _refuse_narrow_outputs(model: onnx.ModelProto) -> None:
    narrow = narrow_tensors(model)
    for value in model.graph.output:
        declared = value.type.tensor_type.elem_type  # ONNX Runtime reports it if it is wrong
        if declared == TensorProto.BFLOAT16 or (not declared and value.name in narrow):
            raise _bad_dtype(f"output '{clean(value.name, 60)}'", TensorProto.BFLOAT16)


def _bad_dtype(subject: str, element_type: int) -> InvalidModelError:
    type_name = onnx_name(element_type)
    return InvalidModelError(
        f"{subject} has element type {type_name}; tunefarm supports {TAKEN}",
        code="unsupported-dtype",
        dtype=type_name,
    )


def _refuse_new_opsets(model: onnx.ModelProto) -> None:
    newest = onnx.defs.onnx_opset_version()
    for entry in model.opset_import:
        if entry.domain in ONNX_DOMAINS and entry.version > newest:
            raise InvalidModelError(
                f"the model is written for ONNX opset {entry.version}; the newest supported one is "
                f"{newest}: export it with opset_version={newest} or lower",
                code="invalid-onnx",
                opset=entry.version,
                newest=newest,
            )


def refuse_endless_scales(graph: onnx.GraphProto) -> None:
    """Refuse quantisation by constant scales that are infinite or no numbers: each runtime makes other integers of it.

    Raises:
        InvalidModelError: bad-scale; ``node`` says which.
    """
    tensors = dict(constant_tensors(graph))
    for node in graph.node:
        if node.op_type not in ("QuantizeLinear", "DequantizeLinear") or len(node.input) < 2:
            continue
        scale = tensors.get(node.input[1])
        if scale is None or scale.data_type not in (TensorProto.FLOAT, TensorProto.FLOAT16):
            continue
        values = numpy_helper.to_array(scale)
        if not np.isfinite(values).all():
            name = clean(node.name or node.output[0], 80)
            raise InvalidModelError(
                f"node '{name}' ({operator_name(node)}) has a scale of {values[~np.isfinite(values)][0]}: the calibration saw infinite values, as "
                "of a mask of -inf; put large finite ones in their place, and quantise again",
                code="bad-scale",
                node=name,
            )


def operator_name(node: onnx.NodeProto) -> str:
    """Return a node's operator with its domain, if that is not ONNX's own; cleaned."""
    domain = f"{clean(node.domain, 60)}." if node.domain not in ONNX_DOMAINS else ""
    return domain + clean(node.op_type, 60)


def tensors_of(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Yield every tensor of a model: weights, attributes, inner graphs, functions, training data."""
    return (message for message in _messages(model) if isinstance(message, TensorProto))


def _messages(message: Any) -> Iterator[Any]:
    """Yield a message and everything below it."""
    yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for item in [value] if hasattr(value, "ListFields") else value:
                yield from _messages(item)
