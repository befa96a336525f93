"""Folding what is done to weights (batch norms merged into them, their layout changed) with NumPy.

TVM's `FoldConstant` compiles a kernel with LLVM for every such step: five of the six seconds that preparing a ResNet-18 takes.
It still runs, after this, for what is left.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax, tirx

from tunefarm_tuning.tvm.base.relax_graph import rewrite_main

Array = NDArray[Any]

_FLOATS = {"float16", "float32", "float64"}
_INTEGERS = {"int8", "uint8", "int32"}


def _permute(value: Array, attributes: Any) -> Array:
    axes = None if attributes.axes is None else [int(axis) for axis in attributes.axes]
    return np.ascontiguousarray(np.transpose(value, axes))


def _expand(value: Array, attributes: Any) -> Array:
    return np.expand_dims(value, tuple(int(axis) for axis in attributes.axis))


_UNARY: dict[str, Callable[[Array, Any], Array]] = {
    "relax.permute_dims": _permute,
    "relax.expand_dims": _expand,
    "relax.sqrt": lambda value, _: np.asarray(np.sqrt(value)),
}
_BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "relax.add": np.add,
    "relax.subtract": np.subtract,
    "relax.multiply": np.multiply,
    "relax.divide": np.divide,
}


def _widened(call: Any) -> Array | None:
    """Return integers that a quantised network has as constants as the floats that they are scaled as."""
    (operand,) = call.args
    wanted = str(call.ty.dtype.dtype)
    if wanted not in _FLOATS or not isinstance(operand, tvm.ir.GenericConst):
        return None
    value: Array = operand.value.numpy()
    return value.astype(wanted) if str(value.dtype) in _INTEGERS else None


def fold_weights(mod: tvm.IRModule) -> tvm.IRModule:
    """Return the module with steps on floating-point constants replaced by their values."""
    passes = [relax.transform.CanonicalizeBindings(), relax.transform.DeadCodeElimination(["main"])]
    return tvm.transform.Sequential(passes)(rewrite_main(mod, _Folder(mod)))


@relax.expr_functor.mutator
class _Folder(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self.known: dict[Any, Array] = {}

    def visit_var_binding_(self, binding: Any) -> None:
        value = self._evaluate(binding.value)
        if value is None or isinstance(binding.value, tvm.ir.GenericConst):
            super().visit_var_binding_(binding)
            return
        self.known[binding.var] = value
        self.builder_.emit_normalized(relax.VarBinding(binding.var, relax.const(value, str(value.dtype))))

    def _evaluate(self, expr: Any) -> Array | None:
        """Return an expression's value; None where it is not known here, or not ours to compute."""
        if isinstance(expr, tvm.ir.GenericConst):
            value: Array = expr.value.numpy()
            return value if str(value.dtype) in _FLOATS else None
        if isinstance(expr, tirx.FloatImm):
            return np.asarray(float(expr.value), dtype=str(expr.ty.dtype))
        if isinstance(expr, relax.Var):
            return self.known.get(expr)
        if not isinstance(expr, tvm.ir.Call) or not isinstance(expr.op, tvm.ir.Op):
            return None
        name = expr.op.name
        if name == "relax.astype":
            return _widened(expr)
        if name in _UNARY and len(expr.args) == 1:
            operand = self._evaluate(expr.args[0])
            return None if operand is None else _UNARY[name](operand, expr.attrs)
        if name == "relax.reshape" and isinstance(expr.args[1], relax.ShapeExpr):
            operand = self._evaluate(expr.args[0])
            sizes = expr.args[1].values
            if operand is None or not all(isinstance(size, tirx.IntImm) for size in sizes):
                return None
            return operand.reshape([int(size) for size in sizes])
        if name in _BINARY:
            left, right = (self._evaluate(operand) for operand in expr.args)
            if left is None or right is None or left.dtype != right.dtype:
                return None
            with np.errstate(all="ignore"):
                return np.asarray(_BINARY[name](left, right), dtype=left.dtype)
        return None
