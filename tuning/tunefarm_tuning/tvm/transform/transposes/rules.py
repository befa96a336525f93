"""Rules of transpose propagation: compute an operator from the sources of its transposed operands.

A rule takes a call and, for each tensor that it reads, the source and the order of the transpose that makes it. It returns the
result in the same form: a new source, and the order in which that is transposed. It returns None if it does not know how, or
where nothing is gained.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx

from tunefarm_tuning.tvm.base.relax_graph import operator_name, static_shape
from tunefarm_tuning.tvm.transform.horizontal_fusion.branches import ELEMENTWISE

Emit = Callable[[Any], Any]

_ELEMENTWISE = ELEMENTWISE | {
    f"relax.{name}"
    for name in (
        *("astype", "ceil", "cos", "equal", "floor", "floor_divide", "floor_mod", "greater", "greater_equal"),
        *(
            "isfinite",
            "isinf",
            "isnan",
            "less",
            "less_equal",
            "log",
            "logical_and",
            "logical_not",
            "logical_or",
        ),
        *("mod", "not_equal", "power", "round", "sign", "sin", "square", "trunc", "where"),
    )
}

CHANNELS_LAST = (0, 3, 1, 2)
"""The order that transposes images from channels last to channels first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transposed:
    """A tensor as ``permute_dims(source, order)``; `source` is a tuple for several results with the same transpose."""

    source: Any
    order: tuple[int, ...]

    def axis(self, axis: int) -> int:
        """Return the source's axis for an axis of the tensor."""
        return self.order[axis % len(self.order)]

    @property
    def inverse(self) -> tuple[int, ...]:
        """The order that transposes the tensor back to its source."""
        return tuple(int(axis) for axis in np.argsort(self.order))


Rule = Callable[[Any, Sequence[Transposed | None], Emit], Transposed | None]


def rule_of(call: Any) -> Rule | None:
    """Return the rule for a call; None if there is none."""
    name = operator_name(call)
    return _elementwise if name in _ELEMENTWISE else _RULES.get(name)


def _with_arguments(call: Any, *args: Any) -> Any:
    """Return a call with its first arguments replaced."""
    return relax.Call(call.op, [*args, *call.args[len(args) :]], call.attrs)


def _elementwise(call: Any, operands: Sequence[Transposed | None], emit: Emit) -> Transposed | None:
    rank = len(static_shape(call) or ())
    first = next(
        (operand for operand in operands if operand is not None and len(operand.order) == rank), None
    )
    if first is None:
        return None
    args = [
        argument
        if isinstance(argument, tirx.IntImm | tirx.FloatImm)
        else _like(argument, operand, first, emit)
        for argument, operand in zip(call.args, operands, strict=True)
    ]
    if any(argument is None for argument in args):
        return None
    return Transposed(source=emit(_with_arguments(call, *args)), order=first.order)


def _like(argument: Any, operand: Transposed | None, first: Transposed, emit: Emit) -> Any:
    """Return an argument in the axis order of the first operand's source; None if its shape is unknown."""
    if operand is not None and operand.order == first.order:
        return operand.source
    shape = static_shape(argument)
    if shape is None:
        return None
    if not shape:
        return argument
    missing = len(first.order) - len(shape)
    if operand is not None and not missing:
        return emit(relax.op.permute_dims(operand.source, [operand.order[axis] for axis in first.inverse]))
    if isinstance(argument, tvm.ir.GenericConst):
        value = argument.value.numpy()
        value = value.reshape((1,) * missing + value.shape).transpose(first.inverse)
        return relax.const(np.ascontiguousarray(value), str(value.dtype))
    if missing:
        argument = emit(relax.op.reshape(argument, [1] * missing + list(shape)))
    return emit(relax.op.permute_dims(argument, list(first.inverse)))


def _concat(call: Any, operands: Sequence[Transposed | None], emit: Emit) -> Transposed | None:
    first = next((operand for operand in operands if operand is not None), None)
    if first is None or not isinstance(call.args[0], relax.Tuple) or call.attrs.axis is None:
        return None
    parts = [_like(part, operand, first, emit) for part, operand in zip(call.args[0], operands, strict=True)]
    if any(part is None for part in parts):
        return None
    joined = relax.op.concat(parts, axis=first.axis(int(call.attrs.axis)))
    return Transposed(source=emit(joined), order=first.order)


