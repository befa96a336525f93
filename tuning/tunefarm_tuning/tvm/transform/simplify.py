"""Simplifications: rewrite operators into forms that run faster or that later passes understand."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax

from tunefarm_tuning.tvm.base.relax_graph import entry_names, operator_name, rewrite_calls, static_shape
from tunefarm_tuning.tvm.transform.convolutions.convolution import CHANNELS_FIRST, convolution_name, convolve

_MIN_SPLIT = 1 << 12
_PARTS = (64, 32, 16, 8, 4, 2, 1)
_POWERS: dict[float, Callable[[Any], Any]] = {
    1.0: lambda x: x,
    2.0: lambda x: relax.op.multiply(x, x),
    3.0: lambda x: relax.op.multiply(relax.op.multiply(x, x), x),
    0.5: relax.op.sqrt,
}
"""What a power becomes, by its exponent. Each is equal to the C library's power to the last bit, but for the cube, which is ONNX
Runtime's; the root of minus infinity is NaN, and that of minus zero keeps its sign."""


def simplify_powers(mod: tvm.IRModule) -> tvm.IRModule:
    """Return the module with floating-point powers by 1, 2, 3 and 0.5 replaced by the tensor, products or a root.

    A layer norm that an exporter took apart squares by ``Pow``, a GELU cubes, which would call the C library for each element. It
    took three quarters of the time of a network that cubes at each layer. A cube of float16 stays: its square would be rounded.
    """
    return rewrite_calls(mod, _simplify_power)


def drop_reshapes(mod: tvm.IRModule) -> tvm.IRModule:
    """Return the module without reshapes to the shape that the tensor has already."""
    return rewrite_calls(mod, _drop_reshape)


def simplify_takes(mod: tvm.IRModule) -> tvm.IRModule:
    """Return the module with each ``take`` at consecutive constant indices replaced by a slice (queries out of QKV, a class token).

    A slice fuses with what follows it, and transposes move below it; a ``take``, whose indices may be known at run time only,
    allows neither.
    """
    return rewrite_calls(mod, _simplify_take)


def crop_kernels(mod: tvm.IRModule) -> tvm.IRModule:
    """Return the module with convolution kernels cropped to the taps that reach the image.

    A kernel dilated by 18 over an image of 16 pixels has eight of its nine taps outside of the image at every position; so has a
    3x3 kernel over a single pixel. TVM's loops multiply all of them by zeros. Convolutions with constant weights and channels
    first are cropped.
    """
    return rewrite_calls(mod, _crop_kernel)


def fold_pads(mod: tvm.IRModule) -> tvm.IRModule:
    """Return the module with zeros that are padded before a convolution with channels first as padding of the convolution."""
    values: dict[Any, Any] = {
        binding.var: binding.value
        for name in entry_names(mod)
        for block in mod[name].body.blocks
        for binding in block.bindings
        if isinstance(binding, relax.VarBinding)
    }

    def fold(call: Any, builder: Any) -> Any:
        if convolution_name(call, CHANNELS_FIRST) is None:
            return call
        pad = values.get(call.args[0])
        if pad is None or operator_name(pad) != "relax.nn.pad":
            return call
        if str(pad.attrs.pad_mode) != "constant" or pad.attrs.pad_value:
            return call
        widths = [int(width) for width in pad.attrs.pad_width]
        before, after = widths[::2], widths[1::2]
        if min(widths) < 0 or any((*before[:2], *after[:2])):
            return call
        padding = [
            own + more for own, more in zip(call.attrs.padding, (*before[2:], *after[2:]), strict=True)
        ]
        return builder.normalize(convolve(call, pad.args[0], call.args[1], padding=padding))

    return rewrite_calls(mod, fold)


def split_extremes(mod: tvm.IRModule) -> tvm.IRModule:
    """Return the module with the least or largest element of a large tensor found in parts: each is a row, which is vectorised.

    Dynamically quantised networks look for both before each product.
    """
    return rewrite_calls(mod, _split_extreme)


