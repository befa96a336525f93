"""Fold operations on weights at compile time: merge batch norms into convolutions, and compute steps on constants."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax

from tunefarm_tuning.tvm.base.relax_graph import operator_name, rewrite_main
from tunefarm_tuning.tvm.transform.weights.constant_calls import constant_value, operands_of, value_of_call
from tunefarm_tuning.tvm.transform.weights.formats import as_int8

Array = NDArray[Any]


def fold_batch_norms(mod: tvm.IRModule) -> tvm.IRModule:
    """Return the module with constant batch norms after 2-D convolutions merged into the convolutions' constant weights.

    TVM's ``FoldBatchnormToConv2D`` writes epsilon as a float32, which float16 and float64 do not take; its patterns take as long as the
    rest of a ResNet's import.
    """
    return rewrite_main(mod, _NormFolder(mod))


@relax.expr_functor.mutator
class _NormFolder(relax.PyExprMutator):  # type: ignore[misc]
    def visit_tuple_getitem_(self, item: Any) -> Any:
        rewritten = super().visit_tuple_getitem_(item)
        norm = self._call("relax.nn.batch_norm", rewritten.tuple_value)
        conv = None if norm is None else self._call("relax.nn.conv2d", norm.args[0])
        if conv is None or int(rewritten.index) != 0:
            return rewritten
        merged = _merged(conv, norm)
        if merged is None:
            return rewritten
        weight, offset = merged
        result = relax.Call(conv.op, (conv.args[0], weight), conv.attrs)
        return relax.op.add(self.builder_.emit(result), offset)

    def _call(self, operator: str, expr: Any) -> Any | None:
        """Return the call of an operator that a variable stands for, if all its further operands are constants."""
        value = self.lookup_binding(expr) if isinstance(expr, relax.Var) else expr
        if operator_name(value) != operator:
            return None
        return value if all(isinstance(operand, tvm.ir.GenericConst) for operand in value.args[1:]) else None


def _merged(conv: Any, norm: Any) -> tuple[Any, Any] | None:
    """Return the weights of a convolution with its batch norm, and what is to be added; None if these have to stay apart."""
    if conv.attrs["kernel_layout"] != "OIHW" or int(norm.attrs.axis) != 1:
        return None
    weight = _array(conv.args[1])
    dtype = str(weight.dtype)
    # Computed in float64, and rounded once.
    scale, shift, mean, variance = (_array(operand).astype(np.float64) for operand in norm.args[1:])
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(variance + float(norm.attrs.epsilon))
        merged = (weight.astype(np.float64) * factor.reshape(-1, 1, 1, 1)).astype(dtype)
        offset = (shift - mean * factor).reshape(1, -1, 1, 1).astype(dtype)
    if not (np.isfinite(merged).all() and np.isfinite(offset).all()):
        return None  # the merged weights overflow; a norm after the convolution may not
    if as_int8(weight, 0) is not None and as_int8(merged, 0) is None:
        return None  # the convolution multiplies bytes, and could not with the merged weights
    return relax.const(merged, dtype), relax.const(offset, dtype)


def fold_weights(mod: tvm.IRModule) -> tvm.IRModule:
    """Return the module with steps on constants replaced by their values, computed with NumPy.

    TVM's ``FoldConstant`` compiles a kernel with LLVM for every such step: five of the six seconds that preparing a ResNet-18
    takes. It runs after this, for the steps that are left.
    """
    passes = [relax.transform.CanonicalizeBindings(), relax.transform.DeadCodeElimination(["main"])]
    return tvm.transform.Sequential(passes)(rewrite_main(mod, _ConstantFolder(mod)))


def _array(constant: Any) -> Array:
    value: Array = constant.value.numpy()
    return value


@relax.expr_functor.mutator
class _ConstantFolder(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self._values: dict[Any, Array] = {}

    def visit_var_binding_(self, binding: Any) -> None:
        value = self._evaluate(binding.value)
        if value is not None:
            self._values[binding.var] = value
        if value is None or isinstance(binding.value, tvm.ir.GenericConst):
            super().visit_var_binding_(binding)
            return
        self.builder_.emit_normalized(relax.VarBinding(binding.var, relax.const(value, str(value.dtype))))

    def _evaluate(self, expr: Any) -> Array | None:
        """Return the value of an expression; None if it is not constant or TVM shall fold it."""
        if isinstance(expr, relax.Var):
            return self._values.get(expr)
        operands = operands_of(expr)
        if operands is None:
            return constant_value(expr)
        if any(isinstance(operand, relax.Var) and operand not in self._values for operand in operands):
            return None  # before a weight beside it is read
        values = list(map(self._evaluate, operands))
        known = [value for value in values if value is not None]
        return value_of_call(expr, known) if len(known) == len(values) else None
