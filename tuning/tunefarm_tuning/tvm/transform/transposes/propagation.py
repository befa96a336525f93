"""What operators become if they read a tensor before it was transposed, and how their result is transposed then.

A rule takes a call and, for each tensor that it reads, what that is a transpose of. It returns the new result before its own
transpose; None where it does not know, or where nothing is won.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx

from tunefarm_tuning.tvm.base.relax_graph import static_shape
from tunefarm_tuning.tvm.transform.combine_branches import ELEMENTWISE
from tunefarm_tuning.tvm.transform.transposes.reshape_groups import Group, groups_of

Emit = Callable[[Any], Any]

CHANNELS_LAST = (0, 3, 1, 2)
"""How images with channels last are transposed to have them first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """A tensor: ``permute_dims(source, order)``. Of several results that are transposed alike, `source` is their tuple."""

    source: Any
    order: tuple[int, ...]

    def axis(self, axis: int) -> int:
        """Return where an axis of the tensor is in its source."""
        return self.order[axis % len(self.order)]

    @property
    def back(self) -> tuple[int, ...]:
        """The order that makes its source of it."""
        return tuple(int(place) for place in np.argsort(self.order))


Rule = Callable[[Any, Sequence[Moved | None], Emit], Moved | None]


def rule_of(call: Any) -> Rule | None:
    """Return the rule for a call; None where there is none."""
    if not isinstance(call.op, tvm.ir.Op):
        return None
    name = str(call.op.name)
    return _elementwise if name in ELEMENTWISE else _RULES.get(name)


def _remade(call: Any, *args: Any) -> Any:
    """Return a call with other arguments in front."""
    return relax.Call(call.op, [*args, *call.args[len(args) :]], call.attrs)


def _elementwise(call: Any, moved: Sequence[Moved | None], emit: Emit) -> Moved | None:
    rank = len(static_shape(call) or ())
    first = next((one for one in moved if one is not None and len(one.order) == rank), None)
    if first is None:
        return None
    args = [
        argument if isinstance(argument, tirx.IntImm | tirx.FloatImm) else _like(argument, one, first, emit)
        for argument, one in zip(call.args, moved, strict=True)
    ]
    if any(one is None for one in args):
        return None
    return Moved(source=emit(_remade(call, *args)), order=first.order)


def _like(argument: Any, moved: Moved | None, first: Moved, emit: Emit) -> Any:
    """Return another operand as it stands beside the source of the first; None where its sizes are not known."""
    if moved is not None and moved.order == first.order:
        return moved.source
    shape = static_shape(argument)
    if shape is None:
        return None
    if not shape:
        return argument
    missing = len(first.order) - len(shape)
    if moved is not None and not missing:
        return emit(relax.op.permute_dims(moved.source, [moved.order[axis] for axis in first.back]))
    if isinstance(argument, tvm.ir.GenericConst):
        value = argument.value.numpy()
        value = value.reshape((1,) * missing + value.shape).transpose(first.back)
        return relax.const(np.ascontiguousarray(value), str(value.dtype))
    if missing:
        argument = emit(relax.op.reshape(argument, [1] * missing + list(shape)))
    return emit(relax.op.permute_dims(argument, list(first.back)))


def _concat(call: Any, moved: Sequence[Moved | None], emit: Emit) -> Moved | None:
    first = next((one for one in moved if one is not None), None)
    if first is None or not isinstance(call.args[0], relax.Tuple) or call.attrs.axis is None:
        return None
    parts = [_like(part, one, first, emit) for part, one in zip(call.args[0], moved, strict=True)]
    if any(part is None for part in parts):
        return None
    made = relax.op.concat(parts, axis=first.axis(int(call.attrs.axis)))
    return Moved(source=emit(made), order=first.order)


def _split(call: Any, moved: Sequence[Moved | None], emit: Emit) -> Moved | None:
    (first,) = moved
    assert first is not None
    given = call.attrs.indices_or_sections
    sections = int(given) if isinstance(given, int | tirx.IntImm) else [int(one) for one in given]
    made = relax.op.split(first.source, sections, axis=first.axis(int(call.attrs.axis)))
    return Moved(source=emit(made), order=first.order)


def _strided_slice(call: Any, moved: Sequence[Moved | None], emit: Emit) -> Moved | None:
    first = moved[0]
    if first is None or not isinstance(call.args[1], relax.Tuple):
        return None
    axes = relax.Tuple([relax.prim_value(first.axis(_number(axis))) for axis in call.args[1]])
    return Moved(source=emit(_remade(call, first.source, axes)), order=first.order)


