"""Operators that TVM's importer gets wrong, refuses in ordinary forms, or does not know: `docs/known-limits.md` lists them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from tvm import relax

from tunefarm_tuning.tvm.frontend.scope import (
    Scope,
    UnsupportedFormError,
    axis_of,
    const,
    dtype_of,
    fixed_shape,
    full_rank,
    needed_constant,
    needed_shape,
    text,
)


def convert_constant(_scope: Scope, _inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `Constant` of plain numbers; TVM knows tensors only."""
    for name, dtype in (("float", np.float32), ("int", np.int64)):
        for key in (f"value_{name}", f"value_{name}s"):
            if key in attributes:
                return const(np.array(attributes[key], dtype=dtype))
    return None


def convert_shape(scope: Scope, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `Shape` of a fixed shape to a constant, with which everything may be computed."""
    shape = fixed_shape(inputs[0])
    if shape is None:
        return None
    if scope.opset >= 15:
        shape = shape[attributes.get("start", 0) : attributes.get("end", len(shape))]
    return const(np.array(shape, dtype=np.int64))


def convert_size(_scope: Scope, inputs: Sequence[Any], _attributes: dict[str, Any]) -> Any:
    """Convert `Size` likewise."""
    shape = fixed_shape(inputs[0])
    return None if shape is None else const(np.array(math.prod(shape), dtype=np.int64))


def convert_batch_norm(_scope: Scope, _inputs: Sequence[Any], attributes: dict[str, Any]) -> None:
    """Refuse `BatchNormalization` in training mode: TVM's importer converts it as if it were at inference."""
    if attributes.get("training_mode", 0):
        raise UnsupportedFormError(
            "it is in training mode, where it normalises by the batch's own statistics"
        )


def convert_dropout(scope: Scope, inputs: Sequence[Any], _attributes: dict[str, Any]) -> Any:
    """Convert `Dropout`, which does nothing at inference; TVM makes its mask one of floats."""
    training = inputs[2] if len(inputs) > 2 else None
    if training is not None and bool(needed_constant(training, "training_mode")):
        raise UnsupportedFormError("it is in training mode, where results are random")
    if scope.outputs < 2:
        return inputs[0]
    dtype = "bool" if scope.opset >= 10 else dtype_of(inputs[0])
    return relax.Tuple([inputs[0], const(np.ones(needed_shape(inputs[0]), dtype=dtype))])


def convert_pool(operator: str) -> Callable[[Scope, Sequence[Any], dict[str, Any]], Any]:
    """Make a converter of pools whose padding follows from their sizes: TVM's makes some of them one row short."""

    def convert(scope: Scope, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
        mode = text(attributes, "auto_pad", "NOTSET")
        if mode not in ("SAME_UPPER", "SAME_LOWER"):
            return None
        sizes = needed_shape(inputs[0])[2:]
        kernel = attributes["kernel_shape"]
        strides = attributes.get("strides", (1,) * len(sizes))
        dilations = attributes.get("dilations", (1,) * len(sizes))
        before, after = [], []
        for size, width, stride, dilation in zip(sizes, kernel, strides, dilations, strict=True):
            total = max((math.ceil(size / stride) - 1) * stride + (width - 1) * dilation + 1 - size, 0)
            first = total // 2 if mode == "SAME_UPPER" else total - total // 2
            before.append(first)
            after.append(total - first)
        rest = {key: value for key, value in attributes.items() if key not in ("auto_pad", "ceil_mode")}
        return scope.convert(operator, inputs, {**rest, "pads": (*before, *after)}, scope.opset)

    return convert


def convert_conv_transpose(scope: Scope, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `ConvTranspose` with an `output_shape`, which TVM's importer does not look at."""
    wanted = attributes.get("output_shape")
    if wanted is None:
        return None
    sizes = needed_shape(inputs[0])[2:]
    kernel = attributes.get("kernel_shape", needed_shape(inputs[1])[2:])
    ones = (1,) * len(sizes)
    strides, dilations = attributes.get("strides", ones), attributes.get("dilations", ones)
    extra = list(attributes.get("output_padding", (0,) * len(sizes)))
    upper = text(attributes, "auto_pad", "NOTSET") == "SAME_UPPER"
    before, after = [], []
    for axis, size in enumerate(sizes):
        full = strides[axis] * (size - 1) + extra[axis] + (kernel[axis] - 1) * dilations[axis] + 1
        total = full - wanted[len(wanted) - len(sizes) + axis]
        if total < 0:
            extra[axis] -= total
            total = 0
        first = total // 2 if upper else total - total // 2
        before.append(first)
        after.append(total - first)
    rest = {key: value for key, value in attributes.items() if key not in ("auto_pad", "output_shape")}
    rest |= {"pads": (*before, *after), "output_padding": tuple(extra)}
    return scope.convert("ConvTranspose", inputs, rest, scope.opset)


def convert_layer_norm(scope: Scope, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `LayerNormalization` with its statistics, which TVM's importer makes zeros, and of doubles."""
    x = inputs[0]
    is_double = dtype_of(x) == "float64"  # for which TVM has no kernel
    if scope.outputs < 2 and not is_double:
        return None
    rank = len(needed_shape(x))
    axes = list(range(axis_of(attributes.get("axis", -1), rank), rank))
    wide = x if dtype_of(x) in ("float32", "float64") else scope.emit(relax.op.astype(x, "float32"))
    mean = scope.emit(relax.op.mean(wide, axes, keepdims=True))
    variance = scope.emit(relax.op.variance(wide, axes, keepdims=True))
    epsilon = full_rank(attributes.get("epsilon", 1e-5), rank, dtype_of(wide))
    inverse = scope.emit(relax.op.rsqrt(scope.emit(relax.op.add(variance, epsilon))))
    if is_double:
        normed = scope.emit(relax.op.multiply(scope.emit(relax.op.subtract(x, mean)), inverse))
        for number, step in ((1, relax.op.multiply), (2, relax.op.add)):
            if len(inputs) > number and inputs[number] is not None:
                normed = scope.emit(step(normed, inputs[number]))
    else:
        normed = scope.convert("LayerNormalization", inputs, attributes, scope.opset).fields[0]
    return relax.Tuple([normed, mean, inverse]) if scope.outputs > 1 else normed


def convert_one_hot(scope: Scope, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `OneHot`; TVM's importer fails on every one."""
    depth = int(needed_constant(inputs[1], "depth").reshape(-1)[0])
    off, on = needed_constant(inputs[2], "values")
    dtype = str(needed_constant(inputs[2], "values").dtype)
    rank = len(needed_shape(inputs[0])) + 1
    axis = axis_of(attributes.get("axis", -1), rank)
    indices = scope.emit(relax.op.astype(inputs[0], "int64"))
    indices = scope.emit(relax.op.expand_dims(indices, axis))
    wrapped = scope.emit(relax.op.add(indices, full_rank(depth, rank, "int64")))
    negative = scope.emit(relax.op.less(indices, full_rank(0, rank, "int64")))
    indices = scope.emit(relax.op.where(negative, wrapped, indices))
    places = const(np.arange(depth).reshape([-1 if i == axis else 1 for i in range(rank)]))
    hot = scope.emit(relax.op.equal(indices, places))
    return relax.op.where(hot, full_rank(on, rank, dtype), full_rank(off, rank, dtype))


def convert_is_inf(scope: Scope, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `IsInf` of one sign; TVM's importer does not look at its attributes."""
    x = inputs[0]
    kept = [
        sign
        for sign, name in ((np.inf, "detect_positive"), (-np.inf, "detect_negative"))
        if attributes.get(name, 1)
    ]
    if len(kept) == 2:
        return None
    rank = len(needed_shape(x))
    if not kept:
        return const(np.zeros(needed_shape(x), dtype=bool))
    return scope.emit(relax.op.equal(x, full_rank(kept[0], rank, dtype_of(x))))


def convert_pow(scope: Scope, inputs: Sequence[Any], _attributes: dict[str, Any]) -> Any:
    """Convert `Pow` of two dtypes or of integers, which TVM has no kernel for."""
    base, exponent = inputs
    kinds = dtype_of(base), dtype_of(exponent)
    if kinds[0] == kinds[1] and kinds[0].startswith("float"):
        return None
    if kinds[0].startswith("float"):
        return scope.node("Pow", base, scope.emit(relax.op.astype(exponent, kinds[0])))
    wide = [scope.emit(relax.op.astype(one, "float64")) for one in (base, exponent)]
    return relax.op.astype(scope.node("Pow", *wide), kinds[0])


def convert_eye_like(_scope: Scope, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `EyeLike` to a constant; TVM's importer refuses another dtype than the input's."""
    rows, columns = needed_shape(inputs[0])
    wanted = attributes.get("dtype")
    dtype = onnx.helper.tensor_dtype_to_np_dtype(wanted) if wanted else np.dtype(dtype_of(inputs[0]))
    return const(np.eye(rows, columns, attributes.get("k", 0)).astype(dtype))


def convert_bool_reduction(operator: str) -> Callable[[Scope, Sequence[Any], dict[str, Any]], Any]:
    """Make a converter of `ReduceMax` and `ReduceMin` of booleans, which TVM has no kernel for."""

    def convert(scope: Scope, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
        if dtype_of(inputs[0]) != "bool":
            return None
        narrow = scope.emit(relax.op.astype(inputs[0], "int8"))
        made = scope.convert(operator, [narrow, *inputs[1:]], attributes, scope.opset)
        return relax.op.astype(scope.emit(made), "bool")

    return convert


def convert_log_sum_exp(scope: Scope, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `ReduceLogSumExp`, in which TVM's importer subtracts one infinity from another."""
    x = inputs[0]
    dtype = dtype_of(x)
    if not dtype.startswith("float"):
        return None
    rank = len(needed_shape(x))
    axes = attributes.get("axes")
    if scope.opset >= 18:
        given = inputs[1] if len(inputs) > 1 else None
        axes = None if given is None else needed_constant(given, "axes").reshape(-1).tolist()
        if not axes and attributes.get("noop_with_empty_axes", 0):
            return x
    over = [axis_of(int(axis), rank) for axis in axes] if axes else list(range(rank))
    most, least = (full_rank(end, rank, dtype) for end in (np.finfo(dtype).max, np.finfo(dtype).min))
    top = scope.emit(relax.op.max(x, over, keepdims=True))
    top = scope.emit(relax.op.minimum(scope.emit(relax.op.maximum(top, least)), most))
    powers = scope.emit(relax.op.exp(scope.emit(relax.op.subtract(x, top))))
    total = scope.emit(relax.op.sum(powers, over, keepdims=True))
    made = scope.emit(relax.op.add(scope.emit(relax.op.log(total)), top))
    return made if attributes.get("keepdims", 1) else relax.op.squeeze(made, over)


def convert_roi_align(scope: Scope, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `RoiAlign`: TVM's importer moves regions by half a pixel before it scales them, and has another maximum."""
    if text(attributes, "mode", "avg") != "avg":
        raise UnsupportedFormError(
            "mode max is not supported: TVM takes the maximum of other values than ONNX"
        )
    default = "half_pixel" if scope.opset >= 16 else "output_half_pixel"
    aligned = text(attributes, "coordinate_transformation_mode", default) == "half_pixel"
    scale = float(attributes.get("spatial_scale", 1.0))
    regions, dtype = inputs[1], dtype_of(inputs[1])
    if aligned:
        regions = scope.emit(relax.op.subtract(regions, full_rank(0.5 / scale, 2, dtype)))
    batch = scope.emit(relax.op.astype(scope.emit(relax.op.expand_dims(inputs[2], 1)), dtype))
    return relax.op.vision.roi_align(
        inputs[0],
        scope.emit(relax.op.concat([batch, regions], axis=1)),
        pooled_size=(attributes.get("output_height", 1), attributes.get("output_width", 1)),
        spatial_scale=scale,
        sample_ratio=attributes.get("sampling_ratio", 0),
        aligned=aligned,
        layout="NCHW",
        mode="avg",
    )


def convert_lp_norm(scope: Scope, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `LpNormalization`, which TVM does not know. Where all is zero, so is the result."""
    x = inputs[0]
    rank, dtype = len(needed_shape(x)), dtype_of(x)
    axis = axis_of(attributes.get("axis", -1), rank)
    if attributes.get("p", 2) == 1:
        norm = scope.emit(relax.op.sum(scope.emit(relax.op.abs(x)), axis, keepdims=True))
    else:
        squares = scope.emit(relax.op.sum(scope.emit(relax.op.multiply(x, x)), axis, keepdims=True))
        norm = scope.emit(relax.op.sqrt(squares))
    least = full_rank(np.finfo(dtype).tiny, rank, dtype)
    return relax.op.divide(x, scope.emit(relax.op.maximum(norm, least)))


def convert_non_max_suppression(_scope: Scope, _inputs: Sequence[Any], _attributes: dict[str, Any]) -> Any:
    """Refuse `NonMaxSuppression`: TVM pads what it returns, or returns nothing where the limit is an input."""
    raise UnsupportedFormError(
        "it returns as many rows as boxes are left, which is not known before the model runs"
    )


def convert_rms_norm(scope: Scope, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `RMSNormalization` over all axes: TVM's kernel wants one that is left."""
    shape = needed_shape(inputs[0])
    if axis_of(attributes.get("axis", -1), len(shape)) > 0:
        return None
    x = scope.emit(relax.op.expand_dims(inputs[0], 0))
    y = scope.emit(scope.convert("RMSNormalization", [x, inputs[1]], {**attributes, "axis": 1}, scope.opset))
    return relax.op.reshape(y, shape)


def convert_space_to_depth(_scope: Scope, _inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Refuse the `mode` that opset 26 adds: TVM's importer does not look at it."""
    if text(attributes, "mode", "DCR") != "DCR":
        raise UnsupportedFormError("mode CRD is not supported")


CONVERTERS: dict[str, Callable[[Scope, Sequence[Any], dict[str, Any]], Any]] = {
    "AveragePool": convert_pool("AveragePool"),
    "BatchNormalization": convert_batch_norm,
    "Constant": convert_constant,
    "ConvTranspose": convert_conv_transpose,
    "Dropout": convert_dropout,
    "EyeLike": convert_eye_like,
    "IsInf": convert_is_inf,
    "LayerNormalization": convert_layer_norm,
    "LpNormalization": convert_lp_norm,
    "LpPool": convert_pool("LpPool"),
    "MaxPool": convert_pool("MaxPool"),
    "NonMaxSuppression": convert_non_max_suppression,
    "OneHot": convert_one_hot,
    "Pow": convert_pow,
    "ReduceMax": convert_bool_reduction("ReduceMax"),
    "ReduceLogSumExp": convert_log_sum_exp,
    "RMSNormalization": convert_rms_norm,
    "ReduceMin": convert_bool_reduction("ReduceMin"),
    "RoiAlign": convert_roi_align,
    "Shape": convert_shape,
    "Size": convert_size,
    "SpaceToDepth": convert_space_to_depth,
}
"""Each returns None where TVM's own converter is right."""
