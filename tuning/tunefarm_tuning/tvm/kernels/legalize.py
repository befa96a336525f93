"""Kernels of single operators that replace TVM's: extrema that keep a NaN, and linear resizing.

``max(x, 0)`` is 0 for a NaN, ``max(0, x)`` is the NaN (the second argument goes through) at the same cost. TVM's index of a
maximum begins at -1, and stays there where no element is above the least finite number, or the least integer.

TVM's linear resizing computes four corners and their positions for each element; here one axis is resized after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tvm
from tvm import relax, te, tirx, topi
from tvm.sym import Analyzer
from tvm.topi.image.resize import get_inx

from tunefarm_tuning.tvm.base.relax_graph import static_shape
from tunefarm_tuning.tvm.base.tir import OPAQUE

Legalize = Callable[[Any, Any], Any]
Binary = Callable[[Any, Any], Any]


def _elementwise(function: Callable[[Any], Any], name: str) -> Legalize:
    def kernel(x: Any) -> Any:
        return te.compute(x.shape, lambda *i: function(x[i]), name="compute", tag="elemwise")

    return lambda builder, call: builder.call_te(kernel, call.args[0], primfunc_name_hint=name)


def _sign(value: Any) -> Any:
    # a value that is neither above nor below is a zero or NaN
    below = tirx.Select(value < _like(value, 0), _like(value, -1), value)
    return tirx.Select(value > _like(value, 0), _like(value, 1), below)


def _of_two(tvms: Binary, name: str) -> Legalize:
    """Return the legalisation of a maximum or minimum of two tensors."""

    def either(a: Any, b: Any) -> Any:
        return topi.where(topi.isnan(a), a, tvms(a, b))

    def legalize(builder: Any, call: Any) -> Any:
        first, second = call.args
        if _has_no_nan(second):
            first, second = second, first
        kernel = tvms if _has_no_nan(first) else either
        if kernel is tvms:
            first = _scalar(first)
        return builder.call_te(kernel, first, second, primfunc_name_hint=name)

    return legalize


def _index(tvms: Callable[..., Any], name: str) -> Legalize:
    """Return the legalisation of an index of an extremum; 0 if no element is beyond TVM's start value."""

    def kernel(x: Any, axis: Any, keepdims: bool) -> Any:
        index = tvms(x, axis, keepdims)
        return topi.maximum(index, tirx.const(0, index.dtype))

    return lambda builder, call: builder.call_te(
        kernel, call.args[0], call.attrs.axis, bool(call.attrs.keepdims), primfunc_name_hint=name
    )


def _has_no_nan(x: Any) -> bool:
    if not str(x.ty.dtype.dtype).startswith("float"):
        return True
    return isinstance(x, tvm.ir.GenericConst) and not np.isnan(x.value.numpy()).any()


def _scalar(x: Any) -> Any:
    """Return a constant without dimensions as a number in the kernel."""
    if isinstance(x, tvm.ir.GenericConst) and x.ty.ndim == 0:
        return tirx.const(x.value.numpy().item(), str(x.ty.dtype.dtype))
    return x


def _like(value: Any, number: float) -> Any:
    return tirx.const(number, str(value.expr_ty().dtype))


_RESIZE, _RESHAPE, _SIZES = "relax.image.resize2d", "relax.reshape", "relax.shape_to_tensor"
_AXES = {"NHWC": (1, 2), "NCHW": (3, 2)}
"""The axes in the order in which they are resized. With channels first the width goes first: rows are then interpolated whole, in
vectors, and the positions between columns are not computed again for each row."""
_COORDINATES = frozenset({"half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"})


_REPEATING = {"asymmetric": ("floor", ""), "half_pixel": ("round",), "pytorch_half_pixel": ("round",)}
"""By coordinates, how the names of those roundings begin with which nearest resizing by a whole number repeats each element."""
_FACTORS = (1, 2, 3, 4, 5, 6, 8, 16, 32)


def _resize(builder: Any, call: Any) -> Any:
    """Make the kernels of a ``resize2d``: our own for linear resizing of float32 and for repeated elements, else TVM's."""
    attributes = call.attrs
    x, mode = call.args[0], str(attributes.coordinate_transformation_mode)
    axes = _AXES.get(str(attributes.layout))
    if axes is not None and (factors := _repeated(call, axes)) is not None:
        return builder.call_te(_repeat(factors), x, primfunc_name_hint="resize2d")
    fits = (
        str(attributes.method) == "linear"
        and mode in _COORDINATES
        and axes is not None
        and str(x.ty.dtype.dtype) == str(call.ty.dtype.dtype) == "float32"
        and all(isinstance(size, tirx.IntImm) for tensor in (x, call) for size in tensor.ty.shape)
    )
    if not fits or axes is None:
        return tvm.ir.Op.get(_RESIZE).get_attr("FLegalize")(builder, call)
    # Two calls, each of which fuses with its neighbours; a kernel of two steps would fuse with nothing.
    first, second = (_along(axis, int(call.ty.shape[axis]), mode) for axis in axes)
    x = builder.emit(builder.call_te(first, x, primfunc_name_hint="resize2d"))
    return builder.call_te(second, x, primfunc_name_hint="resize2d")


