"""Cancelling transposes: two in a row become one, or none.

A network that was exported with channels last is transposed for ONNX; the layout pass transposes it back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import relax

from tunefarm_tuning.tvm.base.relax_graph import operator_name, rewrite_main


def cancel_transposes(mod: tvm.IRModule) -> tvm.IRModule:
    """Return the module with transposes of transposes joined, and those that change nothing left out."""
    return rewrite_main(mod, _TransposeCanceller(mod))


@relax.expr_functor.mutator
class _TransposeCanceller(relax.PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: Any) -> Any:
        visited = super().visit_call_(call)
        axes = transpose_axes(visited)
        if axes is None:
            return visited
        source = visited.args[0]
        producer = self.lookup_binding(source) if isinstance(source, relax.Var) else None
        inner = transpose_axes(producer)
        if producer is not None and inner is not None:
            source, axes = producer.args[0], [inner[axis] for axis in axes]
        if axes == list(range(len(axes))):
            return source
        return visited if inner is None else self.builder_.normalize(relax.op.permute_dims(source, axes))


def transpose_axes(expr: Any) -> Sequence[int] | None:
    """Return the axes of a transpose with explicit axes; None for any other expression."""
    if operator_name(expr) != "relax.permute_dims" or expr.attrs.axes is None:
        return None
    return [int(axis) for axis in expr.attrs.axes]
