"""Operators that cut a part out, or put something around: slices, reversed dimensions, padding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tunefarm_convert.tflite.graph import bad_file, unsupported_form
from tunefarm_convert.tflite.resizing import LARGEST_SIDE
from tunefarm_convert.tflite.step import Converter, Step
from tunefarm_convert.tflite.values import TO_FIRST


@dataclass(frozen=True, slots=True)
class _Cut:
    """What to take of one dimension: `count` elements from `start` on."""

    start: int
    step: int
    count: int


def _slice(step: Step) -> None:
    shape = step.shape(0)
    begin, size = step.ints(1, "where the slice begins"), step.ints(2, "the slice's size")
    if len(begin) != len(shape) or len(size) != len(shape):
        raise bad_file(f"{step.operator.place}: a slice of {len(begin)} dimensions of {list(shape)}")
    cuts = []
    for whole, start, count in zip(shape, begin, size, strict=True):
        count = whole - start if count == -1 else count
        if start < 0 or count < 0 or start + count > whole:
            raise bad_file(f"{step.operator.place}: {begin} and {size} do not lie in {list(shape)}")
        cuts.append(_Cut(start, 1, count))
    _cut(step, cuts, None)


def _strided_slice(step: Step) -> None:
    shape = step.shape(0)
    begin, end, strides = (step.ints(i, "where the slice lies") for i in (1, 2, 3))
    if not len(begin) == len(end) == len(strides):
        raise bad_file(f"{step.operator.place}: its begin, end and strides are of different lengths")
    if step.option("Offset", False):
        end = [a + b for a, b in zip(begin, end, strict=True)]
    masks = {
        name: int(step.option(f"{name}Mask"))
        for name in ("Begin", "End", "Ellipsis", "NewAxis", "ShrinkAxis")
    }

    def has(name: str, position: int) -> bool:
        return bool(masks[name] >> position & 1)

    named = sum(not has("NewAxis", i) and not has("Ellipsis", i) for i in range(len(begin)))
    cuts: list[_Cut] = []
    result: list[int] = []
    for i, (first, last, stride) in enumerate(zip(begin, end, strides, strict=True)):
        if has("Ellipsis", i):
            for whole in shape[len(cuts) : len(cuts) + max(0, len(shape) - named)]:
                cuts.append(_Cut(0, 1, whole))
                result.append(whole)
            continue
        if has("NewAxis", i):
            result.append(1)
            continue
        if len(cuts) == len(shape) or stride == 0:
            raise bad_file(f"{step.operator.place}: its begin, end and strides do not fit {list(shape)}")
        whole = shape[len(cuts)]
        if has("ShrinkAxis", i):
            if not -whole <= first < whole:
                raise bad_file(f"{step.operator.place}: there is no element {first} of {whole}")
            cuts.append(_Cut(first % whole, 1, 1))
            continue
        taken = range(
            *slice(None if has("Begin", i) else first, None if has("End", i) else last, stride).indices(whole)
        )
        cuts.append(_Cut(taken.start, stride, len(taken)))
        result.append(len(taken))
    for whole in shape[len(cuts) :]:
        cuts.append(_Cut(0, 1, whole))
        result.append(whole)
    _cut(step, cuts, result)


def _cut(step: Step, cuts: list[_Cut], result: list[int] | None) -> None:
    """Take a part of the first input, and bring it into another shape where one is given."""
    source, output = step.index(0), step.output()
    data = step.values.constant(source)
    shape = [cut.count for cut in cuts]
    result = shape if result is None else result
    if 0 in shape:
        raise bad_file(f"{step.operator.place}: it takes nothing of {list(step.shape(0))}")
    if data is not None and not step.tensor(0).is_quantized:
        part = data[tuple(slice(c.start, _end(c), c.step) for c in cuts)]
        step.values.set_constant(output, part.reshape(result))
        return
    raw = step.can_stay_raw([source], [output])
    first = result == shape and step.prefers_first(source)
    name = step.values.get(source, first=first, raw=raw)
    if first:
        cuts = [cuts[i] for i in TO_FIRST]
    wholes = step.shape(0) if not first else [step.shape(0)[i] for i in TO_FIRST]
    axes = [i for i, c in enumerate(cuts) if c != _Cut(0, 1, wholes[i])]
    if axes:
        chosen = [cuts[i] for i in axes]
        name = step.node(
            "Slice",
            name,
            step.writer.ints([c.start for c in chosen]),
            step.writer.ints([_bound(c) for c in chosen]),
            step.writer.ints(axes),
            step.writer.ints([c.step for c in chosen]),
        )
    if result != shape:
        name = step.node("Reshape", name, step.writer.ints(result))
    step.finish(name, first=first, raw=raw)


def _end(cut: _Cut) -> int | None:
    end = cut.start + cut.step * cut.count
    return None if end < 0 else end


def _bound(cut: _Cut) -> int:
    end = _end(cut)
    return -(1 << 31) if end is None else end


def _reverse(step: Step) -> None:
    shape = step.shape(0)
    axes = {step.axis(a, len(shape)) for a in step.ints(1, "the dimensions")}
    _cut(step, [_Cut(n - 1, -1, n) if i in axes else _Cut(0, 1, n) for i, n in enumerate(shape)], None)


def _paddings(step: Step) -> list[tuple[int, int]]:
    rank = len(step.shape(0))
    flat = step.ints(1, "the padding")
    if len(flat) != 2 * rank or min(flat, default=0) < 0:
        raise bad_file(f"{step.operator.place}: {flat[:16]} is no padding of {rank} dimensions")
    return list(zip(flat[::2], flat[1::2], strict=True))


def _pad(step: Step) -> None:
    pads = _paddings(step)
    source, output = step.index(0), step.output()
    value = step.values.constant(step.index(2)) if step.has(2) else np.zeros(())
    raw = step.can_stay_raw([source], [output])
    if step.has(2) and step.tensor(2).is_quantized:
        raw = False  # the value may be read otherwise
    elif value is not None and not value.any() and raw and len(pads) == 4 and pads[0] == pads[3] == (0, 0):
        (top, bottom), (left, right) = pads[1], pads[2]
        step.values.note_padding(output, source, (top, left, bottom, right))
    first = step.prefers_first(source)
    name = step.values.get(source, first=first, raw=raw)
    ordered = [pads[i] for i in TO_FIRST] if first else pads
    tensor = step.tensor(0)
    if step.has(2):
        filler = step.values.reshaped(step.index(2), [])
        if raw and tensor.is_quantized:
            raise unsupported_form(step.operator, "the value of the padding has no scale")
    elif raw and tensor.is_quantized and tensor.quantization is not None:
        filler = step.writer.weight(tensor.quantization.zero.reshape(()).astype(tensor.dtype))
    else:
        filler = step.scalar(0, source)
    ends = step.writer.ints([before for before, _ in ordered] + [after for _, after in ordered])
    step.finish(step.node("Pad", name, ends, filler), first=first, raw=raw)


def _mirror_pad(step: Step) -> None:
    pads, shape = _paddings(step), step.shape(0)
    raw = step.can_stay_raw([step.index(0)], [step.output()])
    first = step.prefers_first(step.index(0))
    name = step.values.get(step.index(0), first=first, raw=raw)
    mode: Literal["symmetric", "reflect"] = "symmetric" if step.option("Mode") else "reflect"
    for axis, (before, after) in enumerate(pads):
        if before or after:
            if shape[axis] > LARGEST_SIDE or max(before, after) > shape[axis] - (mode == "reflect"):
                raise bad_file(
                    f"{step.operator.place}: {shape[axis]} elements mirror no {max(before, after)}"
                )
            rows = np.pad(
                np.arange(shape[axis]),
                (before, after),
                mode=mode,
            )
            name = step.node(
                "Gather",
                name,
                step.writer.weight(rows.astype(np.int64)),
                axis=TO_FIRST.index(axis) if first else axis,
            )
    step.finish(name, first=first, raw=raw)


CONVERTERS: Mapping[str, Converter] = {
    "SLICE": _slice,
    "STRIDED_SLICE": _strided_slice,
    "REVERSE_V2": _reverse,
    "PAD": _pad,
    "PADV2": _pad,
    "MIRROR_PAD": _mirror_pad,
}