def _split_extreme(call: Any, builder: Any) -> Any:
    reduce = {"relax.max": relax.op.max, "relax.min": relax.op.min}.get(operator_name(call))
    shape = None if reduce is None else static_shape(call.args[0])
    if reduce is None or shape is None or call.attrs.axis is not None or prod(shape) < _MIN_SPLIT:
        return call
    elements = prod(shape)
    parts = next(count for count in _PARTS if elements % count == 0)
    rows = builder.emit(relax.op.reshape(call.args[0], [parts, elements // parts]))
    extreme = builder.emit(reduce(builder.emit(reduce(rows, axis=1))))
    return builder.normalize(relax.op.reshape(extreme, [1] * len(shape) if call.attrs.keepdims else []))


def _simplify_power(call: Any, builder: Any) -> Any:
    if operator_name(call) == "relax.power":
        base, exponent = call.args
        number = _scalar(exponent)
        simplified = None if number == 3.0 and str(base.ty.dtype.dtype) == "float16" else _POWERS.get(number)
        # An exponent of higher rank would raise the rank of the result.
        if simplified is not None and tvm_ffi.structural_equal(base.ty, call.ty):
            return builder.normalize(simplified(base))
    return call


def _drop_reshape(call: Any, _builder: Any) -> Any:
    if operator_name(call) != "relax.reshape" or not tvm_ffi.structural_equal(call.args[0].ty, call.ty):
        return call
    return call.args[0]


def _scalar(exponent: Any) -> float:
    """Return the single element of a floating-point constant; NaN for anything else."""
    if not isinstance(exponent, tvm.ir.GenericConst):
        return float("nan")
    value = exponent.value.numpy()
    is_scalar = value.size == 1 and np.issubdtype(value.dtype, np.floating)
    return float(value.reshape(())) if is_scalar else float("nan")


def _simplify_take(call: Any, builder: Any) -> Any:
    if operator_name(call) != "relax.take":
        return call
    data, indices = call.args
    before, after = static_shape(data), static_shape(call)
    if not isinstance(indices, tvm.ir.GenericConst) or before is None or after is None:
        return call
    if isinstance(data, tvm.ir.GenericConst) or call.attrs.axis is None or 0 in after:
        return call
    axis, taken = int(call.attrs.axis), indices.value.numpy()
    flat = [int(index) for index in taken.reshape(-1)]
    if taken.ndim > 1 or any(not 0 <= index < before[axis] for index in flat):
        return call
    if np.any(np.diff(flat) != 1):
        return call
    cut = builder.normalize(relax.op.strided_slice(data, axes=[axis], begin=[flat[0]], end=[flat[-1] + 1]))
    if taken.ndim == 1:
        return cut
    return builder.normalize(relax.op.reshape(builder.emit(cut), list(after)))


def _crop_kernel(call: Any, builder: Any) -> Any:
    if convolution_name(call, CHANNELS_FIRST) is None:
        return call
    data, weights = call.args
    before, after = static_shape(data), static_shape(call)
    if before is None or after is None or not isinstance(weights, tvm.ir.GenericConst):
        return call
    attributes = call.attrs
    rank = len(before) - 2
    value = weights.value.numpy()
    padding = [int(width) for width in attributes.padding]
    kept = [slice(None), slice(None)]
    for axis in range(rank):
        taps = range(value.shape[2 + axis])
        dilation, ahead = int(attributes.dilation[axis]), padding[axis]
        last_position = (after[2 + axis] - 1) * int(attributes.strides[axis])
        # A tap reads a range of pixels, from the kernel's first position (perhaps ahead of the image) to its last one.
        reaching = [
            tap
            for tap in taps
            if tap * dilation - ahead < before[2 + axis] and last_position + tap * dilation - ahead >= 0
        ]
        first, last = (reaching[0], reaching[-1]) if reaching else (0, taps[-1])
        ahead -= first * dilation
        behind = padding[rank + axis] - (taps[-1] - last) * dilation
        # With less padding the image would have to be cropped, which is rare and not done.
        if min(ahead, behind) < 0:
            first, last = 0, taps[-1]
        else:
            padding[axis], padding[rank + axis] = ahead, behind
        kept.append(slice(first, last + 1))
    cropped = np.ascontiguousarray(value[tuple(kept)])
    # Padding times NaN or infinity is not zero. Checked last, since hardly any network has kernels to crop.
    if cropped.shape == value.shape or not np.isfinite(value.astype(np.float64)).all():
        return call
    return builder.normalize(
        convolve(call, data, relax.const(cropped, str(weights.value.dtype)), padding=padding)
    )