def _split(call: Any, operands: Sequence[Transposed | None], emit: Emit) -> Transposed | None:
    (first,) = operands
    assert first is not None
    indices_or_sections = call.attrs.indices_or_sections
    sections = (
        int(indices_or_sections)
        if isinstance(indices_or_sections, int | tirx.IntImm)
        else [int(index) for index in indices_or_sections]
    )
    parts = relax.op.split(first.source, sections, axis=first.axis(int(call.attrs.axis)))
    return Transposed(source=emit(parts), order=first.order)


def _strided_slice(call: Any, operands: Sequence[Transposed | None], emit: Emit) -> Transposed | None:
    first = operands[0]
    if first is None or not isinstance(call.args[1], relax.Tuple):
        return None
    axes = relax.Tuple(
        [relax.prim_value(first.axis(int(getattr(axis, "value", axis)))) for axis in call.args[1]]
    )
    return Transposed(source=emit(_with_arguments(call, first.source, axes)), order=first.order)


def _pad(call: Any, operands: Sequence[Transposed | None], emit: Emit) -> Transposed | None:
    (first,) = operands
    assert first is not None
    pad_width = [int(width) for width in call.attrs.pad_width]
    widths = [width for axis in first.inverse for width in pad_width[2 * axis : 2 * axis + 2]]
    padded = relax.op.nn.pad(first.source, widths, str(call.attrs.pad_mode), float(call.attrs.pad_value))
    return Transposed(source=emit(padded), order=first.order)


def _pool(make: Callable[..., Any]) -> Rule:
    def rule(call: Any, operands: Sequence[Transposed | None], emit: Emit) -> Transposed | None:
        (first,) = operands
        attributes = call.attrs
        assert first is not None
        layouts = (str(attributes.layout), str(attributes.out_layout))
        if first.order != CHANNELS_LAST or layouts not in (("NCHW", "NCHW"), ("NCHW", "")):
            return None
        pooled = make(
            first.source,
            [int(size) for size in attributes.pool_size],
            [int(stride) for stride in attributes.strides],
            padding=[int(width) for width in attributes.padding],
            dilation=[int(dilation) for dilation in attributes.dilation],
            ceil_mode=bool(attributes.ceil_mode),
            count_include_pad=bool(attributes.count_include_pad),
            layout="NHWC",
        )
        return Transposed(source=emit(pooled), order=first.order)

    return rule


def _resize(call: Any, operands: Sequence[Transposed | None], emit: Emit) -> Transposed | None:
    first = operands[0]
    if first is None or first.order != CHANNELS_LAST or str(call.attrs.layout) != "NCHW":
        return None
    return Transposed(source=emit(resized(call, first.source, "NHWC")), order=first.order)


def resized(like: Any, image: Any, layout: str) -> Any:
    """Return the `resize2d` of an image in a layout, with the other attributes of a given one."""
    attributes = like.attrs
    return relax.op.image.resize2d(
        image,
        like.args[1],
        roi=tuple(float(end) for end in attributes.roi),
        layout=layout,
        method=str(attributes.method),
        coordinate_transformation_mode=str(attributes.coordinate_transformation_mode),
        rounding_method=str(attributes.rounding_method),
        cubic_alpha=float(attributes.cubic_alpha),
        cubic_exclude=int(attributes.cubic_exclude),
        extrapolation_value=float(attributes.extrapolation_value),
        out_dtype=attributes.out_dtype,
    )


def _reduction(make: Callable[..., Any]) -> Rule:
    def rule(call: Any, operands: Sequence[Transposed | None], emit: Emit) -> Transposed | None:
        (first,) = operands
        assert first is not None
        if call.attrs.axis is None and not call.attrs.keepdims:
            return Transposed(source=emit(make(first.source)), order=())
        if call.attrs.axis is None or not call.attrs.keepdims:
            return None
        axes = [first.axis(int(axis)) for axis in call.attrs.axis]
        return Transposed(source=emit(make(first.source, axes, keepdims=True)), order=first.order)

    return rule


