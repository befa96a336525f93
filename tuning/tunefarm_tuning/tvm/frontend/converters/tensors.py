"""Converters of operators that make, read or move tensors without computing with their elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import tvm
from tvm import relax

from tunefarm_tuning.tvm.frontend.node_context import (
    NodeContext,
    axis_of,
    const,
    constant_value,
    dtype_of,
    fixed_shape,
    full_rank,
    int64s,
    needed_constant,
    needed_shape,
    rank_of,
    text,
)

_PAD_MODES = {"constant": "constant", "edge": "replicate", "reflect": "reflect"}


_SINCE_AXES_ARE_INPUTS = 13


def convert_constant(_context: NodeContext, _inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `Constant` of plain numbers; TVM's converter accepts only tensors."""
    for name, dtype in (("float", np.float32), ("int", np.int64)):
        for key in (f"value_{name}", f"value_{name}s"):
            if key in attributes:
                return const(np.array(attributes[key], dtype=dtype))
    return None


def convert_compress(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `Compress` by a constant condition to `Gather`; TVM's converter makes a tensor whose size depends on values.

    ONNX Runtime ignores what the condition says beyond the axis.
    """
    kept, shape = constant_value(inputs[1]), fixed_shape(inputs[0])
    if kept is None or shape is None:
        return None
    data, axis = inputs[0], attributes.get("axis")
    if axis is None:
        data, axis, shape = context.node("Reshape", data, int64s([-1])), 0, (math.prod(shape),)
    indices = np.flatnonzero(kept[: shape[axis_of(axis, len(shape))]])
    return context.node("Gather", data, int64s(indices.tolist()), axis=axis) if indices.size else None


def convert_concat(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `Concat` without tensors that have no elements: TVM cannot store them as constants."""
    shapes = [fixed_shape(x) for x in inputs]
    filled = [x for x, shape in zip(inputs, shapes, strict=True) if shape is None or 0 not in shape]
    if len(filled) == len(inputs) or not filled:
        return None
    return filled[0] if len(filled) == 1 else context.node("Concat", *filled, **attributes)


def convert_eye_like(_context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `EyeLike` to a constant; TVM's converter refuses another dtype than the input's."""
    rows, columns = needed_shape(inputs[0])
    element = attributes.get("dtype")
    dtype = onnx.helper.tensor_dtype_to_np_dtype(element) if element else np.dtype(dtype_of(inputs[0]))
    return const(np.eye(rows, columns, attributes.get("k", 0)).astype(dtype))


def convert_gather(_context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `Gather` with constant indices; TVM's converter asks of them, in the graph, which are negative.

    An unrolled loop gathers in each step, and each question to be folded would be a kernel to compile.
    """
    data, indices = inputs[:2]
    values, shape = constant_value(indices), fixed_shape(data)
    if values is None or not shape or isinstance(data, tvm.ir.GenericConst):
        return None
    axis = axis_of(attributes.get("axis", 0), len(shape))
    if ((values < -shape[axis]) | (values >= shape[axis])).any():
        return None
    return relax.op.take(data, const(np.where(values < 0, values + shape[axis], values)), axis)


def convert_one_hot(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `OneHot`, on which TVM's converter always fails."""
    depth = int(needed_constant(inputs[1], "depth").reshape(-1)[0])
    off, on = needed_constant(inputs[2], "values")
    dtype = str(needed_constant(inputs[2], "values").dtype)
    rank = rank_of(inputs[0]) + 1
    axis = axis_of(attributes.get("axis", -1), rank)
    indices = context.emit(relax.op.astype(inputs[0], "int64"))
    indices = context.emit(relax.op.expand_dims(indices, axis))
    wrapped = context.emit(relax.op.add(indices, full_rank(depth, rank, "int64")))
    negative = context.emit(relax.op.less(indices, full_rank(0, rank, "int64")))
    indices = context.emit(relax.op.where(negative, wrapped, indices))
    classes = const(np.arange(depth).reshape([-1 if i == axis else 1 for i in range(rank)]))
    hot = context.emit(relax.op.equal(indices, classes))
    return relax.op.where(hot, full_rank(on, rank, dtype), full_rank(off, rank, dtype))


def convert_pad(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `Pad` of floating-point tensors by constant widths to Relax's operator.

    TVM's converter makes a kernel of it at once, and no pass can move a transpose past that.
    """
    shape = fixed_shape(inputs[0])
    mode = _PAD_MODES.get(text(attributes, "mode", "constant"))
    if shape is None or mode is None or dtype_of(inputs[0]) not in ("float32", "float64"):
        return None
    padding = _pad_widths(context, len(shape), inputs, attributes)
    if padding is None:
        return None
    widths, value = padding
    if any(width < 0 for width in widths):
        return None
    if mode == "reflect" and any(width >= shape[side // 2] for side, width in enumerate(widths) if width):
        return None
    if mode == "replicate" and 0 in shape:
        return None
    return relax.op.nn.pad(inputs[0], widths, mode, value)


def convert_shape(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `Shape` of a fixed shape to a constant, so that the arithmetic on it can be folded."""
    shape = fixed_shape(inputs[0])
    if shape is None:
        return None
    if context.opset >= 15:
        shape = shape[attributes.get("start", 0) : attributes.get("end", len(shape))]
    return int64s(shape)


def convert_size(_context: NodeContext, inputs: Sequence[Any], _attributes: dict[str, Any]) -> Any:
    """Convert `Size` of a fixed shape to a constant."""
    shape = fixed_shape(inputs[0])
    return None if shape is None else int64s(math.prod(shape))


def convert_slice(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `Slice` of opset 1, whose bounds are attributes; TVM's converter expects a later opset."""
    if context.opset >= 10:
        return None
    starts, ends = list(attributes["starts"]), list(attributes["ends"])
    axes = list(attributes.get("axes", range(len(starts))))
    bounds = [int64s(values) for values in (starts, ends, axes)]
    return context.convert("Slice", [inputs[0], *bounds], {}, _SINCE_AXES_ARE_INPUTS)


def convert_split(context: NodeContext, inputs: Sequence[Any], _attributes: dict[str, Any]) -> Any:
    """Convert `Split` into one piece, which is the tensor itself: TVM's layout rule for it fails, and that ends the pass."""
    return inputs[0] if context.outputs == 1 else None


def convert_squeeze(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `Squeeze` with axes counted from the end, for which TVM's converter makes a shape of negative size."""
    axes = attributes.get("axes")
    if context.opset >= _SINCE_AXES_ARE_INPUTS:
        axes_input = inputs[1] if len(inputs) > 1 else None
        value = getattr(axes_input, "value", None)
        axes = None if value is None else value.numpy().reshape(-1).tolist()
    if axes is None or all(int(axis) >= 0 for axis in axes):
        return None
    rank = rank_of(inputs[0])
    from_front = int64s([int(axis) % rank for axis in axes])
    return context.convert("Squeeze", [inputs[0], from_front], {}, _SINCE_AXES_ARE_INPUTS)


def convert_tile(_context: NodeContext, inputs: Sequence[Any], _attributes: dict[str, Any]) -> Any:
    """Convert `Tile` by constant counts; TVM's converter makes a kernel at once, which no graph pass looks into."""
    counts = constant_value(inputs[1])
    return None if counts is None else relax.op.tile(inputs[0], [int(count) for count in counts])


def convert_top_k(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `TopK` of opset 10, which TVM reads as opset 1's, and unsorted `TopK`, for which any order is right."""
    if context.opset < 10 or (context.opset > 10 and attributes.get("sorted", 1) == 1):
        return None
    return context.convert("TopK", inputs, {**attributes, "sorted": 1}, 11)


def _pad_widths(
    context: NodeContext, rank: int, inputs: Sequence[Any], attributes: dict[str, Any]
) -> tuple[list[int], float] | None:
    """Return the widths ``[before, after]`` of each axis, in one list, and the value to pad with; None if they are not constant."""
    optional_inputs = [*inputs[1:], None, None, None]
    if context.opset < 11:
        pads, axes = attributes.get("pads"), None
        value = float(attributes.get("value", 0.0))
    else:
        pads_input, value_input, axes_input = optional_inputs[:3]
        pads, value = constant_value(pads_input), 0.0
        if value_input is not None:
            number = constant_value(value_input)
            if number is None or number.size != 1:
                return None
            value = float(number.reshape(-1)[0])
        axes = constant_value(axes_input)
        if axes_input is not None and axes is None:
            return None
    if pads is None:
        return None
    padded = [axis_of(int(axis), rank) for axis in axes] if axes is not None else list(range(rank))
    if len(pads) != 2 * len(padded):
        return None
    widths = [0] * (2 * rank)
    for index, axis in enumerate(padded):
        widths[2 * axis] = int(pads[index])
        widths[2 * axis + 1] = int(pads[len(padded) + index])
    return widths, value