def _pad(call: Any, moved: Sequence[Moved | None], emit: Emit) -> Moved | None:
    (first,) = moved
    assert first is not None
    given = [int(one) for one in call.attrs.pad_width]
    widths = [one for axis in first.back for one in given[2 * axis : 2 * axis + 2]]
    made = relax.op.nn.pad(first.source, widths, str(call.attrs.pad_mode), float(call.attrs.pad_value))
    return Moved(source=emit(made), order=first.order)


def _pool(make: Callable[..., Any]) -> Rule:
    def rule(call: Any, moved: Sequence[Moved | None], emit: Emit) -> Moved | None:
        (first,) = moved
        attributes = call.attrs
        assert first is not None
        layouts = (str(attributes.layout), str(attributes.out_layout))
        if first.order != CHANNELS_LAST or layouts not in (("NCHW", "NCHW"), ("NCHW", "")):
            return None
        made = make(
            first.source,
            *([int(one) for one in given] for given in (attributes.pool_size, attributes.strides)),
            padding=[int(one) for one in attributes.padding],
            dilation=[int(one) for one in attributes.dilation],
            ceil_mode=bool(attributes.ceil_mode),
            count_include_pad=bool(attributes.count_include_pad),
            layout="NHWC",
        )
        return Moved(source=emit(made), order=first.order)

    return rule


def _resize(call: Any, moved: Sequence[Moved | None], emit: Emit) -> Moved | None:
    first = moved[0]
    if first is None or first.order != CHANNELS_LAST or str(call.attrs.layout) != "NCHW":
        return None
    return Moved(source=emit(resized(call, first.source, "NHWC")), order=first.order)


def resized(like: Any, image: Any, layout: str) -> Any:
    """Return a `resize2d` as another one, of an image in this layout."""
    attributes = like.attrs
    return relax.op.image.resize2d(
        image,
        like.args[1],
        roi=tuple(float(one) for one in attributes.roi),
        layout=layout,
        method=str(attributes.method),
        coordinate_transformation_mode=str(attributes.coordinate_transformation_mode),
        rounding_method=str(attributes.rounding_method),
        cubic_alpha=float(attributes.cubic_alpha),
        cubic_exclude=int(attributes.cubic_exclude),
        extrapolation_value=float(attributes.extrapolation_value),
        out_dtype=attributes.out_dtype,
    )


def _mean(call: Any, moved: Sequence[Moved | None], emit: Emit) -> Moved | None:
    (first,) = moved
    assert first is not None
    if call.attrs.axis is None or not call.attrs.keepdims:
        return None
    axes = [first.axis(int(axis)) for axis in call.attrs.axis]
    return Moved(source=emit(relax.op.mean(first.source, axes, keepdims=True)), order=first.order)


def _reshape(call: Any, moved: Sequence[Moved | None], emit: Emit) -> Moved | None:
    first = moved[0]
    before, after = static_shape(call.args[0]), static_shape(call)
    if first is None or before is None or after is None:
        return None
    groups = groups_of(before, after)
    if groups is None:
        return None

    def place(group: Group) -> int:
        # What is to be one axis has to lie together: where its innermost part is.
        long = [one for one in group.before if before[one] > 1] or group.before
        return first.order[long[-1]] if long else -1

    ordered = sorted(groups, key=place)
    result = [one for group in ordered for one in group.after]
    if result == list(range(len(after))):
        return None  # all of the transpose is needed before the reshape
    wanted = [first.order[one] for group in ordered for one in group.before]
    source = first.source
    if wanted != sorted(wanted):
        source = emit(relax.op.permute_dims(source, wanted))
    made = emit(relax.op.reshape(source, [after[one] for one in result]))
    return Moved(source=made, order=tuple(result.index(axis) for axis in range(len(after))))


def _number(value: Any) -> int:
    return int(getattr(value, "value", value))


_RULES: dict[str, Rule] = {
    "relax.concat": _concat,
    "relax.expand_dims": _reshape,
    "relax.image.resize2d": _resize,
    "relax.mean": _mean,
    "relax.nn.avg_pool2d": _pool(relax.op.nn.avg_pool2d),
    "relax.nn.max_pool2d": _pool(relax.op.nn.max_pool2d),
    "relax.nn.pad": _pad,
    "relax.reshape": _reshape,
    "relax.split": _split,
    "relax.squeeze": _reshape,
    "relax.strided_slice": _strided_slice,
}
