"""Converters of operators whose sizes are expressions of a network's symbolic dimensions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from tvm import relax, te, tirx
from tvm.sym import Analyzer

from tunefarm_tuning.tvm.frontend.node_context import (
    Converter,
    NodeContext,
    UnsupportedFormError,
    axis_of,
    const,
    constant_value,
    dtype_of,
    symbolic_shape,
    text,
)


def convert_reshape(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `Reshape` from or to a symbolic shape."""
    shape, wanted = symbolic_shape(inputs[0]), context.sizes.known(inputs[1])
    if shape is None or wanted is None:
        raise UnsupportedFormError("its shape cannot be known before the model runs")
    sizes = [
        shape[axis] if is_int(size, 0) and not attributes.get("allowzero", 0) else size
        for axis, size in enumerate(wanted.reshape(-1))
    ]
    if any(is_int(size, -1) for size in sizes):
        rest = context.sizes.conditions.multiple(shape, [size for size in sizes if not is_int(size, -1)])
        sizes = [rest if is_int(size, -1) else size for size in sizes]
    else:
        context.sizes.conditions.equal_products(shape, sizes)
    return relax.op.reshape(inputs[0], relax.ShapeExpr(_simple(sizes)))


def convert_expand(context: NodeContext, inputs: Sequence[Any], _attributes: dict[str, Any]) -> Any:
    """Convert `Expand` to a symbolic shape."""
    shape, wanted = symbolic_shape(inputs[0]), context.sizes.known(inputs[1])
    if shape is None or wanted is None:
        raise UnsupportedFormError("its shape cannot be known before the model runs")
    rank = max(len(shape), wanted.size)
    old = [1] * (rank - len(shape)) + list(shape)
    new = [1] * (rank - wanted.size) + list(wanted.reshape(-1))
    sizes = [before if is_int(after, 1) else after for before, after in zip(old, new, strict=True)]
    for before, after in zip(old, sizes, strict=True):
        if not is_int(before, 1):
            context.sizes.conditions.equal(before, after)
    return relax.op.broadcast_to(inputs[0], relax.ShapeExpr(_simple(sizes)))


def convert_tile(context: NodeContext, inputs: Sequence[Any], _attributes: dict[str, Any]) -> Any:
    """Convert `Tile` by symbolic repetitions: each dimension gets one of its repetitions before it, and both become one."""
    shape, repeats = symbolic_shape(inputs[0]), context.sizes.known(inputs[1])
    if shape is None or repeats is None or repeats.size != len(shape):
        raise UnsupportedFormError("its shape cannot be known before the model runs")
    counts = list(repeats.reshape(-1))
    if all(isinstance(count, int) for count in counts):
        return None
    tiled = inputs[0]
    if not all(is_int(size, 1) or is_int(count, 1) for size, count in zip(shape, counts, strict=True)):
        apart = [part for size in shape for part in (1, size)]
        tiled = context.emit(relax.op.reshape(tiled, relax.ShapeExpr(apart)))
        pairs = [part for pair in zip(counts, shape, strict=True) for part in pair]
        tiled = context.emit(relax.op.broadcast_to(tiled, relax.ShapeExpr(_simple(pairs))))
        products = [size * count for size, count in zip(shape, counts, strict=True)]
        return relax.op.reshape(tiled, relax.ShapeExpr(_simple(products)))
    sizes = [count if is_int(size, 1) else size for size, count in zip(shape, counts, strict=True)]
    return relax.op.broadcast_to(tiled, relax.ShapeExpr(_simple(sizes)))


