"""Kernels of linear resizing: one axis after the other. TVM's own computes four corners, and where they are, for each element."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tvm
from tvm import te, tirx
from tvm.topi.image.resize import get_inx

_RESIZE = "relax.image.resize2d"
_AXES = {"NHWC": (1, 2), "NCHW": (3, 2)}
"""In which order. With channels first, rows are whole when they are weighed: neighbours of a row are in vectors, and the few places
between columns are not asked for again in each row."""
_COORDINATES = frozenset({"half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"})


def legalize_resize(builder: Any, call: Any) -> Any:
    """Make kernels of a ``resize2d``: of a linear one of float32 those of here, of others TVM's."""
    attributes = call.attrs
    x, mode = call.args[0], str(attributes.coordinate_transformation_mode)
    axes = _AXES.get(str(attributes.layout))
    fits = (
        str(attributes.method) == "linear"
        and mode in _COORDINATES
        and axes is not None
        and str(x.ty.dtype.dtype) == str(call.ty.dtype.dtype) == "float32"
        and all(isinstance(size, tirx.IntImm) for one in (x, call) for size in one.ty.shape)
    )
    if not fits or axes is None:
        return tvm.ir.Op.get(_RESIZE).get_attr("FLegalize")(builder, call)
    # Two calls, which fuse like any two: a kernel of two steps would fuse with nothing.
    first, second = (_along(axis, int(call.ty.shape[axis]), mode) for axis in axes)
    x = builder.emit(builder.call_te(first, x, primfunc_name_hint="resize2d"))
    return builder.call_te(second, x, primfunc_name_hint="resize2d")


def _along(axis: int, after: int, mode: str) -> Callable[[Any], Any]:
    """Return the kernel that resizes one axis."""

    def kernel(x: Any) -> Any:
        before = x.shape[axis]
        last = before - 1

        def element(*indices: Any) -> Any:
            place = get_inx(indices[axis], before, tirx.IntImm("int64", after), mode)
            first = te.floor(place).astype("int32")
            share = place - first

            def at(number: Any) -> Any:
                inside = te.max(te.min(number, last), 0)
                return x(*indices[:axis], inside, *indices[axis + 1 :])

            return at(first) * (1.0 - share) + at(first + 1) * share

        shape = [*x.shape[:axis], after, *x.shape[axis + 1 :]]
        return te.compute(shape, element, name="resize", tag="injective")

    return kernel


KERNELS: Mapping[str, Callable[[Any, Any], Any]] = {_RESIZE: legalize_resize}
"""For a CPU."""
