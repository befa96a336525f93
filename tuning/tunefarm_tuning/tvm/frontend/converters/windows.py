"""Converters of operators on windows of an image: columns and back, deformable convolutions, the places of maxima."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax, te, tirx

from tunefarm_tuning.tvm.frontend.node_context import (
    NodeContext,
    UnsupportedFormError,
    dtype_of,
    needed_constant,
    needed_shape,
)


def convert_col2im(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `Col2Im`: every element of the image is the sum of the columns' elements that came from it."""
    columns = inputs[0]
    image = [int(size) for size in needed_constant(inputs[1], "image_shape")]
    block = [int(size) for size in needed_constant(inputs[2], "block_shape")]
    batch, depth, _ = needed_shape(columns)
    strides, dilations, before, after = _window(attributes, len(image))
    counts = [
        (size + first + last - dilation * (width - 1) - 1) // stride + 1
        for size, first, last, dilation, width, stride in zip(
            image, before, after, dilations, block, strides, strict=True
        )
    ]
    points, dtype = math.prod(block), dtype_of(columns)

    def gather(x: Any) -> Any:
        taps = [te.reduce_axis((0, width), f"k{axis}") for axis, width in enumerate(block)]

        def element(n: Any, c: Any, *indices: Any) -> Any:
            inside, tap, window = [], tirx.const(0, "int64"), tirx.const(0, "int64")
            for axis, at in enumerate(indices):
                offset = at + before[axis] - taps[axis].var * dilations[axis]
                number = tirx.floordiv(offset, strides[axis])
                inside += [tirx.floormod(offset, strides[axis]) == 0, number >= 0, number < counts[axis]]
                tap = tap * block[axis] + taps[axis].var
                window = window * counts[axis] + number
            value = tirx.if_then_else(tirx.all(*inside), x[n, c * points + tap, window], tirx.const(0, dtype))
            return te.sum(value, axis=taps)

        return te.compute((batch, depth // points, *image), element, name="col2im")

    return context.bb.emit_te(gather, columns, primfunc_name_hint="col2im")


def convert_deform_conv(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `DeformConv`: the columns that its offsets select, and a product with the weights."""
    x, w, offset, b, mask = [*inputs, None, None][:5]
    shape, weights = needed_shape(x), needed_shape(w)
    if len(shape) != 4:
        raise UnsupportedFormError("it is supported for images of two dimensions only")
    groups, regions = attributes.get("group", 1), attributes.get("offset_group", 1)
    strides, dilations, before, _ = _window(attributes, 2)
    batch, channels = shape[:2]
    out, (height, width) = needed_shape(offset)[2:], weights[2:]
    taps, dtype = height * width, dtype_of(x)

    def columns(image: Any, moves: Any, *weighing: Any) -> Any:
        def element(n: Any, c: Any, tap: Any, y: Any, z: Any) -> Any:
            region = tirx.floordiv(c, channels // regions) * taps + tap
            corner = tirx.floordiv(tap, width), tirx.floormod(tap, width)
            position = [
                _bounded(
                    (at * stride - first + tirx.Cast("int64", k) * dilation).astype(dtype)
                    + moves[n, region * 2 + axis, y, z],
                    shape[2 + axis],
                )
                for axis, (at, stride, first, k, dilation) in enumerate(
                    zip((y, z), strides, before, corner, dilations, strict=True)
                )
            ]
            value = _between_pixels(image, n, c, position)
            return value * weighing[0][n, region, y, z] if weighing else value

        return te.compute((batch, channels, taps, *out), element, name="columns", tag="injective")

    arguments = [x, offset] if mask is None else [x, offset, mask]
    selected = context.bb.emit_te(columns, *arguments, primfunc_name_hint="deform_conv")
    depth = channels // groups * taps
    selected = context.emit(relax.op.reshape(selected, (batch, groups, depth, math.prod(out))))
    matrices = context.emit(relax.op.reshape(w, (1, groups, weights[0] // groups, depth)))
    y = context.emit(relax.op.matmul(matrices, selected))
    y = context.emit(relax.op.reshape(y, (batch, weights[0], *out)))
    return y if b is None else relax.op.add(y, context.emit(relax.op.reshape(b, (1, weights[0], 1, 1))))


def convert_reverse_sequence(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `ReverseSequence`: the first elements of each sequence, as many as its length, in reverse order."""
    x, lengths = inputs
    batch_axis, time_axis = attributes.get("batch_axis", 1), attributes.get("time_axis", 0)

    def reverse(a: Any, counts: Any) -> Any:
        def element(*i: Any) -> Any:
            count, at = counts[i[batch_axis]].astype("int64"), i[time_axis]
            source = tirx.Select(at < count, count - 1 - at, at)
            source = tirx.max(tirx.min(source, a.shape[time_axis] - 1), 0)
            return a[(*i[:time_axis], source, *i[time_axis + 1 :])]

        return te.compute(a.shape, element, name="reverse", tag="injective")

    return context.bb.emit_te(reverse, x, lengths, primfunc_name_hint="reverse_sequence")


def max_pool_indices(context: NodeContext, x: Any, out: Sequence[int], attributes: dict[str, Any]) -> Any:
    """Return the second output of `MaxPool`: where in the whole tensor each maximum is; the first, if there are several.

    Args:
        context: The node's.
        x: What is pooled.
        out: The shape of the maxima.
        attributes: The node's, with explicit `pads`.
    """
    shape, dtype = needed_shape(x), dtype_of(x)
    sizes, kernel = shape[2:], attributes["kernel_shape"]
    strides, dilations, before, _ = _window(attributes, len(sizes))
    weights = [math.prod(sizes[axis + 1 :]) for axis in range(len(sizes))]
    if attributes.get("storage_order", 0) and len(sizes) > 1:
        weights = [1, sizes[0]] if len(sizes) == 2 else [sizes[0] * sizes[1], 1, sizes[1]]

    def better(left: Any, right: Any) -> Any:
        first = tirx.any(left[1] > right[1], tirx.all(left[1] == right[1], left[0] < right[0]))
        return tirx.Select(first, left[0], right[0]), tirx.Select(first, left[1], right[1])

    reducer = te.comm_reducer(
        better,
        lambda index, value: (tirx.const(np.iinfo(np.int64).max, index), tvm.tirx.min_value(value)),
        name="first_maximum",
    )

    def kernel_of(a: Any) -> Any:
        taps = [te.reduce_axis((0, width), f"k{axis}") for axis, width in enumerate(kernel)]

        def element(n: Any, c: Any, *indices: Any) -> Any:
            at = [
                indices[axis] * strides[axis] - before[axis] + taps[axis].var * dilations[axis]
                for axis in range(len(sizes))
            ]
            inside = tirx.all(
                *[bound for p, size in zip(at, sizes, strict=True) for bound in (p >= 0, p < size)]
            )
            flat = (n * shape[1] + c) * math.prod(sizes)
            for p, weight in zip(at, weights, strict=True):
                flat = flat + p * weight
            lowest = tvm.tirx.min_value(dtype)
            last = tirx.const(np.iinfo(np.int64).max, "int64")
            pair = (
                tirx.if_then_else(inside, tirx.Cast("int64", flat), last),
                tirx.if_then_else(inside, a[(n, c, *at)], lowest),
            )
            return reducer(pair, axis=taps)

        return te.compute(tuple(out), element, name="first_maximum")[0]

    return context.bb.emit_te(kernel_of, x, primfunc_name_hint="max_pool_indices")


def _window(attributes: dict[str, Any], rank: int) -> tuple[Any, Any, Any, Any]:
    """Return strides, dilations, and the paddings before and after, of each axis."""
    ones, zeros = (1,) * rank, (0,) * (2 * rank)
    pads = attributes.get("pads", zeros)
    return attributes.get("strides", ones), attributes.get("dilations", ones), pads[:rank], pads[rank:]


def _bounded(position: Any, size: int) -> Any:
    """Return a position, at most one outside; a NaN is outside, too."""
    dtype = str(position.expr_ty().dtype)
    return tirx.min(tirx.max(position, tirx.const(-1, dtype)), tirx.const(size, dtype))


def _between_pixels(image: Any, n: Any, c: Any, position: Sequence[Any]) -> Any:
    """Return the value between the four pixels around a position; those outside are zeros."""
    dtype = str(image.dtype)
    total: Any = tirx.const(0, dtype)
    lowest = [tirx.floor(p) for p in position]
    for corner in ((0, 0), (0, 1), (1, 0), (1, 1)):
        weight: Any = tirx.const(1, dtype)
        inside, at = [], []
        for axis, is_next in enumerate(corner):
            share = position[axis] - lowest[axis]
            weight = weight * (share if is_next else tirx.const(1, dtype) - share)
            index = tirx.Cast("int64", lowest[axis]) + is_next
            inside += [index >= 0, index < image.shape[2 + axis]]
            at.append(index)
        total = total + weight * tirx.if_then_else(
            tirx.all(*inside), image[n, c, at[0], at[1]], tirx.const(0, dtype)
        )
    return total
