"""Two transposes in a row, as one, or as none.

A network that came with its channels last is transposed for ONNX, and back by the layout pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import relax

from tunefarm_tuning.tvm.base.relax_graph import rewrite_main

_TRANSPOSE = "relax.permute_dims"


def plain_transposes(mod: tvm.IRModule) -> tvm.IRModule:
    """Return the module with transposes of transposes joined, and those that change nothing left out."""
    return rewrite_main(mod, _Rewriter(mod))


@relax.expr_functor.mutator
class _Rewriter(relax.PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: Any) -> Any:
        visited = super().visit_call_(call)
        axes = transpose_axes(visited)
        if axes is None:
            return visited
        source = visited.args[0]
        bound = self.lookup_binding(source) if isinstance(source, relax.Var) else None
        inner = transpose_axes(bound)
        if bound is not None and inner is not None:
            source, axes = bound.args[0], [inner[axis] for axis in axes]
        if axes == list(range(len(axes))):
            return source
        return visited if inner is None else self.builder_.normalize(relax.op.permute_dims(source, axes))


def transpose_axes(expr: Any) -> Sequence[int] | None:
    """Return the order of a transpose; None for whatever else."""
    if not isinstance(expr, relax.Call) or not isinstance(expr.op, tvm.ir.Op) or expr.op.name != _TRANSPOSE:
        return None
    return None if expr.attrs.axes is None else [int(axis) for axis in expr.attrs.axes]
