"""Fold operations on weights at compile time: merge batch norms into convolutions, and compute steps on constants."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax, tirx

from tunefarm_tuning.tvm.base.relax_graph import operator_name, rewrite_main
from tunefarm_tuning.tvm.transform.weights.formats import as_int8

Array = NDArray[Any]

_FLOATS = {"float16", "float32", "float64"}
_INTEGERS = {"int8", "uint8", "int32"}
_MAX_ELEMENTS = 1 << 20
"""The largest constant that a smaller one is repeated to here."""


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
    """Return the module with steps on floating-point constants replaced by their values, computed with NumPy.

    TVM's ``FoldConstant`` compiles a kernel with LLVM for every such step: five of the six seconds that preparing a ResNet-18
    takes. It runs after this, for the steps that are left.
    """
    passes = [relax.transform.CanonicalizeBindings(), relax.transform.DeadCodeElimination(["main"])]
    return tvm.transform.Sequential(passes)(rewrite_main(mod, _ConstantFolder(mod)))


def _array(constant: Any) -> Array:
    value: Array = constant.value.numpy()
    return value


def _permute(value: Array, attributes: Any) -> Array:
    axes = None if attributes.axes is None else [int(axis) for axis in attributes.axes]
    return np.ascontiguousarray(np.transpose(value, axes))


_UNARY: dict[str, Callable[[Array, Any], Array]] = {
    "relax.permute_dims": _permute,
    "relax.expand_dims": lambda value, attributes: np.expand_dims(
        value, tuple(int(axis) for axis in attributes.axis)
    ),
    "relax.sqrt": lambda value, _: np.asarray(np.sqrt(value)),
}
_SHAPED: dict[str, Callable[[Array, tuple[int, ...]], Array]] = {
    "relax.reshape": lambda value, shape: value.reshape(shape),
    "relax.broadcast_to": lambda value, shape: np.ascontiguousarray(np.broadcast_to(value, shape)),
}
_BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "relax.add": np.add,
    "relax.subtract": np.subtract,
    "relax.multiply": np.multiply,
    "relax.divide": np.divide,
}


def _as_floats(call: Any) -> Array | None:
    """Return the value of a cast of constant integers to floats (quantised weights, before they are scaled); None otherwise."""
    (operand,) = call.args
    dtype = str(call.ty.dtype.dtype)
    if dtype not in _FLOATS or not isinstance(operand, tvm.ir.GenericConst):
        return None
    value = _array(operand)
    return value.astype(dtype) if str(value.dtype) in _INTEGERS else None


@relax.expr_functor.mutator
class _ConstantFolder(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self._values: dict[Any, Array] = {}

    def visit_var_binding_(self, binding: Any) -> None:
        value = self._evaluate(binding.value)
        if value is None or isinstance(binding.value, tvm.ir.GenericConst):
            super().visit_var_binding_(binding)
            return
        self._values[binding.var] = value
        self.builder_.emit_normalized(relax.VarBinding(binding.var, relax.const(value, str(value.dtype))))

    def _evaluate(self, expr: Any) -> Array | None:
        """Return the value of an expression; None if it is not constant or TVM shall fold it."""
        if isinstance(expr, tvm.ir.GenericConst):
            constant = _array(expr)
            return constant if str(constant.dtype) in _FLOATS else None
        if isinstance(expr, tirx.FloatImm):
            return np.asarray(float(expr.value), dtype=str(expr.ty.dtype))
        if isinstance(expr, relax.Var):
            return self._values.get(expr)
        name = operator_name(expr)
        if name == "relax.astype":
            return _as_floats(expr)
        if name in _UNARY and len(expr.args) == 1:
            operand = self._evaluate(expr.args[0])
            return None if operand is None else _UNARY[name](operand, expr.attrs)
        if name in _SHAPED and isinstance(expr.args[1], relax.ShapeExpr):
            operand = self._evaluate(expr.args[0])
            dims = expr.args[1].values
            if operand is None or not all(isinstance(dim, tirx.IntImm) for dim in dims):
                return None
            if math.prod(int(dim) for dim in dims) > max(operand.size, _MAX_ELEMENTS):
                return None
            return _SHAPED[name](operand, tuple(int(dim) for dim in dims))
        if name in _BINARY:
            left, right = (self._evaluate(operand) for operand in expr.args)
            if left is None or right is None or left.dtype != right.dtype:
                return None
            with np.errstate(all="ignore"):
                return np.asarray(_BINARY[name](left, right), dtype=left.dtype)
        return None