def convert_constant_of_shape(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `ConstantOfShape` of a symbolic shape."""
    sizes = context.sizes.known(inputs[0])
    if sizes is None:
        return None
    value = attributes.get("value")
    number = onnx.numpy_helper.to_array(value) if value is not None else np.zeros(1, np.float32)
    scalar = const(number.reshape(()))
    return relax.op.broadcast_to(scalar, relax.ShapeExpr(_simple(list(sizes.reshape(-1)))))


def convert_slice(context: NodeContext, inputs: Sequence[Any], _attributes: dict[str, Any]) -> Any:
    """Convert `Slice` of a symbolic shape, or by symbolic bounds, forwards."""
    shape = symbolic_shape(inputs[0])
    optional = [*inputs[1:], None, None]
    starts, ends, axes, steps = (None if x is None else context.sizes.known(x) for x in optional[:4])
    if shape is None or starts is None or ends is None:
        return None
    positions = list(
        range(len(starts)) if axes is None else (axis_of(int(axis), len(shape)) for axis in axes)
    )
    strides = [1] * len(positions) if steps is None else list(steps)
    if any(not isinstance(stride, int) or stride < 1 for stride in strides):
        return None
    begins, stops = (
        [context.sizes.bound(bound, shape[axis]) for axis, bound in zip(positions, bounds, strict=True)]
        for bounds in (starts, ends)
    )
    return relax.op.strided_slice(inputs[0], positions, begins, stops, strides, assume_inbound=True)


def convert_range(context: NodeContext, inputs: Sequence[Any], _attributes: dict[str, Any]) -> Any:
    """Convert `Range` of symbolic bounds."""
    values = [context.sizes.known(x) for x in inputs]
    if any(value is None for value in values):
        return None
    start, limit, delta = (value.reshape(-1)[0] for value in values if value is not None)
    return relax.op.arange(start, limit, delta, dtype_of(inputs[0]))


def convert_resize(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `Resize` of symbolic images by a whole number, or to the size of another tensor."""
    shape = symbolic_shape(inputs[0])
    optional = [*inputs[1:], None, None, None]
    scales, sizes = (optional[0], None) if context.opset < 11 else optional[1:3]
    if shape is None or len(shape) != 4 or "axes" in attributes or attributes.get("antialias"):
        raise UnsupportedFormError("this form of a symbolic shape is not supported")
    after = _resized(context, shape, scales, sizes)
    mode = text(attributes, "mode", "nearest")
    asymmetric = "asymmetric" if context.opset < 11 else "half_pixel"
    coordinates = text(attributes, "coordinate_transformation_mode", asymmetric)
    if coordinates == "align_corners":  # TVM's kernel divides by the size less one
        for size in after:
            context.sizes.conditions.least(size, 2)
    nearest = "simple" if context.opset < 11 else "round_prefer_floor"
    if mode not in ("nearest", "linear"):
        raise UnsupportedFormError(f"mode {mode} of a symbolic shape is not supported")
    return relax.op.image.resize2d(
        inputs[0],
        size=relax.ShapeExpr(_simple(after)),
        roi=[0.0] * 4,
        layout="NCHW",
        method={"nearest": "nearest_neighbor"}.get(mode, mode),
        coordinate_transformation_mode=coordinates,
        rounding_method={"simple": "floor"}.get(
            text(attributes, "nearest_mode", nearest), text(attributes, "nearest_mode", nearest)
        ),
    )


def convert_pad(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `Pad` by widths that are computed of sizes, as of an image that is padded to a multiple of its windows."""
    shape = symbolic_shape(inputs[0])
    optional = [*inputs[1:], None, None, None]
    pads, axes = (None if x is None else context.sizes.known(x) for x in (optional[0], optional[2]))
    if shape is None or pads is None or all(isinstance(width, int) for width in pads.flat):
        return None
    value = constant_value(optional[1]) if optional[1] is not None else np.zeros(1)
    mode = text(attributes, "mode", "constant")
    if (
        mode not in ("constant", "edge", "reflect")
        or value is None
        or (axes is None and optional[2] is not None)
    ):
        raise UnsupportedFormError("this form is not supported by widths that are computed of sizes")
    rank = len(shape)
    padded = list(range(rank)) if axes is None else [axis_of(int(axis), rank) for axis in axes.flat]
    widths: list[list[Any]] = [[0] * rank, [0] * rank]
    for side, start in zip(widths, (0, len(padded)), strict=True):
        for number, axis in enumerate(padded):
            side[axis] = pads.flat[start + number]
            context.sizes.conditions.least(side[axis], 0)
            if mode == "reflect":
                context.sizes.conditions.least(shape[axis] - side[axis], 1)

    def pad(x: Any, before: Sequence[Any], after: Sequence[Any]) -> Any:
        def element(*at: Any) -> Any:
            inner = [index - width for index, width in zip(at, before, strict=True)]
            ends = list(zip(inner, x.shape, before, after, strict=True))
            if mode == "edge":
                return x(*(tirx.max(tirx.min(index, size - 1), 0) for index, size, *_ in ends))
            if mode == "reflect":
                return x(
                    *(tirx.min(tirx.abs(index), 2 * (size - 1) - tirx.abs(index)) for index, size, *_ in ends)
                )
            inside = [
                tirx.all(index >= 0, index < size)
                for index, size, *sides in ends
                if not all(is_int(width, 0) for width in sides)
            ]
            outside = tirx.const(value.reshape(-1)[0].item(), x.dtype)
            return tirx.if_then_else(tirx.all(*inside), x(*inner), outside)

        sizes = [size + low + high for size, low, high in zip(x.shape, before, after, strict=True)]
        return te.compute(sizes, element, name="pad", tag="injective,pad")

    return context.bb.emit_te(pad, inputs[0], *widths, primfunc_name_hint="pad")


def convert_upsample(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `Upsample` of symbolic images by a whole number; its scales are an attribute before opset 9."""
    scales = attributes.get("scales")
    scales = inputs[1] if scales is None else const(np.array(scales, np.float32))
    return convert_resize(context, [inputs[0], scales], attributes)


def _resized(context: NodeContext, shape: Sequence[Any], scales: Any, sizes: Any) -> list[Any]:
    """Return height and width after a resize."""
    factors = constant_value(scales) if scales is not None else None
    if factors is not None and factors.size == 4:
        if any(float(factor) != int(factor) for factor in factors) or tuple(factors[:2]) != (1, 1):
            raise UnsupportedFormError("scales of a symbolic shape must be whole numbers")
        return [shape[axis] * int(factors[axis]) for axis in (2, 3)]
    wanted = context.sizes.known(sizes) if sizes is not None else None
    if wanted is None or wanted.size != 4:
        raise UnsupportedFormError("its size cannot be known before the model runs")
    return list(wanted[2:])


def is_int(size: Any, value: int) -> bool:
    """Return whether a size is this number, not an expression."""
    return isinstance(size, int | np.integer | tirx.IntImm) and int(size) == value


def _simple(sizes: Sequence[Any]) -> list[Any]:
    analyzer = Analyzer()
    return [size if isinstance(size, int) else analyzer.simplify(size) for size in sizes]


SYMBOLIC_CONVERTERS: Mapping[str, Converter] = {
    "ConstantOfShape": convert_constant_of_shape,
    "Expand": convert_expand,
    "Pad": convert_pad,
    "Range": convert_range,
    "Reshape": convert_reshape,
    "Resize": convert_resize,
    "Slice": convert_slice,
    "Tile": convert_tile,
    "Upsample": convert_upsample,
}
"""The converters of nodes whose inputs have symbolic shapes, or are sizes computed from them."""
