"""Compute convolutions and matrix products of quantised activations and weights with int8 dot products.

The importer follows ONNX's definition: it scales integers to floats, computes, and rounds the results. If both factors of a product are
8-bit integers times a scale, the integers can be multiplied as they are, and their sum scaled: exactly, and several times as fast
on a CPU that has ``vpdpbusd`` or ``sdot`` (ADR 0031). So can those of products that are integers in the file, whose activations are quantised when
the model runs (``DynamicQuantizeLinear``, ``MatMulInteger``, ``ConvInteger``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from math import ceil, prod
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax

from tunefarm_tuning.target.dot_products import ByteProducts
from tunefarm_tuning.tvm.base.relax_graph import operator_name, rewrite_main, static_shape, tensor_dtype
from tunefarm_tuning.tvm.kernels.dot_products import BYTE_TAPS, Groups, packed_groups
from tunefarm_tuning.tvm.kernels.int8_kernels import (
    MOST_PRODUCTS,
    int8_conv,
    int8_matmul,
    integer_conv,
    integer_matmul,
    offsets,
    shifted_zero,
)
from tunefarm_tuning.tvm.kernels.narrow_depthwise import (
    MOST_TAPS,
    integer_depthwise_conv2d,
    narrow_depthwise_conv2d,
    packed_taps,
    taps_of,
)
from tunefarm_tuning.tvm.transform.convolutions.convolution import (
    CHANNELS_LAST,
    convolution_name,
    geometry,
    groups_of,
    instructions_of_groups,
    is_depthwise,
    runs_of_call,
)
from tunefarm_tuning.tvm.transform.quantised_tensors import Quantised, QuantisedTensors
from tunefarm_tuning.tvm.transform.weights.formats import as_steps

_BYTE = 255
_DEPTHWISE_COST = 3
"""Instructions that a vector of products takes in `narrow_depthwise_conv2d`, which widens the bytes and makes floats of them first."""
_MATMUL = "relax.matmul"
_FLOAT = "float32"
_ON_BYTES = {
    *("relax.nn.max_pool1d", "relax.nn.max_pool2d", "relax.nn.max_pool3d"),
    *("relax.concat", "relax.image.resize2d"),
}
"""Steps that read and write bytes where they can: their kernels would read four times as much as floats."""


def multiply_int8(mod: tvm.IRModule, instruction: ByteProducts) -> tvm.IRModule:
    """Return the module with quantised convolutions (channels last) and matrix products computed in integers.

    Depthwise convolutions for which the instruction has too many lanes compute in float32, but read bytes. So do largest values, joined
    tensors and nearest neighbours. The module's constants are folded.
    """
    rewritten = rewrite_main(mod, _Int8ProductRewriter(mod, instruction))
    result: tvm.IRModule = relax.transform.DeadCodeElimination(["main"])(rewritten)
    return result


@dataclass(frozen=True, slots=True, kw_only=True)
class _Weights:
    """The weights of a product as integers, ``[..., products of a group, results]``.

    Attributes:
        steps: int8.
        centres: What was subtracted from each result's to move them into int8; int32 ``[results]``.
        scales: Of each result; ones where the product is one of integers.
        groups: Of the results.
    """

    steps: NDArray[Any]
    centres: NDArray[Any]
    scales: NDArray[Any]
    groups: int

    @property
    def whole(self) -> NDArray[Any]:
        """The integers, int32."""
        return np.asarray(self.steps.astype(np.int32) + self.centres)

    def part(self, first: int, count: int) -> _Weights | None:
        """Return the weights for some of the channels; None if these cut a group in two."""
        if self.groups == 1:
            return replace(self, steps=np.ascontiguousarray(self.steps[..., first : first + count, :]))
        depth, results = self.steps.shape[-2:]
        if first % depth or count % depth:
            return None
        own = results // self.groups
        kept = slice(first // depth * own, (first + count) // depth * own)
        return _Weights(
            steps=np.ascontiguousarray(self.steps[..., kept]),
            centres=self.centres[kept],
            scales=self.scales[kept],
            groups=count // depth,
        )


@relax.expr_functor.mutator
class _Int8ProductRewriter(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, mod: tvm.IRModule, instruction: ByteProducts) -> None:
        super().__init__(mod)
        self._instruction = instruction
        self._tensors = QuantisedTensors(mod, self.visit_expr, self._emitted, instruction.activations)

    def visit_call_(self, call: Any) -> Any:
        if _is_supported(call):
            product = self._scaled(call) if tensor_dtype(call) == _FLOAT else self._integer(call)
            if product is None and is_depthwise(call):
                product = self._depthwise(call)
            if product is not None:
                return product
        data = self._tensors.rounded_anew(call)
        if operator_name(call) in _ON_BYTES:
            data = self._tensors.scaled(call)
        if data is not None:
            return self._floats(data)
        return super().visit_call_(call)

    def _floats(self, data: Quantised) -> Any:
        """Return quantised values as floats."""
        values = self._emitted(relax.op.astype(data.values(), _FLOAT))
        if data.zero:
            values = self._emitted(relax.op.subtract(values, relax.const(float(data.zero), _FLOAT)))
        return relax.op.multiply(values, relax.const(float(data.scale), _FLOAT))

    def _scaled(self, call: Any) -> Any | None:
        """Return a float32 product computed in integers; None if its factors are not quantised."""
        # Looking through weights is slow, so it comes last: networks without quantised activations skip it.
        data = self._tensors.scaled(call.args[0])
        when_run = self._tensors.scaled_when_run(call.args[0]) if data is None else None
        joined = self._tensors.joined(call.args[0]) if data is None else []
        quantised = data is not None or when_run is not None or joined
        weights = _scaled_weights(call) if quantised else None
        if weights is None or not _pays(call, weights, self._instruction):
            return None
        if data is not None and _takes_taps(call, weights, self._instruction):
            return None  # `_depthwise` takes fewer instructions
        if when_run is not None:
            product = relax.op.astype(self._emitted(self._product(call, when_run, weights)), _FLOAT)
            scale = relax.op.multiply(
                self._emitted(relax.op.reshape(self.visit_expr(when_run.scale), [1])),
                relax.const(weights.scales, _FLOAT),
            )
            return relax.op.multiply(self._emitted(product), self._emitted(scale))
        if data is not None:
            return self._of_known_scale(call, data, weights)
        return self._of_joined(call, joined, weights)

    def _of_joined(self, call: Any, joined: Sequence[tuple[int, Quantised]], weights: _Weights) -> Any | None:
        """Return the product of tensors of several scales: the sum of those of each, or of groups, these side by side."""
        firsts = np.cumsum([0, *(width for width, _ in joined)])
        shares = [weights.part(int(first), width) for first, (width, _) in zip(firsts, joined, strict=False)]
        known = [share for share in shares if share is not None]
        if len(known) < len(shares):
            return None
        products = [
            self._emitted(self._of_known_scale(call, part, share))
            for (_, part), share in zip(joined, known, strict=True)
        ]
        if weights.groups > 1:
            return relax.op.concat(products, axis=-1)
        return reduce(lambda total, product: self._emitted(relax.op.add(total, product)), products)

    def _of_known_scale(self, call: Any, data: Quantised, weights: _Weights) -> Any:
        zero = shifted_zero(data.zero, data.dtype, self._instruction.activations)
        scale = (np.float32(data.scale) * weights.scales).astype(np.float32)
        constants = (
            relax.const(offsets(weights.whole, zero), "int32"),
            relax.const(scale, _FLOAT),
        )
        kernel = int8_matmul if operator_name(call) == _MATMUL else partial(int8_conv, **geometry(call))
        return self._emit(call, partial(kernel, zero=zero), data, weights, *constants)

    def _depthwise(self, call: Any) -> Any | None:
        """Return a depthwise convolution that reads bytes; None if its activations are not quantised."""
        data = self._tensors.scaled(call.args[0])
        if data is None or not isinstance(call.args[1], tvm.ir.GenericConst):
            return None
        weights, instruction = _scaled_weights(call), self._instruction.by_row
        if weights is not None and _has_taps(call, weights, instruction):
            zero = shifted_zero(data.zero, data.dtype, instruction.activations)
            kernel = partial(
                integer_depthwise_conv2d, rows=weights.steps.shape[0], instruction=instruction, zero=zero
            )
            constants = [
                relax.const(packed_taps(weights.steps, instruction.lanes), "int8"),
                relax.const(offsets(weights.whole, zero), "int32"),
                relax.const((np.float32(data.scale) * weights.scales).astype(np.float32), _FLOAT),
            ]
        else:
            kernel = partial(narrow_depthwise_conv2d, zero=data.zero)
            constants = [relax.const(np.float32(data.scale) * call.args[1].value.numpy(), _FLOAT)]
        return self.builder_.call_te(
            partial(kernel, **geometry(call)),
            data.values(),
            *constants,
            primfunc_name_hint="depthwise_conv2d_of_bytes",
        )

    def _integer(self, call: Any) -> Any | None:
        """Return a product of integers computed from bytes; None if its factors do not fit into bytes."""
        data = self._tensors.shifted(call.args[0])
        integers = None if data is None else self._tensors.integers(call.args[1])
        if data is None or integers is None:
            return None
        weights = _centred(call, integers, np.ones(integers.shape[-1:], np.float32))
        return None if weights is None else self._product(call, data, weights)

    def _product(self, call: Any, data: Quantised, weights: _Weights) -> Any:
        """Return the product of bytes of activations, whose zero point may be known at run time only, and weights, as int32."""
        zero: Any = relax.const(np.zeros(1, np.int32), "int32")
        if data.zero is not None:
            zero = self._emitted(relax.op.reshape(self.visit_expr(data.zero), [1]))
            zero = zero if tensor_dtype(zero) == "int32" else self._emitted(relax.op.astype(zero, "int32"))
        if (shift := shifted_zero(0, data.dtype, self._instruction.activations)) != 0:
            zero = self._emitted(relax.op.add(zero, relax.const(np.full(1, shift, np.int32), "int32")))
        whole = weights.whole
        sums = relax.const(whole.sum(axis=tuple(range(whole.ndim - 1)), dtype=np.int32), "int32")
        kernel = integer_matmul if operator_name(call) == _MATMUL else partial(integer_conv, **geometry(call))
        return self._emit(call, kernel, data, weights, zero, sums)

    def _emit(
        self, call: Any, kernel: Callable[..., Any], data: Quantised, weights: _Weights, *more: Any
    ) -> Any:
        steps, constants, own = weights.steps, more, weights.steps.shape[-1] // weights.groups
        if weights.centres.any():
            steps = _with_ones(steps, weights.groups)
            constants = (*more, relax.const(weights.centres, "int32"))
        instruction, merged = _way(call, steps, weights.groups, self._instruction)
        values = data.values()
        # The rows that one instruction takes would lie in one run.
        channels = weights.steps.shape[-2]  # those of a part, where tensors of several scales are joined
        runs = runs_of_call(call, instruction.products, channels) if instruction.rows == 1 else None
        if runs is not None:
            batch, *sizes, width, _ = (int(size) for size in call.args[0].ty.shape)
            values = self._emitted(relax.op.reshape(values, [batch, *sizes, width * channels]))
            steps = steps.reshape(*steps.shape[:-3], 1, -1, steps.shape[-1])
            kernel = partial(kernel, runs=runs)
        groups = Groups(count=weights.groups, depth=steps.shape[-2], results=own, merged=merged)
        return self.builder_.call_te(
            partial(kernel, groups=groups, instruction=instruction),
            values,
            relax.const(packed_groups(steps, groups, instruction.lanes, instruction.products), "int8"),
            *constants,
            primfunc_name_hint=f"byte_{operator_name(call).rpartition('.')[2]}",
        )

    def _emitted(self, value: Any) -> Any:
        return self.builder_.emit(self.builder_.normalize(value))


def _is_supported(call: Any) -> bool:
    """Return whether a call is a product of the supported kinds, if its factors are quantised."""
    if tensor_dtype(call) not in (_FLOAT, "int32"):
        return False
    shape = static_shape(call)
    if shape is None or 0 in shape:
        return False
    if operator_name(call) == _MATMUL:
        return len(call.args[0].ty.shape) > 1
    return convolution_name(call, CHANNELS_LAST) is not None


def _way(call: Any, steps: NDArray[Any], groups: int, best: ByteProducts) -> tuple[ByteProducts, int]:
    """Return the instruction for a product, and how many groups of its channels to compute as one: the fewest instructions."""
    rows = static_shape(call)[-2]  # type: ignore[index]
    instructions = dict.fromkeys((best, best.by_row) if rows > 1 else (best.by_row,))
    if groups == 1:
        return next(iter(instructions)), 1
    depth, results = steps.shape[-2], steps.shape[-1] // groups

    def cost(way: tuple[ByteProducts, int]) -> tuple[float, int, int]:
        instruction, merged = way
        ragged = (
            merged * results % instruction.lanes,
            merged * depth % instruction.products,
            groups % merged,
        )
        return (_count(groups, depth, results, instruction, merged), sum(map(bool, ragged)), merged)

    most = max(instruction.lanes * instruction.products for instruction in instructions)
    ways = [
        (instruction, merged) for instruction in instructions for merged in range(1, min(groups, most) + 1)
    ]
    return min(ways, key=cost)


def _count(groups: int, depth: int, results: int, instruction: ByteProducts, merged: int) -> float:
    return instructions_of_groups(
        groups, depth, results, merged,
        lanes=instruction.lanes, products=instruction.products, rows=instruction.rows,
    )  # fmt: skip


def _pays(call: Any, weights: _Weights, best: ByteProducts) -> bool:
    """Return whether a product takes no more instructions than in floats: the vectors of small groups are mostly empty."""
    groups = weights.groups
    if groups == 1 or tensor_dtype(call) != _FLOAT:
        return True
    steps = _with_ones(weights.steps, groups) if weights.centres.any() else weights.steps
    instruction, merged = _way(call, steps, groups, best)
    depth, results = weights.steps.shape[-2:]
    floats = depth * ceil(results / best.by_row.lanes) * (_DEPTHWISE_COST if is_depthwise(call) else 1)
    return bool(_count(groups, depth, steps.shape[-1] // groups, instruction, merged) <= floats)


def _has_taps(call: Any, weights: _Weights, instruction: ByteProducts) -> bool:
    """Return whether `integer_depthwise_conv2d` can compute a depthwise convolution."""
    return (
        instruction.products == BYTE_TAPS.products
        and not weights.centres.any()
        and weights.steps.ndim == 4
        and weights.steps.shape[-1] % instruction.lanes == 0
        and int(call.attrs.dilation[0]) == 1
        and taps_of(*weights.steps.shape[:2]) <= MOST_TAPS
    )


def _takes_taps(call: Any, weights: _Weights, best: ByteProducts) -> bool:
    """Return whether a depthwise convolution takes fewer instructions with the taps of four rows in each than with groups as one."""
    if not is_depthwise(call) or not _has_taps(call, weights, best.by_row):
        return False
    rows, columns, depth, channels = weights.steps.shape
    instruction, merged = _way(call, weights.steps, channels, best)
    as_groups = rows * columns * _count(channels, depth, 1, instruction, merged)
    return bool(channels // best.by_row.lanes * taps_of(rows, columns) < as_groups)


def _with_ones(steps: NDArray[Any], groups: int) -> NDArray[Any]:
    """Return weights with one more result behind those of each group: the sum of what they multiply."""
    ones = np.ones((*steps.shape[:-1], 1), np.int8)
    parts = [np.concatenate([part, ones], axis=-1) for part in np.split(steps, groups, axis=-1)]
    return np.concatenate(parts, axis=-1)


def _scaled_weights(call: Any) -> _Weights | None:
    """Return a product's weights as integers with a scale per result; None if they are not quantised."""
    value = call.args[1]
    if not isinstance(value, tvm.ir.GenericConst) or tensor_dtype(value) != _FLOAT:
        return None
    weight = value.value.numpy()
    if weight.size == 0 or prod(weight.shape[:-1]) > MOST_PRODUCTS:
        return None
    stored = as_steps(weight, weight.ndim - 1)
    return None if stored is None else _centred(call, *stored)


def _centred(call: Any, weights: NDArray[Any], scales: NDArray[Any]) -> _Weights | None:
    """Return integers as weights of a product; None if those of a result reach too far apart, or their sums could overflow."""
    rank = 2 if operator_name(call) == _MATMUL else len(call.ty.shape)
    if weights.ndim != rank or weights.size == 0:
        return None
    kernel = tuple(range(weights.ndim - 1))
    least, most = weights.min(axis=kernel), weights.max(axis=kernel)
    centres = np.asarray(np.maximum(most - 127, 0) + np.minimum(least + 128, 0), np.int32)
    # A weight with its centre is 255 at most, twice as much as one of int8.
    limit = MOST_PRODUCTS // (2 if centres.any() else 1)
    if (most - least).max() > _BYTE or prod(weights.shape[:-1]) > limit:
        return None
    steps = (weights - centres).astype(np.int8)
    return _Weights(steps=steps, centres=centres, scales=scales, groups=groups_of(call))
