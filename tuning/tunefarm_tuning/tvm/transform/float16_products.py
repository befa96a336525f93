"""Compute convolutions and matrix products by constant weights in float16, on Arm CPUs that can (ADR 0085).

Activations are rounded as for bfloat16 (`bfloat16_products`). Sums are float16 for some products (`_MOST_PRODUCTS`), and what they come to is added
up in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np
import tvm
from tvm import relax

from tunefarm_tuning.tvm.base.relax_graph import operator_name, rewrite_main, static_shape, tensor_dtype
from tunefarm_tuning.tvm.base.tir import parts
from tunefarm_tuning.tvm.transform.bfloat16_products import NarrowProductRewriter
from tunefarm_tuning.tvm.transform.weights.formats import store
from tunefarm_tuning.workload.precision import Precision

_NARROW, _WIDE = "float16", "float32"
_MIN_PRODUCTS = 8
"""Fewer, as of a product of a few columns, take no longer than the rounding of its activations; of all groups together."""
_MIN_RESULTS = 8
"""Fewer results leave part of a vector empty."""
_MOST_PRODUCTS = 1024
"""Products that are added up in float16: their sum is off by half a percent of its size. Longer sums are cut."""
_PIECE = 8
"""Channels of a piece of a sum are a multiple of this."""


def multiply_float16(mod: tvm.IRModule) -> tvm.IRModule:
    """Return the module with 2-D convolutions, channels last, and products by a matrix computed in float16; its constants are folded."""
    rewritten = rewrite_main(mod, _Float16ProductRewriter(mod, 0))
    result: tvm.IRModule = relax.transform.DeadCodeElimination(["main"])(rewritten)
    return result


@relax.expr_functor.mutator
class _Float16ProductRewriter(NarrowProductRewriter):
    narrow = _NARROW

    def visit_call_(self, call: Any) -> Any:
        product = self._kernel_of(call)
        if product is None:
            return super().visit_call_(call)
        return product(self.builder_, self._moved(call.args[0]))

    def _kernel_of(self, call: Any) -> Callable[..., Any] | None:
        """Return what makes a call's product in float16; None if there is nothing, or float32 is as fast."""
        rank = {"relax.matmul": 2, "relax.nn.conv2d": 4}.get(operator_name(call))
        if rank is None or tensor_dtype(call) != _WIDE:
            return None
        data, weight = call.args
        shapes = (static_shape(call), static_shape(data), static_shape(weight))
        if any(shape is None or 0 in shape for shape in shapes):
            return None
        if not isinstance(weight, tvm.ir.GenericConst) or tensor_dtype(data) != _WIDE:
            return None
        *kernel, depth, results = (int(size) for size in weight.ty.shape)
        groups = 1 if rank == 2 else int(call.attrs.groups)
        if len(kernel) + 2 != rank or results < _MIN_RESULTS or prod(kernel) * depth * groups < _MIN_PRODUCTS:
            return None
        is_laid_out = _is_channels_last(call) if rank == 4 else len(data.ty.shape) > 1
        pieces = 1 if groups > 1 else _pieces(weight.ty.shape)
        if not is_laid_out or not pieces or self._narrow_weights(weight) is None:
            return None
        return partial(_product, call, self._narrow_weights(weight), pieces)

    def _narrow_weights(self, weight: Any) -> Any:
        """Return weights as float16; None if it cannot represent them."""
        address = (weight.value.__chandle__(), False)
        if address not in self._weights:
            value = weight.value.numpy()
            stored = store(value, Precision.FLOAT16_WEIGHTS, {value.ndim - 1})
            self._weights[address] = (weight, stored and relax.const(stored.arrays[0], _NARROW))
        return self._weights[address][1]

    def _look_at_depthwise(self, bindings: Sequence[Any], outputs: set[Any]) -> None:
        """Depthwise convolutions are products as others."""


def _product(call: Any, weights: Any, pieces: int, builder: Any, data: Any) -> Any:
    """Return a product as float32, of so many sums in float16."""
    if pieces == 1:
        return relax.op.astype(builder.emit(_in_float16(call, data, weights)), _WIDE)
    total: Any = None
    columns = builder.emit(relax.op.split(data, pieces, axis=-1))
    for number, piece in enumerate(np.split(weights.value.numpy(), pieces, axis=-2)):
        column = builder.emit(relax.TupleGetItem(columns, number))
        product = _in_float16(call, column, relax.const(np.ascontiguousarray(piece), _NARROW))
        term = relax.op.astype(builder.emit(product), _WIDE)
        total = term if total is None else relax.op.add(builder.emit(total), builder.emit(term))
    return total


def _in_float16(call: Any, data: Any, weights: Any) -> Any:
    """Return a call of the same operator that adds up in float16."""
    if operator_name(call) == "relax.matmul":
        return relax.op.matmul(data, weights, out_dtype=_NARROW)
    attributes = {name: value for name, value in parts(call.attrs) if name != "out_dtype"}
    return relax.op.nn.conv2d(data, weights, **attributes, out_dtype=_NARROW)


def _pieces(shape: Any) -> int:
    """Return into how many pieces a sum is cut, each over as many channels; 0 if it cannot be."""
    *kernel, depth, _ = (int(size) for size in shape)
    return next(
        (
            pieces
            for pieces in range(1, depth + 1)
            if depth % pieces == 0
            and (pieces == 1 or depth // pieces % _PIECE == 0)
            and prod(kernel) * depth // pieces <= _MOST_PRODUCTS
        ),
        0,
    )


def _is_channels_last(call: Any) -> bool:
    attributes = call.attrs
    layouts = (attributes.data_layout, attributes.kernel_layout, attributes.out_layout)
    return layouts == ("NHWC", "HWIO", "NHWC")
