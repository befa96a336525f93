"""Fold calls on constants by TVM's ``FoldConstant``, which compiles and runs a kernel for each, applied to these calls alone.

Applied to a network, it writes the kernel of every operator first, to see whether it can be run: as much work as `LegalizeOps`, for two
of three passes through a network that have nothing to fold.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm
from tvm import relax

from tunefarm_tuning.tvm.base.relax_graph import entry_names, operator_name, rewrite_main, values_of

_READ_NO_VALUES = frozenset({
    "relax.eye_like", "relax.full_like", "relax.ones_like", "relax.shape_of", "relax.zeros_like",
})  # fmt: skip
"""Operators that take a tensor for its shape alone: their results may be constant where that tensor is not."""
_FOLDED_BY_NAME = frozenset({"relax.call_tir", "relax.shape_to_tensor", "relax.tensor_to_shape"})
"""Operators without a rule that writes their kernel, which TVM folds nevertheless."""
_FOLD = relax.transform.FoldConstant()


def fold_calls(mod: tvm.IRModule) -> tvm.IRModule:
    """Return the module with calls replaced by their values where these are known, in branches too, and without bindings that nothing uses."""
    values: dict[Any, Any] = {}
    for name in entry_names(mod):
        known = _KnownBindings()
        known.visit_expr(mod[name])
        values |= known.values(mod)
    folded = rewrite_main(mod, _ValueInserter(mod, values))
    for name in entry_names(folded):
        folded.update_func(folded.get_global_var(name), relax.analysis.remove_all_unused(folded[name]))
    return folded


@relax.expr_functor.visitor
class _KnownBindings(relax.PyExprVisitor):  # type: ignore[misc]
    """Collects the bindings of a function that depend on constants alone, in order."""

    def __init__(self) -> None:
        super().__init__()
        self._bindings: dict[Any, Any] = {}
        self._parameters: dict[Any, relax.Var] = {}
        """What stands for each tensor that is not known, but whose shape is read."""

    def visit_var_binding_(self, binding: Any) -> None:
        super().visit_var_binding_(binding)
        value = binding.value
        name = operator_name(value)
        if name in _READ_NO_VALUES:
            value = relax.Call(value.op, list(map(self._stand_in, value.args)), value.attrs, value.ty_args)
        elif not (
            _may_fold(value.op) and all(map(self._is_known, value.args)) if name else self._is_known(value)
        ):
            return
        self._bindings[binding.var] = value

    def _stand_in(self, operand: Any) -> Any:
        if self._is_known(operand):
            return operand
        if operand not in self._parameters:
            self._parameters[operand] = relax.Var("unknown", operand.ty)
        return self._parameters[operand]

    def _is_known(self, expr: Any) -> bool:
        if isinstance(expr, relax.Tuple):
            return all(map(self._is_known, expr.fields))
        if isinstance(expr, relax.TupleGetItem):
            return self._is_known(expr.tuple_value)
        if isinstance(expr, relax.Var):
            return expr in self._bindings
        return not isinstance(expr, tvm.ir.Call | relax.If | relax.Function | relax.SeqExpr)

    def values(self, mod: tvm.IRModule) -> dict[Any, Any]:
        """Return the values of the variables that are bound to them, and of those that TVM folds, all of these in one function."""
        known = {variable: value for variable, value in self._bindings.items() if _is_value(value)}
        calls = [variable for variable, value in self._bindings.items() if operator_name(value)]
        if not calls:
            return known
        builder = relax.BlockBuilder()
        with builder.function("known", list(self._parameters.values())):
            with builder.dataflow():
                for variable, value in self._bindings.items():
                    builder.emit_normalized(relax.VarBinding(variable, builder.normalize(value)))
                result = builder.emit_output(relax.Tuple(calls))
            builder.emit_func_output(result)
        alone = builder.get()
        for variable, func in mod.functions.items():
            if isinstance(func, tvm.tirx.PrimFunc):
                alone[variable] = func
        folded = _FOLD(alone)["known"]
        bound = values_of(folded)
        fields = bound.get(folded.body.body, folded.body.body).fields
        values = zip(calls, (bound.get(field, field) for field in fields), strict=True)
        return known | {variable: value for variable, value in values if _is_value(value)}


def _may_fold(operator: Any) -> bool:
    return operator.name in _FOLDED_BY_NAME or operator.get_attr("FLegalize") is not None


def _is_value(expr: Any) -> bool:
    """Return whether an expression is a constant, a shape, or a tuple of these."""
    if isinstance(expr, relax.Tuple):
        return all(map(_is_value, expr.fields))
    return isinstance(expr, tvm.ir.GenericConst | relax.ShapeExpr)


@relax.expr_functor.mutator
class _ValueInserter(relax.PyExprMutator):  # type: ignore[misc]
    """Puts values in place of the variables that have them; a tuple stays bound to its variable."""

    def __init__(self, mod: tvm.IRModule, values: Mapping[Any, Any]) -> None:
        super().__init__(mod)
        self._values = values

    def visit_var_binding_(self, binding: Any) -> None:
        value = self._values.get(binding.var)
        if value is None:
            super().visit_var_binding_(binding)
        else:
            self.builder_.emit_normalized(relax.VarBinding(binding.var, value))

    def visit_var_(self, variable: Any) -> Any:
        value = self._values.get(variable)
        return super().visit_var_(variable) if value is None or isinstance(value, relax.Tuple) else value

    visit_dataflow_var_ = visit_var_
