"""Reading and rewriting a network's graph: shapes, dtypes and operators of Relax expressions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import tvm
from tvm import relax, tirx

from tunefarm_tuning.workload.model import entry_name


def entry_names(mod: tvm.IRModule) -> list[str]:
    """Return the names of a module's entry functions, ``main`` first."""
    count = sum(isinstance(func, relax.Function) for func in mod.functions.values())
    return [entry_name(number) for number in range(count)]


def rewrite_main(mod: tvm.IRModule, rewriter: Any) -> tvm.IRModule:
    """Return a module with ``main``, and its other entries, rewritten by a ``PyExprMutator``, and the functions that the mutator added."""
    for name in entry_names(mod):
        rewriter.builder_.update_func(mod.get_global_var(name), rewriter.visit_expr(mod[name]))
    rewritten: tvm.IRModule = rewriter.builder_.get()
    return rewritten


def rewrite_calls(mod: tvm.IRModule, rewrite: Callable[[Any, Any], Any]) -> tvm.IRModule:
    """Return a module with each call in its entries replaced by ``rewrite(call, block builder)``, operands first."""
    return rewrite_main(mod, _CallRewriter(mod, rewrite))


@relax.expr_functor.mutator
class _CallRewriter(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, mod: tvm.IRModule, rewrite: Callable[[Any, Any], Any]) -> None:
        super().__init__(mod)
        self._rewrite = rewrite

    def visit_call_(self, call: Any) -> Any:
        return self._rewrite(super().visit_call_(call), self.builder_)


def values_of(func: relax.Function) -> dict[relax.Var, Any]:
    """Return the value of each variable that a function binds, but for those within branches."""
    return {binding.var: binding.value for block in func.body.blocks for binding in block.bindings}


def uses_of(func: relax.Function) -> Counter[relax.Var]:
    """Return how often a function reads each variable."""
    uses: Counter[relax.Var] = Counter()
    for value in (*values_of(func).values(), func.body.body):
        relax.analysis.post_order_visit(
            value, lambda node: uses.update([node] if isinstance(node, relax.Var) else [])
        )
    return uses


def fused_kernel(builder: relax.BlockBuilder, inputs: list[Any], emit: Callable[[], Any]) -> tirx.PrimFunc:
    """Return several kernels as one. `emit` emits their calls on the inputs, except the last call, which it returns."""
    with builder.function("fused", inputs, attrs={"Primitive": True}, private=True):
        with builder.dataflow():
            result = builder.emit_output(emit())
        builder.emit_func_output(result)
    arguments = [relax.Var(f"main{number}", variable.ty) for number, variable in enumerate(inputs)]
    with builder.function("main", arguments):
        with builder.dataflow():
            result = builder.emit_output(tvm.ir.Call(builder.get().get_global_var("fused"), arguments))
        builder.emit_func_output(result)
    return relax.transform.FuseTIR()(builder.get())["fused"]


def static_shape(expr: Any) -> tuple[int, ...] | None:
    """Return the shape of a tensor; None if a dimension is known only at run time."""
    shape = getattr(expr.ty, "shape", None)
    dims = getattr(shape, "values", shape)
    if dims is None or not all(isinstance(dim, tirx.IntImm) for dim in dims):
        return None
    return tuple(int(dim) for dim in dims)


def tensor_dtype(expr: Any) -> str:
    """Return the dtype of a tensor; empty for an expression that is no tensor."""
    kind = getattr(expr, "ty", None)
    return str(kind.dtype.dtype) if isinstance(kind, relax.TensorType) else ""


def operator_name(expr: Any) -> str:
    """Return the operator of a call (``"relax.add"``); empty for any other expression."""
    is_operator_call = isinstance(expr, tvm.ir.Call) and isinstance(expr.op, tvm.ir.Op)
    return str(expr.op.name) if is_operator_call else ""
