"""Operators that ONNX defines by a body of other operators (`Attention`, ...), for operators that TVM's importer lacks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.defs
from tvm import relax

from tunefarm_tuning.frontend.onnx.graph_reading import opsets_of
from tunefarm_tuning.tvm.frontend.node_context import UnsupportedFormError, dtype_of, needed_shape


def function_body(
    operator: str, inputs: Sequence[Any], attributes: dict[str, Any], opset: int, outputs: int
) -> onnx.FunctionProto | None:
    """Return the body that defines an operator for given inputs, its attributes filled in; None if ONNX defines none."""
    try:
        schema = onnx.defs.get_schema(operator, opset, "")
    except onnx.defs.SchemaError:
        return None
    node = _node(operator, inputs, attributes, outputs)
    if schema.has_context_dependent_function:
        versions = [v for v in schema.context_dependent_function_opset_versions if v <= opset]
        types = [_type(x) for x in inputs]
        if not versions:
            return None
        data = schema.get_context_dependent_function_with_opset_version(
            max(versions), node.SerializeToString(), types
        )
    elif schema.has_function:
        versions = [v for v in schema.function_opset_versions if v <= opset]
        if not versions:
            return None
        data = schema.get_function_with_opset_version(max(versions))
    else:
        return None
    if not data:
        return None
    body = onnx.FunctionProto.FromString(data)
    _fill_in(body, {a.name: a for a in node.attribute}, schema)
    return body


def body_opset(body: onnx.FunctionProto, opset: int) -> int:
    """Return the opset that a body is written in; by default, that of the model."""
    return opsets_of(body).get("", opset)


def expandable_operators() -> frozenset[str]:
    """Return the names of the default domain's operators that some opset defines by a body."""
    return frozenset(
        schema.name
        for schema in onnx.defs.get_all_schemas_with_history()
        if not schema.domain and (schema.has_function or schema.has_context_dependent_function)
    )


def _node(operator: str, inputs: Sequence[Any], attributes: dict[str, Any], outputs: int) -> onnx.NodeProto:
    names = ["" if x is None else f"i{number}" for number, x in enumerate(inputs)]
    own_attributes = {name: value for name, value in attributes.items() if name != "tvm_custom"}
    return onnx.helper.make_node(
        operator, names, [f"o{number}" for number in range(outputs)], **own_attributes
    )


def _type(x: Any) -> bytes:
    if x is None:
        return b""
    if not isinstance(getattr(x, "ty", None), relax.TensorType):
        raise UnsupportedFormError("one of its inputs is not a tensor")
    element = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype_of(x)))
    serialized: bytes = onnx.helper.make_tensor_type_proto(element, needed_shape(x)).SerializeToString()
    return serialized


def _fill_in(
    body: onnx.FunctionProto, call_attributes: dict[str, onnx.AttributeProto], schema: onnx.defs.OpSchema
) -> None:
    for node in _all_nodes(body.node):
        attributes = []
        for attribute in node.attribute:
            if attribute.ref_attr_name:
                value = call_attributes.get(attribute.ref_attr_name)
                if value is None:
                    value = schema.attributes[attribute.ref_attr_name].default_value
                if not value.name:
                    continue  # optional and omitted
                filled = onnx.AttributeProto.FromString(value.SerializeToString())
                filled.name = attribute.name
                attribute = filled
            attributes.append(attribute)
        del node.attribute[:]
        node.attribute.extend(attributes)


def _all_nodes(nodes: Sequence[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    for node in nodes:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _all_nodes(attribute.g.node)
