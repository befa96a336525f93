"""Compute convolutions and matrix products by constant weights in float16, on Arm CPUs that can (ADR 0085).

Activations are rounded as `narrow_products` says; those of networks in float16 are as they come. Sums are float16 for some products
(`_MOST_PRODUCTS`), and what they come to is added up in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

import numpy as np
import tvm
from tvm import relax

from tunefarm_tuning.tvm.base.relax_graph import operator_name, rewrite_main, tensor_dtype
from tunefarm_tuning.tvm.base.tir import parts
from tunefarm_tuning.tvm.transform.convolutions.convolution import CHANNELS_LAST, convolution_name, groups_of
from tunefarm_tuning.tvm.transform.narrow_products import NarrowProductRewriter, weights_rank
from tunefarm_tuning.tvm.transform.weights.formats import store
from tunefarm_tuning.workload.precision import Precision

_NARROW, _WIDE = "float16", "float32"
_MIN_PRODUCTS = 8
"""Fewest products of a sum, of all groups together: a shorter sum takes no longer than rounding its activations would."""
_MIN_RESULTS = 8
"""Fewer results leave part of a vector empty."""
_MOST_PRODUCTS = 1024
"""Most products that are added up in float16: their sum is off by half a percent of its size. Longer sums are cut."""
_PIECE = 8
"""Channels of a piece of a sum are a multiple of this."""


def multiply_float16(mod: tvm.IRModule) -> tvm.IRModule:
    """Return the module with 2-D convolutions, channels last, and products by a matrix computed in float16; its constants are folded."""
    rewritten = rewrite_main(mod, _Float16ProductRewriter(mod))
    result: tvm.IRModule = relax.transform.DeadCodeElimination(["main"])(rewritten)
    return result


@relax.expr_functor.mutator
class _Float16ProductRewriter(NarrowProductRewriter):
    dtype = _NARROW

    def __init__(self, mod: tvm.IRModule) -> None:
        # By the address of the constant, which is kept alive here. None: float16 cannot represent it.
        self._weights: dict[int, tuple[Any, Any]] = {}
        super().__init__(mod)

    def product_of(self, call: Any) -> Callable[[Any, Any], Any] | None:
        rank = weights_rank(call)
        if rank is None or tensor_dtype(call.args[0]) not in (_WIDE, _NARROW):
            return None
        data, weight = call.args
        *kernel, depth, results = (int(size) for size in weight.ty.shape)
        groups = groups_of(call)
        if results < _MIN_RESULTS or prod(kernel) * depth * groups < _MIN_PRODUCTS:
            return None
        if rank == 4:
            is_laid_out = convolution_name(call, CHANNELS_LAST) is not None
        else:
            is_laid_out = len(data.ty.shape) > 1
        pieces = _pieces(weight.ty.shape, groups)
        if not is_laid_out or not pieces or self._narrow_weights(weight) is None:
            return None
        return partial(_product, call, self._narrow_weights(weight), pieces)

    def _narrow_weights(self, weight: Any) -> Any:
        """Return weights as float16; None if it cannot represent them."""
        if tensor_dtype(weight) == _NARROW:
            return weight
        address = weight.value.__chandle__()
        if address not in self._weights:
            value = weight.value.numpy()
            stored = store(value, Precision.FLOAT16_WEIGHTS, {value.ndim - 1})
            self._weights[address] = (weight, stored and relax.const(stored.arrays[0], _NARROW))
        return self._weights[address][1]


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


def _pieces(shape: Any, groups: int) -> int:
    """Return into how many pieces a sum is cut, each over as many channels; 0 if it cannot be, as those of groups."""
    *kernel, depth, _ = (int(size) for size in shape)
    if groups > 1:
        return int(prod(kernel) * depth <= _MOST_PRODUCTS)
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
