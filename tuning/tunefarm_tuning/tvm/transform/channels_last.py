"""Convolutions with their channels last, each between two transposes of its own.

TVM's `ConvertLayout` asks every operator of a network for its rule, and raises where one of these is wrong (that of a squeeze behind
a convolution, say). This asks none: the transposes go where `sink_transposes` moves them.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax

from tunefarm_tuning.tvm.base.relax_graph import rewrite_main
from tunefarm_tuning.tvm.transform.convolution import (
    CHANNELS_FIRST,
    CHANNELS_LAST,
    convolution_name,
    convolve,
)


def channels_last(mod: tvm.IRModule) -> tvm.IRModule:
    """Return the module with every convolution computed with channels last, between transposes there and back."""
    return rewrite_main(mod, _Rewriter(mod))


@relax.expr_functor.mutator
class _Rewriter(relax.PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: Any) -> Any:
        visited = super().visit_call_(call)
        name = convolution_name(visited, CHANNELS_FIRST)
        if name is None:
            return visited
        operands = [
            self.builder_.emit(relax.op.permute_dims(operand, _axes(layout, wanted)))
            for operand, layout, wanted in zip(
                visited.args, CHANNELS_FIRST[name], CHANNELS_LAST[name], strict=True
            )
        ]
        made = self.builder_.emit(convolve(visited, *operands, layouts=CHANNELS_LAST[name]))
        back = _axes(CHANNELS_LAST[name][0], CHANNELS_FIRST[name][0])
        return self.builder_.normalize(relax.op.permute_dims(made, back))


def _axes(layout: str, wanted: str) -> list[int]:
    return [layout.index(axis) for axis in wanted]
