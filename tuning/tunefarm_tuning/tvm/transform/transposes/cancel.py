"""Cancel transposes: join two in a row, and drop those without effect.

A network that was exported with channels last is transposed for ONNX; the layout pass transposes it back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import relax

from tunefarm_tuning.tvm.base.relax_graph import operator_name, rewrite_calls


def cancel_transposes(mod: tvm.IRModule) -> tvm.IRModule:
    """Return the module with transposes of transposes joined, and transposes without effect dropped."""
    return rewrite_calls(mod, _cancel_transpose)


def _cancel_transpose(call: Any, builder: Any) -> Any:
    axes = transpose_axes(call)
    if axes is None:
        return call
    source = call.args[0]
    producer = builder.lookup_binding(source) if isinstance(source, relax.Var) else None
    inner = transpose_axes(producer)
    if producer is not None and inner is not None:
        source, axes = producer.args[0], [inner[axis] for axis in axes]
    if axes == list(range(len(axes))):
        return source
    return call if inner is None else builder.normalize(relax.op.permute_dims(source, axes))


def transpose_axes(expr: Any) -> Sequence[int] | None:
    """Return the axes of a transpose with explicit axes; None for any other expression."""
    if operator_name(expr) != "relax.permute_dims" or expr.attrs.axes is None:
        return None
    return [int(axis) for axis in expr.attrs.axes]
