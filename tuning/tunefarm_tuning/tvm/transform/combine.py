"""Products and convolutions that read one value, as one: an attention's projections, the branches of an Inception block.

Their weights, their biases and the constants of the element-wise steps that all of them take are put side by side, and what comes
of it is cut apart again. TVM's own ``CombineParallelMatmul`` knows neither convolutions nor weights that are constants, and cuts
by a kernel that copies everything; a slice is fused with what reads it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax

from tunefarm_tuning.tvm.base.relax_graph import rewrite_main
from tunefarm_tuning.tvm.transform.combine_branches import Block, Branches
from tunefarm_tuning.tvm.transform.combine_rule import Choose, where_it_pays


def combine(mod: tvm.IRModule, choose: Choose = where_it_pays) -> tvm.IRModule:
    """Return the module with parallel products and convolutions by constants combined; the same module if there are none.

    Args:
        mod: Imported, its constants folded.
        choose: Which are combined.
    """
    plan = _Plan()
    for block in mod["main"].body.blocks:
        plan.add(Block(block), choose)
    if not plan.heads:
        return mod
    made: tvm.IRModule = relax.transform.DeadCodeElimination(["main"])(
        rewrite_main(mod, _Rewriter(mod, plan))
    )
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """A branch's share in what the branches make together."""

    branches: Branches
    begin: int
    width: int


class _Plan:
    """What becomes of variables: `heads` come after the combined kernel, `parts` are cut out of it, and `gone` are no more."""

    def __init__(self) -> None:
        self.heads: dict[Any, Branches] = {}
        self.parts: dict[Any, _Part] = {}
        self.gone: set[Any] = set()

    def add(self, block: Block, choose: Choose) -> None:
        for group in block.parallel():
            roots = choose(block, group)
            if len(roots) < 2:
                continue
            branches = block.branches(roots)
            self.heads[roots[0]] = branches
            begin = 0
            for values, width in zip(branches.values, branches.widths, strict=True):
                self.gone.update(value for value in values[:-1] if value is not None)
                self.parts[values[-1]] = _Part(branches=branches, begin=begin, width=width)
                begin += width


@relax.expr_functor.mutator
class _Rewriter(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, mod: tvm.IRModule, plan: _Plan) -> None:
        super().__init__(mod)
        self._plan = plan
        self._made: dict[int, Any] = {}

    def visit_var_binding_(self, binding: Any) -> None:
        branches = self._plan.heads.get(binding.var)
        if branches is not None:
            self._made[id(branches)] = self._together(branches)
        part = self._plan.parts.get(binding.var)
        if part is not None:
            whole = self._made[id(part.branches)]
            cut = relax.op.strided_slice(
                whole, axes=[part.branches.axis], begin=[part.begin], end=[part.begin + part.width]
            )
            self.builder_.emit_normalized(relax.VarBinding(binding.var, self.builder_.normalize(cut)))
        elif binding.var not in self._plan.gone:
            super().visit_var_binding_(binding)

    def _together(self, branches: Branches) -> Any:
        call = branches.calls[0]
        weights = relax.const(branches.weights(), str(call.args[1].value.dtype))
        values = [self._emit(call, [self.visit_expr(call.args[0]), weights])]
        for step in branches.steps:
            arguments = [values[one] if isinstance(one, int) else one for one in step.operands]
            values.append(self._emit(step.call, arguments))
        return values[-1]

    def _emit(self, like: Any, arguments: list[Any]) -> Any:
        return self.builder_.emit(tvm.ir.Call(like.op, arguments, like.attrs, like.ty_args))
