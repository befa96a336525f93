"""Convolutions and products of quantised activations by quantised weights, computed with their integers.

The importer writes what ONNX says: integers are scaled to floats, computed with, and rounded again. Where both factors of a product
are 8-bit integers times a scale, the scales can as well be applied to its sum, and the integers multiplied as they are:
exactly, and on a CPU that has ``vpdpbusd`` several times as fast (ADR 0031).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax

from tunefarm_tuning.tvm.base.relax_graph import rewrite_main, static_shape
from tunefarm_tuning.tvm.kernels.int8_kernels import (
    MOST_PRODUCTS,
    byte_conv2d,
    byte_product,
    offsets,
    packed,
    unsigned_zero,
)
from tunefarm_tuning.tvm.transform.weights.forms import integers

_MOVES = {"relax.reshape", "relax.permute_dims"}
_BYTES = {"int8", "uint8"}
_WEIGHT_RANK = {"relax.matmul": 2, "relax.nn.conv2d": 4}


def integer_products(mod: tvm.IRModule, lanes: int) -> tvm.IRModule:
    """Return the module with such computed in integers: ordinary 2-D convolutions (channels last), and products by matrices.

    Args:
        mod: Its constants folded.
        lanes: As of `dot_lanes`, above 0.
    """
    made: tvm.IRModule = relax.transform.DeadCodeElimination(["main"])(
        rewrite_main(mod, _Rewriter(mod, lanes))
    )
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class _Quantised:
    """Activations as ``(values - zero) * scale``.

    Attributes:
        values: Integers of 8 bits.
        moves: What was done to them since, the last first: calls that only move elements.
    """

    values: Any
    scale: float
    zero: int
    moves: tuple[Any, ...]

    @property
    def dtype(self) -> str:
        return str(self.values.ty.dtype.dtype)


@relax.expr_functor.mutator
class _Rewriter(relax.PyExprMutator):  # type: ignore[misc]
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
        # First what is told fast: other networks' weights are not looked through.
        given = None if kernel is None else self._quantised(call.args[0])
        weights = None if given is None else _weights(call.args[1], _WEIGHT_RANK[call.op.name])
        if kernel is None or given is None or weights is None:
            return super().visit_call_(call)
        steps, scales = weights
        zero = unsigned_zero(given.zero, given.dtype)
        scale = (np.float32(given.scale) * scales).astype(np.float32)
        return self.builder_.call_te(
            partial(kernel, zero=zero),
            self._moved(given),
            relax.const(packed(steps, self._lanes), "int8"),
            relax.const(offsets(steps, zero), "int32"),
            relax.const(scale, "float32"),
            primfunc_name_hint="byte_conv2d" if steps.ndim == 4 else "byte_matmul",
        )

    def _kernel_of(self, call: Any) -> Callable[..., Any] | None:
        """Return what computes a call in integers; None where nothing does."""
        name = call.op.name if isinstance(call.op, tvm.ir.Op) else ""
        if name not in _WEIGHT_RANK or _dtype(call) != "float32":
            return None
        if static_shape(call) is None or 0 in (static_shape(call) or ()):
            return None
        if name == "relax.matmul":
            return byte_product if len(call.args[0].ty.shape) > 1 else None
        attributes = call.attrs
        if (attributes.data_layout, attributes.kernel_layout, attributes.out_layout) != (
            "NHWC",
            "HWIO",
            "NHWC",
        ):
            return None
        if int(attributes.groups) != 1:
            return None
        return partial(
            byte_conv2d,
            strides=[int(one) for one in attributes.strides],
            padding=[int(one) for one in attributes.padding],
            dilation=[int(one) for one in attributes.dilation],
        )

    def _quantised(self, value: Any) -> _Quantised | None:
        moves = []
        call = self._value(value)
        while isinstance(call, tvm.ir.Call) and isinstance(call.op, tvm.ir.Op) and call.op.name in _MOVES:
            moves.append(call)
            call = self._value(call.args[0])
        scaled = self._by_one_number(call, "relax.multiply")
        if scaled is None:
            return None
        inner, scale = scaled
        shifted = self._by_one_number(inner, "relax.subtract")
        inner, zero = (inner, 0.0) if shifted is None else shifted
        if not _is_call(inner, "relax.astype"):
            return None
        values = inner.args[0]
        ends = np.iinfo(np.int8 if _dtype(values) == "int8" else np.uint8)
        if _dtype(values) not in _BYTES or not float(zero).is_integer() or not ends.min <= zero <= ends.max:
            return None
        return _Quantised(values=values, scale=scale, zero=int(zero), moves=tuple(moves))

    def _by_one_number(self, call: Any, name: str) -> tuple[Any, float] | None:
        """Return a call's first operand, as it was computed, and the one number that its second one is."""
        if not _is_call(call, name) or not isinstance(call.args[1], tvm.ir.GenericConst):
            return None
        number = call.args[1].value.numpy()
        # One of more dimensions would give the result more.
        if number.size != 1 or number.ndim > len(call.args[0].ty.shape):
            return None
        return self._value(call.args[0]), float(number.reshape(()))

    def _value(self, value: Any) -> Any:
        while isinstance(value, relax.Var) and value in self._known:
            value = self._known[value]
        return value

    def _moved(self, given: _Quantised) -> Any:
        value = self.visit_expr(given.values)
        for move in reversed(given.moves):
            again = tvm.ir.Call(move.op, [value, *move.args[1:]], move.attrs)
            value = self.builder_.emit(self.builder_.normalize(again))
        return value


def _weights(value: Any, rank: int) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """Return weights as integers ``[..., products, results]`` and a scale per result; None where they are no such."""
    if not isinstance(value, tvm.ir.GenericConst) or _dtype(value) != "float32":
        return None
    weight = value.value.numpy()
    if weight.ndim != rank or weight.size == 0 or _num_products(weight.shape) > MOST_PRODUCTS:
        return None
    stored = integers(weight, weight.ndim - 1)
    return None if stored is None else (stored[0], stored[1])


def _num_products(shape: Sequence[int]) -> int:
    return int(np.prod(shape[:-1]))


def _is_call(value: Any, name: str) -> bool:
    return isinstance(value, tvm.ir.Call) and isinstance(value.op, tvm.ir.Op) and value.op.name == name


def _dtype(value: Any) -> str:
    kind = getattr(value, "ty", None)
    return str(kind.dtype.dtype) if isinstance(kind, relax.TensorType) else ""
