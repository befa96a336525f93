"""Slices, reversed dimensions and padding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tunefarm_convert.tflite.converter import Converter, OperatorContext
from tunefarm_convert.tflite.operators.resizing import LARGEST_SIDE
from tunefarm_convert.tflite.values import TO_FIRST


@dataclass(frozen=True, slots=True)
class Cut:
    """The part of one dimension to take: `count` elements from `start` on."""

    start: int
    step: int
    count: int


def cuts_of_slice(op: OperatorContext) -> list[Cut]:
    """Return the part of each dimension that `SLICE` takes."""
    shape = op.shape(0)
    begin, size = op.ints(1, "where the slice begins"), op.ints(2, "the slice's size")
    if len(begin) != len(shape) or len(size) != len(shape):
        raise op.bad_file(f"a slice of {len(begin)} dimensions of {list(shape)}")
    cuts = []
    for extent, start, count in zip(shape, begin, size, strict=True):
        count = extent - start if count == -1 else count
        if start < 0 or count < 0 or start + count > extent:
            raise op.bad_file(f"{begin} and {size} do not lie in {list(shape)}")
        cuts.append(Cut(start, 1, count))
    return cuts


def cuts_of_strided_slice(op: OperatorContext) -> tuple[list[Cut], list[int]]:
    """Return the part of each dimension that `STRIDED_SLICE` takes, and the shape of the result."""
    shape = op.shape(0)
    begin, end, strides = (op.ints(i, "where the slice lies") for i in (1, 2, 3))
    if not len(begin) == len(end) == len(strides):
        raise op.bad_file("its begin, end and strides are of different lengths")
    if op.option("Offset", False):
        end = [a + b for a, b in zip(begin, end, strict=True)]
    masks = {
        name: int(op.option(f"{name}Mask")) for name in ("Begin", "End", "Ellipsis", "NewAxis", "ShrinkAxis")
    }

    def has(name: str, position: int) -> bool:
        return bool(masks[name] >> position & 1)

    named = sum(not has("NewAxis", i) and not has("Ellipsis", i) for i in range(len(begin)))
    cuts: list[Cut] = []
    result: list[int] = []
    for i, (first, last, stride) in enumerate(zip(begin, end, strides, strict=True)):
        if has("Ellipsis", i):
            for extent in shape[len(cuts) : len(cuts) + max(0, len(shape) - named)]:
                cuts.append(Cut(0, 1, extent))
                result.append(extent)
            continue
        if has("NewAxis", i):
            result.append(1)
            continue
        if len(cuts) == len(shape) or stride == 0:
            raise op.bad_file(f"its begin, end and strides do not fit {list(shape)}")
        extent = shape[len(cuts)]
        if has("ShrinkAxis", i):
            if not -extent <= first < extent:
                raise op.bad_file(f"there is no element {first} of {extent}")
            cuts.append(Cut(first % extent, 1, 1))
            continue
        indices = range(
            *slice(None if has("Begin", i) else first, None if has("End", i) else last, stride).indices(
                extent
            )
        )
        cuts.append(Cut(indices.start, stride, len(indices)))
        result.append(len(indices))
    for extent in shape[len(cuts) :]:
        cuts.append(Cut(0, 1, extent))
        result.append(extent)
    return cuts, result


def _slice(op: OperatorContext) -> None:
    _cut(op, cuts_of_slice(op), None)


def _strided_slice(op: OperatorContext) -> None:
    _cut(op, *cuts_of_strided_slice(op))


def _cut(op: OperatorContext, cuts: list[Cut], result: list[int] | None) -> None:
    """Take a slice of the first input, and reshape it if a shape is given."""
    source, output = op.index(0), op.output()
    data = op.values.constant(source)
    shape = [cut.count for cut in cuts]
    result = shape if result is None else result
    if 0 in shape and not op.tensor(0).is_quantized:  # whatever the run computes
        op.values.set_constant(output, np.zeros(result, op.tensor(0).dtype))
        return
    if 0 in shape and data is None:
        raise op.bad_file(f"it takes nothing of {list(op.shape(0))}")
    if data is not None and not op.tensor(0).is_quantized:
        part = data[tuple(slice(c.start, _end(c), c.step) for c in cuts)]
        op.values.set_constant(output, part.reshape(result))
        return
    raw = op.can_stay_raw([source], [output])
    first = result == shape and op.prefers_first(source)
    name = op.values.get(source, first=first, raw=raw)
    if first:
        cuts = [cuts[i] for i in TO_FIRST]
    wholes = op.shape(0) if not first else [op.shape(0)[i] for i in TO_FIRST]
    axes = [i for i, c in enumerate(cuts) if c != Cut(0, 1, wholes[i])]
    chosen = [cuts[i] for i in axes]
    of_joined = None
    if len(axes) == 1 and chosen[0].step == 1:
        of_joined = op.writer.cut(name, axes[0], chosen[0].start, chosen[0].count)
    if of_joined is not None:
        name = of_joined
    elif axes:
        name = op.node(
            "Slice",
            name,
            op.writer.ints([c.start for c in chosen]),
            op.writer.ints([_bound(c) for c in chosen]),
            op.writer.ints(axes),
            op.writer.ints([c.step for c in chosen]),
        )
    if result != shape:
        name = op.node("Reshape", name, op.writer.ints(result))
    op.finish(name, first=first, raw=raw)


def _end(cut: Cut) -> int | None:
    end = cut.start + cut.step * cut.count
    return None if end < 0 else end


def _bound(cut: Cut) -> int:
    end = _end(cut)
    return -(1 << 31) if end is None else end


def _reverse(op: OperatorContext) -> None:
    shape = op.shape(0)
    axes = {op.axis(a, len(shape)) for a in op.ints(1, "the dimensions")}
    _cut(op, [Cut(n - 1, -1, n) if i in axes else Cut(0, 1, n) for i, n in enumerate(shape)], None)


def paddings(op: OperatorContext) -> list[tuple[int, int]]:
    """Return the elements that a padding adds before and after, by dimension."""
    rank = len(op.shape(0))
    flat = op.ints(1, "the padding")
    if len(flat) != 2 * rank or min(flat, default=0) < 0:
        raise op.bad_file(f"{flat[:16]} is not a padding of {rank} dimensions")
    return list(zip(flat[::2], flat[1::2], strict=True))


def _pad(op: OperatorContext) -> None:
    pads = paddings(op)
    source, output = op.index(0), op.output()
    value = op.values.constant(op.index(2)) if op.has(2) else np.zeros(())
    raw = op.can_stay_raw([source], [output])
    if op.has(2) and op.tensor(2).is_quantized:
        raw = False  # another operator may read the value in another way
    elif value is not None and not value.any() and raw and len(pads) == 4 and pads[0] == pads[3] == (0, 0):
        (top, bottom), (left, right) = pads[1], pads[2]
        op.values.note_padding(output, source, (top, left, bottom, right))
    first = op.prefers_first(source)
    name = op.values.get(source, first=first, raw=raw)
    ordered = [pads[i] for i in TO_FIRST] if first else pads
    tensor = op.tensor(0)
    if op.has(2):
        filler = op.values.reshaped(op.index(2), [])
        if raw and tensor.is_quantized:
            raise op.unsupported_form("the value of the padding has no scale")
    elif raw and tensor.is_quantized and tensor.quantization is not None:
        filler = op.writer.weight(tensor.quantization.zero.reshape(()).astype(tensor.dtype))
    else:
        filler = op.scalar(0, source)
    ends = op.writer.ints([before for before, _ in ordered] + [after for _, after in ordered])
    op.finish(op.node("Pad", name, ends, filler), first=first, raw=raw)


def _mirror_pad(op: OperatorContext) -> None:
    pads, shape = paddings(op), op.shape(0)
    raw = op.can_stay_raw([op.index(0)], [op.output()])
    first = op.prefers_first(op.index(0))
    name = op.values.get(op.index(0), first=first, raw=raw)
    mode: Literal["symmetric", "reflect"] = "symmetric" if op.option("Mode") else "reflect"
    for axis, (before, after) in enumerate(pads):
        if before or after:
            if shape[axis] > LARGEST_SIDE or max(before, after) > shape[axis] - (mode == "reflect"):
                raise op.bad_file(f"{shape[axis]} elements mirror no {max(before, after)}")
            rows = np.pad(np.arange(shape[axis]), (before, after), mode=mode)
            name = op.node(
                "Gather",
                name,
                op.writer.weight(rows.astype(np.int64)),
                axis=TO_FIRST.index(axis) if first else axis,
            )
    op.finish(name, first=first, raw=raw)


CONVERTERS: Mapping[str, Converter] = {
    "SLICE": _slice,
    "STRIDED_SLICE": _strided_slice,
    "REVERSE_V2": _reverse,
    "PAD": _pad,
    "PADV2": _pad,
    "MIRROR_PAD": _mirror_pad,
}