def _repeated(call: Any, axes: tuple[int, int]) -> dict[int, int] | None:
    """Return how often elements along each axis are repeated, if nearest resizing does nothing else."""
    x, attributes = call.args[0], call.attrs
    roundings = _REPEATING.get(str(attributes.coordinate_transformation_mode), ())
    rounding = str(attributes.rounding_method)
    is_known = any(rounding == known or (known and rounding.startswith(known)) for known in roundings)
    is_cast = str(x.ty.dtype.dtype) != str(call.ty.dtype.dtype)
    if str(attributes.method) != "nearest_neighbor" or not is_known or is_cast:
        return None
    analyzer = Analyzer()
    factors = {}
    for axis in axes:
        before, after = x.ty.shape[axis], call.ty.shape[axis]
        fitting = [factor for factor in _FACTORS if analyzer.can_prove_equal(before * factor, after)]
        if not fitting:
            return None
        factors[axis] = fitting[0]
    return factors


def _repeat(factors: Mapping[int, int]) -> Callable[[Any], Any]:
    """Return the kernel that repeats elements along some axes. A whole division needs no floats, and is read in vectors."""

    def kernel(x: Any) -> Any:
        def element(*indices: Any) -> Any:
            return x(*(tirx.indexdiv(index, factors.get(axis, 1)) for axis, index in enumerate(indices)))

        shape = [size * factors.get(axis, 1) for axis, size in enumerate(x.shape)]
        return te.compute(shape, element, name="resize", tag="injective")

    return kernel


def _along(axis: int, after: int, mode: str) -> Callable[[Any], Any]:
    """Return the kernel that resizes one axis."""

    def kernel(x: Any) -> Any:
        before = x.shape[axis]
        last = before - 1

        def element(*indices: Any) -> Any:
            position = get_inx(indices[axis], before, tirx.IntImm("int64", after), mode)
            first = te.floor(position).astype("int32")
            share = position - first

            def at(index: Any) -> Any:
                inside = te.max(te.min(index, last), 0)
                return x(*indices[:axis], inside, *indices[axis + 1 :])

            return at(first) * (1.0 - share) + at(first + 1) * share

        shape = [*x.shape[:axis], after, *x.shape[axis + 1 :]]
        return te.compute(shape, element, name="resize", tag="injective")

    return kernel


def _reshape(builder: Any, call: Any) -> Any:
    """Leave a reshape to sizes that are known only at run time to the virtual machine, which makes a view.

    As a kernel it divides by those sizes for each element, and TVM compiles nested divisions by them for minutes.
    """
    if static_shape(call) is None:
        return call
    return tvm.ir.Op.get(_RESHAPE).get_attr("FLegalize")(builder, call)


def _sizes(builder: Any, call: Any) -> Any:
    """Make the kernel of a tensor of sizes, which fuses with nothing; a constant if all are known.

    It takes sizes as numbers. Fused with a kernel that has the same size in its shapes, it would take that twice, which TVM's
    ``FuseTIR`` refuses (``RenewDefs``).
    """
    sizes = call.args[0].ty.values
    if sizes is None:  # even their number is unknown
        return call
    open_sizes = [size for size in sizes if not isinstance(size, tirx.IntImm)]
    if not open_sizes:  # a kernel that chooses among a thousand takes TVM minutes
        return relax.const(np.array([int(size) for size in sizes], np.int64), "int64")

    def kernel(*given: Any) -> Any:
        left = list(given)
        numbers = [size if isinstance(size, tirx.IntImm) else left.pop(0) for size in sizes]

        def element(index: Any) -> Any:
            chosen = tirx.const(0, "int64")
            for position in reversed(range(len(numbers))):
                chosen = tirx.if_then_else(index == position, tirx.Cast("int64", numbers[position]), chosen)
            return chosen

        return te.compute((len(numbers),), element, name="sizes")

    return builder.call_te(
        kernel, *open_sizes, primfunc_name_hint="sizes", primfunc_attrs={"op_pattern": OPAQUE}
    )


KERNELS: Mapping[str, Legalize] = {
    _SIZES: _sizes,
    "relax.argmax": _index(topi.argmax, "argmax"),
    "relax.argmin": _index(topi.argmin, "argmin"),
    "relax.maximum": _of_two(topi.maximum, "maximum"),
    "relax.minimum": _of_two(topi.minimum, "minimum"),
    "relax.nn.relu": _elementwise(lambda value: tirx.max(_like(value, 0), value), "relu"),
    "relax.sign": _elementwise(_sign, "tir_sign"),
}
"""Legalisations of operators by name, on all devices."""
CPU_KERNELS: Mapping[str, Legalize] = {_RESIZE: _resize, _RESHAPE: _reshape}
"""Legalisations for CPUs alone."""
