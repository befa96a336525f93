"""Converters of `Resize` and `Upsample`, of all opsets.

TVM computes coordinates from the sizes, ONNX from the given scale: to resize 7 columns to 5 by a scale of 0.8 picks other columns than
by 5/7. TVM also knows neither antialiasing, nor axes, nor aspect policies. The forms that TVM computes rightly become its `resize2d`,
which has a layout rule. Others become, axis by axis, a weighted sum of picked rows, whose positions and weights are computed here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import relax

from tunefarm_tuning.tvm.frontend.node_context import (
    NodeContext,
    UnsupportedFormError,
    axis_of,
    const,
    constant_value,
    dtype_of,
    full_rank,
    needed_constant,
    needed_shape,
    rank_of,
    text,
)

_TVM_COORDINATES = frozenset({"half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"})
_MAX_PICKS = 4
_PARTS = 1 << 8
"""Weights of bytes are multiples of one over this, so that sums along two axes fit into the digits of a float32."""
_MOST_FOLDED = 1 << 16
"""Elements of a constant that is resized at the import, afterwards."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resizing:
    """The resizing of an axis.

    Attributes:
        scale: Scale for computing positions.
        start: Begin of the crop, as a share of the size; for ``tf_crop_and_resize``.
    """

    before: int
    after: int
    scale: float
    start: float = 0.0
    end: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """The attributes that determine the weights of rows."""

    mode: str
    coordinates: str
    nearest: str
    cubic: float
    exclude_outside: bool
    antialias: bool