def _prelu(call: Any, operands: Sequence[Transposed | None], emit: Emit) -> Transposed | None:
    first, slopes = operands
    if first is None or slopes is not None:
        return None
    axis = first.axis(int(call.attrs.axis))
    return Transposed(source=emit(relax.op.nn.prelu(first.source, call.args[1], axis)), order=first.order)


def _softmax(call: Any, operands: Sequence[Transposed | None], emit: Emit) -> Transposed | None:
    (first,) = operands
    assert first is not None
    axis = first.axis(int(call.attrs.axis))
    return Transposed(source=emit(relax.op.nn.softmax(first.source, axis)), order=first.order)


def _reshape(call: Any, operands: Sequence[Transposed | None], emit: Emit) -> Transposed | None:
    first = operands[0]
    before, after = static_shape(call.args[0]), static_shape(call)
    if first is None or before is None or after is None:
        return None
    groups = axis_groups(before, after)
    if groups is None:
        return None

    def position(group: AxisGroup) -> int:
        # Axes that are merged must be adjacent: they are moved to the innermost of them.
        long_axes = [axis for axis in group.before if before[axis] > 1] or group.before
        return first.order[long_axes[-1]] if long_axes else -1

    ordered = sorted(groups, key=position)
    result = [axis for group in ordered for axis in group.after]
    if result == list(range(len(after))):
        return None  # the transpose cannot move below the reshape
    wanted = [first.order[axis] for group in ordered for axis in group.before]
    source = first.source
    if wanted != sorted(wanted):
        source = emit(relax.op.permute_dims(source, wanted))
    reshaped = emit(relax.op.reshape(source, [after[axis] for axis in result]))
    return Transposed(source=reshaped, order=tuple(result.index(axis) for axis in range(len(after))))


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisGroup:
    """Neighbouring axes that hold as many elements before a reshape as after it; an axis of size 1 may be alone."""

    before: tuple[int, ...]
    after: tuple[int, ...]


def axis_groups(before: Sequence[int], after: Sequence[int]) -> list[AxisGroup] | None:
    """Return the mapping of axes in a reshape: the smallest groups, in order; None for a tensor without elements."""
    if 0 in (*before, *after):
        return None
    groups = []
    i = j = 0
    while i < len(before) or j < len(after):
        if i < len(before) and j < len(after) and before[i] == after[j]:
            groups.append(AxisGroup(before=(i,), after=(j,)))
            i, j = i + 1, j + 1
        elif i < len(before) and before[i] == 1:
            groups.append(AxisGroup(before=(i,), after=()))
            i += 1
        elif j < len(after) and after[j] == 1:
            groups.append(AxisGroup(before=(), after=(j,)))
            j += 1
        else:
            start, first = i, j
            left, right = before[i], after[j]
            i, j = i + 1, j + 1
            while left != right:
                if left < right:
                    left, i = left * before[i], i + 1
                else:
                    right, j = right * after[j], j + 1
            groups.append(AxisGroup(before=tuple(range(start, i)), after=tuple(range(first, j))))
    return groups


_RULES: dict[str, Rule] = {
    "relax.concat": _concat,
    "relax.expand_dims": _reshape,
    "relax.image.resize2d": _resize,
    "relax.max": _reduction(relax.op.max),
    "relax.mean": _reduction(relax.op.mean),
    "relax.min": _reduction(relax.op.min),
    "relax.nn.avg_pool2d": _pool(relax.op.nn.avg_pool2d),
    "relax.nn.max_pool2d": _pool(relax.op.nn.max_pool2d),
    "relax.nn.pad": _pad,
    "relax.nn.prelu": _prelu,
    "relax.nn.softmax": _softmax,
    "relax.reshape": _reshape,
    "relax.split": _split,
    "relax.squeeze": _reshape,
    "relax.strided_slice": _strided_slice,
    "relax.sum": _reduction(relax.op.sum),
}
