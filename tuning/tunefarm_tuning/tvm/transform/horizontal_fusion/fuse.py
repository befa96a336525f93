"""Fuse products and convolutions of one input (an attention's projections, the branches of an Inception block).

Their weights, their biases and the constants of the element-wise steps that all of them take are concatenated, and the result is cut
apart again by slices, which fuse with the operators that read them. TVM's ``CombineParallelMatmul`` knows neither convolutions nor
constant weights, and cuts by a kernel that copies everything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax

from tunefarm_tuning.tvm.base.relax_graph import rewrite_main
from tunefarm_tuning.tvm.transform.horizontal_fusion.branches import Block, Branches
from tunefarm_tuning.tvm.transform.horizontal_fusion.selection import Selection, select_faster


def fuse_horizontally(mod: tvm.IRModule, select: Selection = select_faster) -> tvm.IRModule:
    """Return a module, its constants folded, with the selected parallel products and convolutions by constants fused."""
    plan = _FusionPlan()
    for block in mod["main"].body.blocks:
        plan.add(Block(block), select)
    if not plan.heads:
        return mod
    rewritten = rewrite_main(mod, _HorizontalFuser(mod, plan))
    fused: tvm.IRModule = relax.transform.DeadCodeElimination(["main"])(rewritten)
    return fused


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """A branch's range in the joint result."""

    branches: Branches
    begin: int
    width: int


class _FusionPlan:
    """The plan: joint calls are emitted before `heads`, `parts` become slices of a joint result, `dropped` are omitted."""

    def __init__(self) -> None:
        self.heads: dict[Any, Branches] = {}
        self.parts: dict[Any, _Part] = {}
        self.dropped: set[Any] = set()

    def add(self, block: Block, select: Selection) -> None:
        """Plan the fusion of a block's parallel calls."""
        for group in block.parallel():
            roots = select(block, group)
            if len(roots) < 2:
                continue
            branches = block.branches(roots)
            self.heads[roots[0]] = branches
            begin = 0
            for values, width in zip(branches.values, branches.widths, strict=True):
                self.dropped.update(value for value in values[:-1] if value is not None)
                self.parts[values[-1]] = _Part(branches=branches, begin=begin, width=width)
                begin += width


@relax.expr_functor.mutator
class _HorizontalFuser(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, mod: tvm.IRModule, plan: _FusionPlan) -> None:
        super().__init__(mod)
        self._plan = plan
        self._joint_results: dict[int, Any] = {}  # by the address of the branches

    def visit_var_binding_(self, binding: Any) -> None:
        branches = self._plan.heads.get(binding.var)
        if branches is not None:
            self._joint_results[id(branches)] = self._emit_joint(branches)
        part = self._plan.parts.get(binding.var)
        if part is not None:
            joint = self._joint_results[id(part.branches)]
            cut = relax.op.strided_slice(
                joint, axes=[part.branches.axis], begin=[part.begin], end=[part.begin + part.width]
            )
            self.builder_.emit_normalized(relax.VarBinding(binding.var, self.builder_.normalize(cut)))
        elif binding.var not in self._plan.dropped:
            super().visit_var_binding_(binding)

    def _emit_joint(self, branches: Branches) -> Any:
        """Emit the joint call of branches and their common steps, and return the result."""
        call = branches.calls[0]
        weights = relax.const(branches.weights(), str(call.args[1].value.dtype))
        values = [self._emit(call, [self.visit_expr(call.args[0]), weights])]
        for step in branches.steps:
            arguments = [
                values[operand] if isinstance(operand, int) else operand for operand in step.operands
            ]
            values.append(self._emit(step.call, arguments))
        return values[-1]

    def _emit(self, like: Any, arguments: list[Any]) -> Any:
        return self.builder_.emit(tvm.ir.Call(like.op, arguments, like.attrs, like.ty_args))