def convert_resize(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `Resize` of any opset."""
    x = inputs[0]
    shape = needed_shape(x)
    optional_inputs = [*inputs[1:], None, None, None]
    if context.opset < 11:
        roi, scales, sizes = None, optional_inputs[0], None
        method = _method(attributes, coordinates="asymmetric", nearest="simple")
    else:
        roi, scales, sizes = optional_inputs[:3]
        method = _method(attributes, coordinates="half_pixel", nearest="round_prefer_floor")
    axes = [axis_of(int(axis), len(shape)) for axis in attributes.get("axes", range(len(shape)))]
    resized = _resized_axes(
        shape, axes, scales, sizes, text(attributes, "keep_aspect_ratio_policy", "stretch")
    )
    if method.coordinates == "tf_crop_and_resize":
        crops = needed_constant(roi, "region of interest").reshape(2, -1).tolist()
        resized = {
            axis: replace(resizing, start=start, end=end)
            for (axis, resizing), start, end in zip(resized.items(), *crops, strict=True)
        }
    return resize(context, x, resized, method, float(attributes.get("extrapolation_value", 0.0)))


def convert_upsample(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `Upsample`, whose scales are an attribute before opset 9 and an input in it."""
    shape = needed_shape(inputs[0])
    scales = attributes.get("scales")
    scales = const(np.array(scales, np.float32)) if scales is not None else inputs[1]
    resized = _resized_axes(shape, list(range(len(shape))), scales, None, "stretch")
    method = _method(attributes, coordinates="asymmetric", nearest="simple")
    return resize(context, inputs[0], resized, method, 0.0)


def resize(context: NodeContext, x: Any, resized: dict[int, Resizing], method: Method, outside: float) -> Any:
    """Resize some axes of a tensor of fixed shape; `outside` is the value of rows outside of a crop."""
    shape = needed_shape(x)
    dtype = dtype_of(x)
    changed = {
        axis: resizing
        for axis, resizing in resized.items()
        if resizing.before != resizing.after
        or resizing.scale != 1.0
        or (resizing.start, resizing.end) != (0.0, 1.0)
    }
    if not changed:
        return x
    if any(resizing.after < 1 for resizing in changed.values()):
        raise UnsupportedFormError("it makes a tensor without elements")
    # The weights of rows are not rounded to bfloat16's eight digits.
    if (method.mode != "nearest" and dtype == "bfloat16") or _cuts_bytes(dtype, changed, method):
        wide = resize(context, context.emit(relax.op.astype(x, "float32")), changed, method, outside)
        return relax.op.astype(context.emit(wide), dtype)
    if method.mode != "nearest" and not dtype.startswith("float"):
        raise UnsupportedFormError(f"mode {method.mode} of {dtype} is not supported: cast to float before it")
    known = constant_value(x)
    if known is not None and _is_folded(known, changed, method):
        for axis, resizing in changed.items():
            known = known.take(_nearest_rows(_positions(resizing, method), resizing, method), axis)
        return const(known)
    if _is_for_tvm(shape, changed, method):
        sizes = [changed[axis].after if axis in changed else shape[axis] for axis in (2, 3)]
        return context.emit(
            relax.op.image.resize2d(
                x,
                size=relax.ShapeExpr(sizes),
                roi=[0.0] * 4,
                layout="NCHW",
                method={"nearest": "nearest_neighbor"}.get(method.mode, method.mode),
                coordinate_transformation_mode=method.coordinates,
                rounding_method={"simple": "floor"}.get(method.nearest, method.nearest),
                cubic_alpha=method.cubic,
            )
        )
    inside: NDArray[np.bool_] | None = None
    for axis, resizing in changed.items():
        positions = _positions(resizing, method)
        x = _mix(context, x, axis, _weights(positions, resizing, method))
        if method.coordinates == "tf_crop_and_resize":
            valid = (positions >= 0) & (positions <= resizing.before - 1)
            valid = valid.reshape([-1 if i == axis else 1 for i in range(len(shape))])
            inside = valid if inside is None else inside & valid
    if inside is not None and not inside.all():
        x = context.emit(relax.op.where(const(inside), x, full_rank(outside, len(shape), dtype)))
    return x


def _cuts_bytes(dtype: str, changed: dict[int, Resizing], method: Method) -> bool:
    """Return whether bytes can be resized as floats that are cut to integers, as in ONNX Runtime.

    That takes weights of few bits: with others a sum may be a whole number in one order and a little less in another.
    """
    if dtype not in ("int8", "uint8") or method.mode != "linear" or method.antialias:
        return False
    if method.coordinates == "tf_crop_and_resize" or len(changed) > 2:
        return False
    shares = [_weights(_positions(resizing, method), resizing, method) for resizing in changed.values()]
    return all(np.array_equal(share * _PARTS, np.round(share * _PARTS)) for share in shares)


def _is_folded(known: NDArray[Any], changed: dict[int, Resizing], method: Method) -> bool:
    """Return whether a constant is resized at once: a mask, behind which there is mostly more to compute."""
    if method.mode != "nearest" or method.coordinates == "tf_crop_and_resize":
        return False
    grown = math.prod(resizing.after / resizing.before for resizing in changed.values())
    return known.size * max(grown, 1.0) <= _MOST_FOLDED


def _method(attributes: dict[str, Any], *, coordinates: str, nearest: str) -> Method:
    mode = text(attributes, "mode", "nearest")
    mode = {"bilinear": "linear"}.get(mode, mode)
    coordinates = text(attributes, "coordinate_transformation_mode", coordinates)
    if mode not in ("nearest", "linear", "cubic") or coordinates not in _COORDINATES:
        raise UnsupportedFormError(f"mode {mode} with coordinates {coordinates} is not supported")
    return Method(
        mode=mode,
        coordinates=coordinates,
        nearest=text(attributes, "nearest_mode", nearest),
        cubic=float(attributes.get("cubic_coeff_a", -0.75)),
        exclude_outside=bool(attributes.get("exclude_outside", 0)),
        antialias=bool(attributes.get("antialias", 0)),
    )


def _resized_axes(
    shape: Sequence[int], axes: Sequence[int], scales: Any, sizes: Any, policy: str
) -> dict[int, Resizing]:
    """Return the resizing of each axis, from either `scales` or `sizes`."""
    scale_values = _given(scales, "scales")
    size_values = _given(sizes, "sizes")
    if (scale_values is None) == (size_values is None):
        raise UnsupportedFormError("it needs either scales or sizes")
    before = [shape[axis] for axis in axes]
    if scale_values is not None:
        factors = [float(scale) for scale in scale_values.astype(np.float32)]
        after = [int(np.floor(np.float32(b) * np.float32(f))) for b, f in zip(before, factors, strict=True)]
    else:
        assert size_values is not None
        after = [int(size) for size in size_values]
        factors = [float(np.float32(a) / np.float32(b)) for a, b in zip(after, before, strict=True)]
        if policy != "stretch":
            factor = min(factors) if policy == "not_larger" else max(factors)
            factors = [factor] * len(axes)
            after = [math.floor(b * factor + 0.5) for b in before]
    return {
        axis: Resizing(before=b, after=a, scale=f)
        for axis, b, a, f in zip(axes, before, after, factors, strict=True)
    }


def _given(x: Any, name: str) -> NDArray[Any] | None:
    """Return the value of an input; None if it is left out or empty."""
    if x is None:
        return None
    value = needed_constant(x, name)
    return value if value.size else None


def _is_for_tvm(shape: Sequence[int], changed: dict[int, Resizing], method: Method) -> bool:
    """Return whether TVM's `resize2d` computes the same."""
    if len(shape) != 4 or any(axis < 2 for axis in changed) or method.coordinates not in _TVM_COORDINATES:
        return False
    if method.antialias or (method.mode == "cubic" and method.exclude_outside):
        return False
    for resizing in changed.values():
        is_exact = math.isclose(resizing.scale * resizing.before, resizing.after, rel_tol=1e-6)
        if resizing.after == 1 or resizing.before == 1 or not is_exact:
            return False
        # Unless the scale is an integer, a tie between two rows depends on the rounding of 32-bit floats.
        if method.mode == "nearest" and (resizing.scale < 1 or resizing.scale != int(resizing.scale)):
            return False
    return True


_COORDINATES: dict[str, Callable[[NDArray[np.float32], Resizing], Any]] = {
    "half_pixel": lambda i, r: (i + np.float32(0.5)) / np.float32(r.scale) - np.float32(0.5),
    "pytorch_half_pixel": lambda i, r: (
        (i + np.float32(0.5)) / np.float32(r.scale) - np.float32(0.5) if r.after > 1 else i * 0
    ),
    "align_corners": lambda i, r: (
        i * np.float32(r.before - 1) / np.float32(r.after - 1) if r.after > 1 else i * 0
    ),
    "asymmetric": lambda i, r: i / np.float32(r.scale),
    "tf_half_pixel_for_nn": lambda i, r: (i + np.float32(0.5)) / np.float32(r.scale),
    "half_pixel_symmetric": lambda i, r: (
        r.before / 2 * (1 - r.after / (r.scale * r.before)) + (i + 0.5) / r.scale - 0.5
    ),
    "tf_crop_and_resize": lambda i, r: (
        r.start * (r.before - 1) + i * (r.end - r.start) * (r.before - 1) / (r.after - 1)
        if r.after > 1
        else i * 0 + 0.5 * (r.start + r.end) * (r.before - 1)
    ),
}

_NEAREST: dict[str, Callable[[Floats, float], Floats]] = {
    "round_prefer_floor": lambda p, _: np.ceil(p - 0.5),
    "round_prefer_ceil": lambda p, _: np.floor(p + 0.5),
    "floor": lambda p, _: np.floor(p),
    "ceil": lambda p, _: np.ceil(p),
    "simple": lambda p, scale: np.ceil(p) if scale < 1 else np.floor(p),  # opset 10, as in ONNX Runtime
}


def _positions(resizing: Resizing, method: Method) -> Floats:
    """Return the position of each new row among the old ones, in the 32-bit floats of ONNX Runtime: ties depend on them."""
    positions = _COORDINATES[method.coordinates](np.arange(resizing.after, dtype=np.float32), resizing)
    return np.asarray(positions, dtype=np.float32).astype(np.float64)


def _nearest_rows(positions: Floats, resizing: Resizing, method: Method) -> NDArray[np.int64]:
    """Return the old row that each new one is."""
    if method.nearest not in _NEAREST:
        raise UnsupportedFormError(f"nearest_mode {method.nearest} is not known")
    return np.clip(_NEAREST[method.nearest](positions, resizing.scale), 0, resizing.before - 1).astype(
        np.int64
    )


def _weights(positions: Floats, resizing: Resizing, method: Method) -> Floats:
    """Return the share of each old row in each new one: new rows by old rows."""
    weights = np.zeros((resizing.after, resizing.before))
    if method.mode == "nearest":
        weights[np.arange(resizing.after), _nearest_rows(positions, resizing, method)] = 1.0
        return weights
    reach = 1 if method.mode == "linear" else 2
    squeeze = min(resizing.scale, 1.0) if method.antialias else 1.0
    span = math.ceil(reach / squeeze)
    for new, position in enumerate(positions):
        around = np.arange(math.floor(position) - span, math.floor(position) + span + 2)
        shares = _kernel((around - position) * squeeze, method)
        if method.exclude_outside and method.mode == "cubic":
            shares = np.where((around >= 0) & (around < resizing.before), shares, 0.0)
        shares = shares / shares.sum()
        np.add.at(weights[new], np.clip(around, 0, resizing.before - 1), shares)
    return weights


def _kernel(distance: Floats, method: Method) -> Floats:
    d = np.abs(distance)
    if method.mode == "linear":
        return np.asarray(np.clip(1 - d, 0.0, 1.0))
    a = method.cubic
    near = (a + 2) * d**3 - (a + 3) * d**2 + 1
    far = a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a
    return np.asarray(np.where(d <= 1, near, np.where(d < 2, far, 0.0)))


def _mix(context: NodeContext, x: Any, axis: int, weights: Floats) -> Any:
    """Replace the rows of an axis by weighted sums of them."""
    rank, dtype = rank_of(x), dtype_of(x)
    most = int(np.count_nonzero(weights, axis=1).max())
    if most > _MAX_PICKS:
        matrix = const(weights.T.astype(dtype))
        order = [i for i in range(rank) if i != axis] + [axis]
        back = [order.index(i) for i in range(rank)]
        turned = x if axis == rank - 1 else context.emit(relax.op.permute_dims(x, order))
        mixed = context.emit(relax.op.matmul(turned, matrix))
        return mixed if axis == rank - 1 else context.emit(relax.op.permute_dims(mixed, back))
    rows = np.argsort(-np.abs(weights), axis=1, kind="stable")[:, :most]
    shares = np.take_along_axis(weights, rows, axis=1)
    total = None
    for pick in range(most):
        part = context.emit(relax.op.take(x, const(rows[:, pick].astype(np.int64)), axis=axis))
        if not np.array_equal(shares[:, pick], np.ones(len(shares))):
            share = shares[:, pick].astype(dtype).reshape([-1 if i == axis else 1 for i in range(rank)])
            part = context.emit(relax.op.multiply(part, const(share)))
        total = part if total is None else context.emit(relax.op.add(total, part))
    return total
