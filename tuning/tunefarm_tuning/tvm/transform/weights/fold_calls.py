"""Fold calls on constants by TVM's ``FoldConstant``, which compiles and runs a kernel for each, applied to these calls alone.

Applied to a network, it writes the kernel of every operator first, to see whether it can be run: as much work as `LegalizeOps`, for two
of three passes through a network that have nothing to fold.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax

from tunefarm_tuning.tvm.base.relax_graph import entry_names, operator_name, rewrite_main, values_of

_READ_NO_VALUES = frozenset({
    "relax.full_like", "relax.ones_like", "relax.zeros_like",
    "relax.shape_of", "relax.shape_to_tensor", "relax.tensor_to_shape", "relax.inspect.tensor_shape_i",
})  # fmt: skip
"""Operators whose result may be constant where a tensor that they take is not."""
_FOLD = relax.transform.FoldConstant()


def fold_calls(mod: tvm.IRModule) -> tvm.IRModule:
    """Return the module with calls replaced by their values where these are known."""
    folded = rewrite_main(mod, _CallFolder(mod))
    for name in entry_names(folded):
        folded.update_func(folded.get_global_var(name), relax.analysis.remove_all_unused(folded[name]))
    return folded


@relax.expr_functor.mutator
class _CallFolder(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self._kernels = mod

    def visit_call_(self, call: Any) -> Any:
        call = super().visit_call_(call)
        name = operator_name(call)
        if not name:
            return call
        operands = [self._with_values(operand) for operand in call.args]
        if any(new is not old for new, old in zip(operands, call.args, strict=True)):
            call = relax.Call(call.op, operands, call.attrs, call.ty_args)
        if name not in _READ_NO_VALUES and not all(map(_is_known, operands)):
            return call
        value = _value_of(call, self._kernels)
        return call if value is None else value

    def _with_values(self, operand: Any) -> Any:
        """Return an operand with constants in place of the variables that are bound to them."""
        if isinstance(operand, relax.Tuple):
            return relax.Tuple([self._with_values(field) for field in operand.fields])
        if isinstance(operand, relax.Var):
            value = self.lookup_binding(operand)
            return value if isinstance(value, tvm.ir.GenericConst) else operand
        return operand


def _is_known(operand: Any) -> bool:
    if isinstance(operand, relax.Tuple):
        return all(map(_is_known, operand.fields))
    return not isinstance(operand, tvm.ir.Call | relax.Var | relax.TupleGetItem)


def _value_of(call: Any, kernels: tvm.IRModule) -> Any | None:
    """Return the constant that a call gives; None if TVM does not fold it."""
    parameters = [operand for operand in call.args if isinstance(operand, relax.Var)]
    builder = relax.BlockBuilder()
    with builder.function("main", parameters):
        with builder.dataflow():
            result = builder.emit_output(call)
        builder.emit_func_output(result)
    alone = builder.get()
    for kernel in call.args[:1]:
        if isinstance(kernel, tvm.ir.GlobalVar):
            alone[kernel] = kernels[kernel]
    folded = _FOLD(alone)["main"]
    value = values_of(folded).get(folded.body.body, folded.body.body)
    return value if isinstance(value, tvm.ir.GenericConst) else None
