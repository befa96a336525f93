"""Compute convolutions and matrix products of quantised activations and weights with int8 dot products.

The importer follows ONNX's definition: it scales integers to floats, computes, and rounds the results. If both factors of a product are
8-bit integers times a scale, the integers can be multiplied as they are, and their sum scaled: exactly, and several times as fast
on a CPU that has ``vpdpbusd`` (ADR 0031).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax

from tunefarm_tuning.tvm.base.relax_graph import operator_name, rewrite_main, static_shape, tensor_dtype
from tunefarm_tuning.tvm.kernels.dot_products import BYTES, packed
from tunefarm_tuning.tvm.kernels.int8_kernels import (
    MOST_PRODUCTS,
    int8_conv2d,
    int8_matmul,
    offsets,
    unsigned_zero,
)
from tunefarm_tuning.tvm.transform.weights.formats import as_int8

_MOVES = {"relax.reshape", "relax.permute_dims"}
_BYTES = {"int8", "uint8"}
_WEIGHT_RANK = {"relax.matmul": 2, "relax.nn.conv2d": 4}


def multiply_int8(mod: tvm.IRModule, lanes: int) -> tvm.IRModule:
    """Return the module with quantised 2-D convolutions (channels last, ungrouped) and matrix products computed in integers.

    The module's constants are folded; `lanes` are those of the target's int8 dot product, above 0.
    """
    rewritten = rewrite_main(mod, _Int8ProductRewriter(mod, lanes))
    result: tvm.IRModule = relax.transform.DeadCodeElimination(["main"])(rewritten)
    return result


@dataclass(frozen=True, slots=True, kw_only=True)
class _Quantised:
    """Activations as ``(values - zero) * scale``.

    Attributes:
        values: 8-bit integers.
        moves: Calls that moved the elements after they were scaled, the last one first.
    """

    values: Any
    scale: float
    zero: int
    moves: tuple[Any, ...]

    @property
    def dtype(self) -> str:
        return str(self.values.ty.dtype.dtype)


@relax.expr_functor.mutator
class _Int8ProductRewriter(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, mod: tvm.IRModule, lanes: int) -> None:
        super().__init__(mod)
        self._lanes = lanes
        self._known: dict[Any, Any] = {
            binding.var: binding.value
            for block in mod["main"].body.blocks
            for binding in block.bindings
            if isinstance(binding, relax.VarBinding)
        }

    def visit_call_(self, call: Any) -> Any:
        kernel = self._kernel_of(call)
        # Looking through weights is slow, so it comes last: networks without quantised activations skip it.
        data = None if kernel is None else self._quantised(call.args[0])
        weights = None if data is None else _weights(call.args[1], _WEIGHT_RANK[call.op.name])
        if kernel is None or data is None or weights is None:
            return super().visit_call_(call)
        steps, scales = weights
        zero = unsigned_zero(data.zero, data.dtype)
        scale = (np.float32(data.scale) * scales).astype(np.float32)
        return self.builder_.call_te(
            partial(kernel, zero=zero),
            self._with_moves(data),
            relax.const(packed(steps, self._lanes, BYTES.products), "int8"),
            relax.const(offsets(steps, zero), "int32"),
            relax.const(scale, "float32"),
            primfunc_name_hint="byte_conv2d" if steps.ndim == 4 else "byte_matmul",
        )

    def _kernel_of(self, call: Any) -> Callable[..., Any] | None:
        """Return the kernel that computes a call in integers; None if there is none."""
        name = operator_name(call)
        if name not in _WEIGHT_RANK or tensor_dtype(call) != "float32":
            return None
        shape = static_shape(call)
        if shape is None or 0 in shape:
            return None
        if name == "relax.matmul":
            return int8_matmul if len(call.args[0].ty.shape) > 1 else None
        attributes = call.attrs
        layouts = (attributes.data_layout, attributes.kernel_layout, attributes.out_layout)
        if layouts != ("NHWC", "HWIO", "NHWC") or int(attributes.groups) != 1:
            return None
        return partial(
            int8_conv2d,
            strides=[int(stride) for stride in attributes.strides],
            padding=[int(width) for width in attributes.padding],
            dilation=[int(dilation) for dilation in attributes.dilation],
        )

    def _quantised(self, value: Any) -> _Quantised | None:
        """Return activations in quantised form; None if they are not quantised."""
        moves = []
        call = self._value(value)
        while operator_name(call) in _MOVES:
            moves.append(call)
            call = self._value(call.args[0])
        scaled = self._by_scalar(call, "relax.multiply")
        if scaled is None:
            return None
        inner, scale = scaled
        shifted = self._by_scalar(inner, "relax.subtract")
        inner, zero = (inner, 0.0) if shifted is None else shifted
        if operator_name(inner) != "relax.astype":
            return None
        values = inner.args[0]
        dtype = tensor_dtype(values)
        limits = np.iinfo(np.int8 if dtype == "int8" else np.uint8)
        if dtype not in _BYTES or not float(zero).is_integer() or not limits.min <= zero <= limits.max:
            return None
        return _Quantised(values=values, scale=scale, zero=int(zero), moves=tuple(moves))

    def _by_scalar(self, call: Any, name: str) -> tuple[Any, float] | None:
        """Return the value of the first operand of an operator, and its second operand, a scalar constant; None otherwise."""
        if operator_name(call) != name or not isinstance(call.args[1], tvm.ir.GenericConst):
            return None
        number = call.args[1].value.numpy()
        # A constant of higher rank would raise the rank of the result.
        if number.size != 1 or number.ndim > len(call.args[0].ty.shape):
            return None
        return self._value(call.args[0]), float(number.reshape(()))

    def _value(self, value: Any) -> Any:
        while isinstance(value, relax.Var) and value in self._known:
            value = self._known[value]
        return value

    def _with_moves(self, data: _Quantised) -> Any:
        """Return the integers of activations, moved as the activations were."""
        value = self.visit_expr(data.values)
        for move in reversed(data.moves):
            moved = tvm.ir.Call(move.op, [value, *move.args[1:]], move.attrs)
            value = self.builder_.emit(self.builder_.normalize(moved))
        return value


def _weights(value: Any, rank: int) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """Return weights as integers ``[..., products, results]`` and a scale per result; None if they are not quantised."""
    if not isinstance(value, tvm.ir.GenericConst) or tensor_dtype(value) != "float32":
        return None
    weight = value.value.numpy()
    if weight.ndim != rank or weight.size == 0 or prod(weight.shape[:-1]) > MOST_PRODUCTS:
        return None
    stored = as_int8(weight, weight.ndim - 1)
    return None if stored is None else (stored[0], stored[1])
