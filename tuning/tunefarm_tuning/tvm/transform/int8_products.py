"""Compute convolutions and matrix products of quantised activations and weights with int8 dot products.

The importer follows ONNX's definition: it scales integers to floats, computes, and rounds the results. If both factors of a product are
8-bit integers times a scale, the integers can be multiplied as they are, and their sum scaled: exactly, and several times as fast
on a CPU that has ``vpdpbusd`` or ``sdot`` (ADR 0031). So can those of products that are integers in the file, whose activations are quantised when
the model runs (``DynamicQuantizeLinear``, ``MatMulInteger``, ``ConvInteger``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax

from tunefarm_tuning.target.dot_products import ByteProducts
from tunefarm_tuning.tvm.base.relax_graph import operator_name, rewrite_main, static_shape, tensor_dtype
from tunefarm_tuning.tvm.kernels.dot_products import packed
from tunefarm_tuning.tvm.kernels.int8_kernels import (
    MOST_PRODUCTS,
    byte_depthwise_conv2d,
    int8_conv2d,
    int8_matmul,
    integer_conv2d,
    integer_matmul,
    offsets,
    shifted_zero,
)
from tunefarm_tuning.tvm.transform.weights.formats import as_int8

_MOVES = {"relax.reshape", "relax.permute_dims"}
_BYTES = {"int8", "uint8"}
_BYTE = 255
_WEIGHT_RANK = {"relax.matmul": 2, "relax.nn.conv2d": 4}


def multiply_int8(mod: tvm.IRModule, instruction: ByteProducts) -> tvm.IRModule:
    """Return the module with quantised 2-D convolutions (channels last, ungrouped) and matrix products computed in integers.

    Depthwise convolutions compute in float32, but read bytes. The module's constants are folded.
    """
    rewritten = rewrite_main(mod, _Int8ProductRewriter(mod, instruction))
    result: tvm.IRModule = relax.transform.DeadCodeElimination(["main"])(rewritten)
    return result


@dataclass(frozen=True, slots=True, kw_only=True)
class _Quantised:
    """Activations as ``(values - zero) * scale``.

    Attributes:
        values: 8-bit integers.
        zero: A number; or a tensor of one integer, or None for 0, where it is known at run time only.
        scale: A number; 1.0 where the product is one of integers; or a tensor of one element.
        moves: Calls that moved the elements after they were scaled, the last one first.
    """

    values: Any
    zero: Any
    moves: tuple[Any, ...]
    scale: Any = 1.0

    @property
    def dtype(self) -> str:
        return str(self.values.ty.dtype.dtype)


@relax.expr_functor.mutator
class _Int8ProductRewriter(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, mod: tvm.IRModule, instruction: ByteProducts) -> None:
        super().__init__(mod)
        self._instruction = instruction
        self._known: dict[Any, Any] = {
            binding.var: binding.value
            for block in mod["main"].body.blocks
            for binding in block.bindings
            if isinstance(binding, relax.VarBinding)
        }

    def visit_call_(self, call: Any) -> Any:
        if _is_depthwise(call) and (sums := self._depthwise(call)) is not None:
            return sums
        if self._is_supported(call):
            product = self._scaled(call) if tensor_dtype(call) == "float32" else self._integer(call)
            if product is not None:
                return product
        return super().visit_call_(call)

    def _scaled(self, call: Any) -> Any | None:
        """Return a float32 product computed in integers; None if its factors are not quantised."""
        # Looking through weights is slow, so it comes last: networks without quantised activations skip it.
        data = self._quantised(call.args[0])
        when_run = self._quantised_when_run(call.args[0]) if data is None else None
        quantised = data is not None or when_run is not None
        weights = _weights(call.args[1], _WEIGHT_RANK[call.op.name]) if quantised else None
        if weights is None:
            return None
        steps, scales = weights
        if when_run is not None:
            product = relax.op.astype(self.builder_.emit(self._product(call, when_run, steps)), "float32")
            scale = relax.op.multiply(
                self._emitted(relax.op.reshape(self.visit_expr(when_run.scale), [1])),
                relax.const(scales, "float32"),
            )
            return relax.op.multiply(self._emitted(product), self._emitted(scale))
        assert data is not None
        zero = shifted_zero(data.zero, data.dtype, self._instruction.activations)
        scale = (np.float32(data.scale) * scales).astype(np.float32)
        kernel = int8_matmul if steps.ndim == 2 else partial(int8_conv2d, **_geometry(call))
        return self._emit(
            call,
            partial(kernel, zero=zero),
            data,
            steps,
            relax.const(offsets(steps, zero), "int32"),
            relax.const(scale, "float32"),
        )

    def _depthwise(self, call: Any) -> Any | None:
        """Return a depthwise convolution that reads bytes; None if its activations are not quantised."""
        data = self._quantised(call.args[0])
        if data is None or not isinstance(call.args[1], tvm.ir.GenericConst):
            return None
        weights = np.float32(data.scale) * call.args[1].value.numpy()
        return self.builder_.call_te(
            partial(byte_depthwise_conv2d, zero=data.zero, **_geometry(call)),
            self._with_moves(data),
            relax.const(weights, "float32"),
            primfunc_name_hint="depthwise_conv2d_of_bytes",
        )

    def _integer(self, call: Any) -> Any | None:
        """Return a product of integers computed from bytes; None if its factors do not fit into bytes."""
        data = self._shifted(call.args[0])
        weights = None if data is None else self._integers(call.args[1])
        if data is None or weights is None or weights.size == 0:
            return None
        centres = _centres(weights)
        if weights.ndim != _WEIGHT_RANK[call.op.name] or centres is None:
            return None
        steps = (weights - centres).astype(np.int8)
        product = self._product(call, data, steps)
        if not centres.any():
            return product
        added = relax.op.multiply(self._summed_activations(call), relax.const(centres, "int32"))
        return relax.op.add(self.builder_.emit(product), self._emitted(added))

    def _product(self, call: Any, data: _Quantised, steps: NDArray[Any]) -> Any:
        """Return the product of bytes of activations, whose zero point may be known at run time only, and weights, as int32."""
        zero: Any = relax.const(np.zeros(1, np.int32), "int32")
        if data.zero is not None:
            zero = self._emitted(relax.op.reshape(self.visit_expr(data.zero), [1]))
            zero = zero if tensor_dtype(zero) == "int32" else self._emitted(relax.op.astype(zero, "int32"))
        if (shift := shifted_zero(0, data.dtype, self._instruction.activations)) != 0:
            zero = self._emitted(relax.op.add(zero, relax.const(np.full(1, shift, np.int32), "int32")))
        sums = relax.const(steps.sum(axis=tuple(range(steps.ndim - 1)), dtype=np.int32), "int32")
        kernel = integer_matmul if steps.ndim == 2 else partial(integer_conv2d, **_geometry(call))
        return self._emit(call, kernel, data, steps, zero, sums)

    def _summed_activations(self, call: Any) -> Any:
        """Return the sum of the activations that each result multiplies, with one channel."""
        sums = self._emitted(relax.op.sum(self.visit_expr(call.args[0]), axis=-1, keepdims=True))
        if operator_name(call) == "relax.matmul":
            return sums
        ones = np.ones((*static_shape(call.args[1])[:2], 1, 1), np.int32)  # type: ignore[index]
        window = tvm.ir.Call(call.op, [sums, relax.const(ones, "int32")], call.attrs)
        return self._emitted(window)

    def _emit(
        self, call: Any, kernel: Callable[..., Any], data: _Quantised, steps: NDArray[Any], *more: Any
    ) -> Any:
        rows = static_shape(call)[-2]  # type: ignore[index]
        instruction = self._instruction if rows > 1 else self._instruction.by_row
        return self.builder_.call_te(
            partial(kernel, instruction=instruction),
            self._with_moves(data),
            relax.const(packed(steps, instruction.lanes, instruction.products), "int8"),
            *more,
            primfunc_name_hint="byte_conv2d" if steps.ndim == 4 else "byte_matmul",
        )

    def _emitted(self, value: Any) -> Any:
        return self.builder_.emit(self.builder_.normalize(value))

    @staticmethod
    def _is_supported(call: Any) -> bool:
        """Return whether a call is a product of the supported kinds, if its factors are quantised."""
        name = operator_name(call)
        if name not in _WEIGHT_RANK or tensor_dtype(call) not in ("float32", "int32"):
            return False
        shape = static_shape(call)
        if shape is None or 0 in shape:
            return False
        if name == "relax.matmul":
            return len(call.args[0].ty.shape) > 1
        attributes = call.attrs
        layouts = (attributes.data_layout, attributes.kernel_layout, attributes.out_layout)
        return layouts == ("NHWC", "HWIO", "NHWC") and int(attributes.groups) == 1

    def _quantised(self, value: Any) -> _Quantised | None:
        """Return activations in quantised form; None if they are not quantised."""
        call, moves = self._before_moves(value)
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
        return _Quantised(values=values, scale=scale, zero=int(zero), moves=moves)

    def _quantised_when_run(self, value: Any) -> _Quantised | None:
        """Return activations that are scaled by a number known at run time only; None if they are not quantised."""
        call, moves = self._before_moves(value)
        if operator_name(call) != "relax.multiply" or not _is_single(call.args[1], call.args[0]):
            return None
        inner = self._shifted(call.args[0])
        return None if inner is None else replace(inner, scale=call.args[1], moves=moves + inner.moves)

    def _shifted(self, value: Any) -> _Quantised | None:
        """Return activations as bytes and their zero point, if they are a difference of the two; None otherwise."""
        call, moves = self._before_moves(value)
        zero = None
        if operator_name(call) == "relax.subtract":
            if not _is_single(call.args[1], call.args[0]):
                return None
            call, zero = self._value(call.args[0]), call.args[1]
        if operator_name(call) != "relax.astype" or tensor_dtype(call.args[0]) not in _BYTES:
            return None
        return _Quantised(values=call.args[0], zero=zero, moves=moves)

    def _before_moves(self, value: Any) -> tuple[Any, tuple[Any, ...]]:
        """Return the call whose elements a value has, and the calls that moved them, the last one first."""
        moves = []
        call = self._value(value)
        while operator_name(call) in _MOVES:
            moves.append(call)
            call = self._value(call.args[0])
        return call, tuple(moves)

    def _integers(self, value: Any) -> NDArray[Any] | None:
        """Return constant integers, or the difference of two, as int32; None for anything else."""
        value = self._value(value)
        if isinstance(value, tvm.ir.GenericConst):
            array = value.value.numpy()
            return array.astype(np.int32) if array.dtype.kind in "iu" and array.itemsize <= 4 else None
        name = operator_name(value)
        if name == "relax.astype" and tensor_dtype(value) == "int32":
            return self._integers(value.args[0])
        if name == "relax.subtract" and tensor_dtype(value) == "int32":
            left, right = (self._integers(argument) for argument in value.args)
            return None if left is None or right is None else left - right
        return None

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


def _is_depthwise(call: Any) -> bool:
    """Return whether a call is a depthwise convolution of floats, channels last, with a result per channel."""
    if operator_name(call) != "relax.nn.conv2d" or tensor_dtype(call) != "float32":
        return False
    before, after, attributes = static_shape(call.args[0]), static_shape(call), call.attrs
    if before is None or after is None or 0 in after:
        return False
    layouts = (attributes.data_layout, attributes.kernel_layout, attributes.out_layout)
    return layouts == ("NHWC", "HWIO", "NHWC") and 1 < int(attributes.groups) == before[3] == after[3]


def _is_single(value: Any, other: Any) -> bool:
    """Return whether a value is one number that does not raise the rank of what it is combined with."""
    shape = static_shape(value)
    return shape is not None and prod(shape) == 1 and len(shape) <= len(other.ty.shape)


def _centres(weights: NDArray[Any]) -> NDArray[Any] | None:
    """Return the int32 number per result whose subtraction moves its weights into int8; None if they reach too far apart."""
    kernel = tuple(range(weights.ndim - 1))
    least, most = weights.min(axis=kernel), weights.max(axis=kernel)
    if (most - least).max() > _BYTE:
        return None
    return np.asarray(np.maximum(most - 127, 0) + np.minimum(least + 128, 0), np.int32)


def _geometry(call: Any) -> dict[str, Any]:
    """Return a convolution's strides, padding and dilation."""
    attributes = call.attrs
    return {
        "strides": [int(stride) for stride in attributes.strides],
        "padding": [int(width) for width in attributes.padding],
        "dilation": [int(dilation) for dilation in attributes.dilation],
    }


def _weights(value: Any, rank: int) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """Return weights as integers ``[..., products, results]`` and a scale per result; None if they are not quantised."""
    if not isinstance(value, tvm.ir.GenericConst) or tensor_dtype(value) != "float32":
        return None
    weight = value.value.numpy()
    if weight.ndim != rank or weight.size == 0 or prod(weight.shape[:-1]) > MOST_PRODUCTS:
        return None
    stored = as_int8(weight, weight.ndim - 1)
    return None if stored is None else (stored[0], stored[1])
