"""The converter of the node that stands for a part of the network which ONNX Runtime runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import tvm
from tvm import relax

from tunefarm_tuning.artifact.part_calls import FUNCTION
from tunefarm_tuning.tvm.frontend.node_context import NodeContext, const
from tunefarm_tuning.workload.runtime_part import OpenSpec


def convert_part(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert a node that `frontend.onnx.parts.cut` has put in: a call of a function that the artifact's loader registers."""
    outputs = [
        OpenSpec(name="", shape=tuple(shape), dtype=dtype)
        for dtype, shape in json.loads(attributes["results"])
    ]
    called = context.bb.emit(call_part(int(attributes["number"]), [_as_tensor(x) for x in inputs], outputs))
    if len(outputs) == 1:
        return called
    return relax.Tuple([context.bb.emit(relax.TupleGetItem(called, n)) for n in range(len(outputs))])


def call_part(number: int, inputs: Sequence[Any], outputs: Sequence[OpenSpec]) -> Any:
    """Return the call of a part; the sizes of its outputs may be open."""
    types = [
        relax.TensorType(None, spec.dtype, ndim=len(spec.shape))
        if spec.is_open
        else relax.TensorType(spec.shape, spec.dtype)
        for spec in outputs
    ]
    kind = types[0] if len(types) == 1 else tvm.ir.TupleType(types)
    return relax.op.call_pure_packed(FUNCTION, relax.prim_value(number), *inputs, ty_args=kind)


def _as_tensor(value: Any) -> Any:
    """Return a shape as the constant that it is in ONNX."""
    return const([int(size) for size in value.values]) if isinstance(value, relax.ShapeExpr) else value
