"""Operators that move elements about without computing: shapes, orders, joins, splits, choices by index."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from onnx import TensorProto

from tunefarm_convert.tflite.graph import bad_file, unsupported_form
from tunefarm_convert.tflite.step import Converter, Step
from tunefarm_convert.tflite.values import TO_FIRST

_LONGEST_RANGE = 1 << 20


def _reshape(step: Step) -> None:
    """Bring the first input into the shape that the file gives the output, whatever it says the shape comes from."""
    source, shape = step.index(0), step.out_shape()
    if math.prod(step.values.shape(source)) != math.prod(shape):
        raise bad_file(
            f"{step.operator.place}: {list(step.values.shape(source))} has another number of elements than "
            f"{list(shape)}"
        )
    raw = step.can_stay_raw([source], [step.output()])
    data = step.values.constant(source)
    if data is not None and raw and not step.tensor(0).is_quantized:
        step.values.set_constant(step.output(), data.reshape(shape))
        return
    step.finish(step.values.reshaped(source, shape, raw=raw), raw=raw)


def _transpose(step: Step) -> None:
    source = step.index(0)
    rank = len(step.shape(0))
    perm = [step.axis(a, rank) for a in step.ints(1, "the order of the dimensions")]
    if sorted(perm) != list(range(rank)):
        raise bad_file(f"{step.operator.place}: {perm} is no order of {rank} dimensions")
    raw = step.can_stay_raw([source], [step.output()])
    if rank != 4 or step.values.constant(source) is not None:
        step.finish(step.values.arranged(source, perm, raw=raw), raw=raw)
        return
    # Of the four pairs of forms, one may need no transpose at all.
    came_first = step.values.is_first_only(source)
    inner = [TO_FIRST.index(a) for a in perm] if came_first else perm
    as_first = [inner[i] for i in TO_FIRST]
    name = step.values.get(source, first=came_first, raw=raw)
    if as_first == [0, 1, 2, 3]:
        step.finish(name, first=True, raw=raw)
    elif inner == [0, 1, 2, 3]:
        step.finish(name, raw=raw)
    else:
        step.finish(step.node("Transpose", name, perm=inner), raw=raw)


def _concatenation(step: Step) -> None:
    indexes = step.inputs()
    rank = len(step.out_shape())
    axis = step.axis(int(step.option("Axis")), rank)
    fused = step.option("FusedActivationFunction")
    raw = not fused and step.can_stay_raw(indexes, [step.output()])
    first = rank == 4 and step.prefers_first(*indexes)
    names = [step.values.get(i, first=first, raw=raw) for i in indexes]
    made = step.node("Concat", *names, axis=TO_FIRST.index(axis) if first else axis)
    step.finish(step.activated(made), first=first, raw=raw)


def _split(step: Step) -> None:
    source, at = (1, 0) if step.operator.kind == "SPLIT" else (0, 2)
    shape, count = step.shape(source), len(step.operator.outputs)
    axis = step.axis(step.ints(at, "the dimension")[0], len(shape))
    if step.operator.kind == "SPLIT":
        if not count or shape[axis] % count:
            raise bad_file(
                f"{step.operator.place}: {shape[axis]} elements cannot be split into {count} parts"
            )
        sizes = [shape[axis] // count] * count
    else:
        sizes = step.ints(1, "the list of sizes")
        if sizes.count(-1) == 1:
            sizes[sizes.index(-1)] = shape[axis] - sum(sizes) - 1
        if len(sizes) != count or sum(sizes) != shape[axis] or min(sizes) < 0:
            raise bad_file(f"{step.operator.place}: {shape[axis]} elements cannot be split into {sizes}")
    index = step.index(source)
    raw = step.can_stay_raw([index], step.operator.outputs)
    first = step.prefers_first(index)
    name = step.values.get(index, first=first, raw=raw)
    parts = step.writer.nodes(
        "Split",
        [name, step.writer.ints(sizes)],
        [f"{step.writer.place}_{i}" for i in range(count)],
        axis=TO_FIRST.index(axis) if first else axis,
    )
    for position, part in enumerate(parts):
        step.finish(part, first=first, raw=raw, position=position)


def _pack(step: Step) -> None:
    indexes, out = step.inputs(), step.out_shape()
    axis = step.axis(int(step.option("Axis")), len(out))
    known = [step.values.constant(i) for i in indexes]
    if all(one is not None for one in known) and not step.values.tensor(step.output()).is_quantized:
        step.values.set_constant(step.output(), np.stack([one for one in known if one is not None], axis))
        return
    raw = step.can_stay_raw(indexes, [step.output()])
    part = [1 if i == axis else size for i, size in enumerate(out)]
    names = [step.values.reshaped(i, part, raw=raw) for i in indexes]
    step.finish(step.node("Concat", *names, axis=axis), raw=raw)


def _unpack(step: Step) -> None:
    shape, count = step.shape(0), len(step.operator.outputs)
    axis = step.axis(int(step.option("Axis")), len(shape))
    if shape[axis] != count:
        raise bad_file(f"{step.operator.place}: {shape[axis]} elements cannot be unpacked to {count} tensors")
    raw = step.can_stay_raw([step.index(0)], step.operator.outputs)
    parts = step.writer.nodes(
        "Split",
        [step.values.get(step.index(0), raw=raw), step.writer.ints([1] * count)],
        [f"{step.writer.place}_{i}" for i in range(count)],
        axis=axis,
    )
    for position, part in enumerate(parts):
        made = step.node("Reshape", part, step.writer.ints([*shape[:axis], *shape[axis + 1 :]]))
        step.finish(made, raw=raw, position=position)


def _tile(step: Step) -> None:
    raw = step.can_stay_raw([step.index(0)], [step.output()])
    times = step.writer.ints(step.ints(1, "how often to repeat"))
    step.finish(step.node("Tile", step.values.get(step.index(0), raw=raw), times), raw=raw)


def _expand(step: Step) -> None:
    at = 1 if step.operator.kind == "FILL" else 0
    raw = step.can_stay_raw([step.index(at)], [step.output()])
    shape = step.writer.ints(step.out_shape())
    step.finish(step.node("Expand", step.values.get(step.index(at), raw=raw), shape), raw=raw)


def _gather(step: Step) -> None:
    if step.option("BatchDims"):
        raise unsupported_form(step.operator, "batch dimensions are not supported")
    embedding = step.operator.kind == "EMBEDDING_LOOKUP"
    table, indices = (1, 0) if embedding else (0, 1)
    axis = 0 if embedding else step.axis(int(step.option("Axis")), len(step.shape(table)))
    raw = step.can_stay_raw([step.index(table)], [step.output()])
    names = [step.values.get(step.index(table), raw=raw), step.values.get(step.index(indices))]
    step.finish(step.node("Gather", *names, axis=axis), raw=raw)


def _gather_nd(step: Step) -> None:
    raw = step.can_stay_raw([step.index(0)], [step.output()])
    indices = step.node("Cast", step.values.get(step.index(1)), to=TensorProto.INT64)
    step.finish(step.node("GatherND", step.values.get(step.index(0), raw=raw), indices), raw=raw)


def _blocks(operator: str) -> Converter:
    def convert(step: Step) -> None:
        shape = step.need_rank(0, 4)
        size = int(step.option("BlockSize"))
        fits = size > 0 and (operator == "DepthToSpace" or all(shape[i] % size == 0 for i in (1, 2)))
        if not fits:
            raise bad_file(f"{step.operator.place}: blocks of {size} do not fit an image of {list(shape)}")
        raw = step.can_stay_raw([step.index(0)], [step.output()])
        x = step.values.get(step.index(0), first=True, raw=raw)
        step.finish(step.node(operator, x, blocksize=size), first=True, raw=raw)

    return convert


def _shape(step: Step) -> None:
    dtype = step.values.tensor(step.output()).dtype
    shape = step.shape(0)
    step.values.set_constant(
        step.output(), np.array(shape if step.operator.kind == "SHAPE" else len(shape), dtype)
    )


def _range(step: Step) -> None:
    start, limit, delta = (step.constant(i, "an end of the range").reshape(()) for i in range(3))
    (count,) = step.out_shape()
    if delta == 0 or count > _LONGEST_RANGE or max(0, math.ceil((limit - start) / delta)) != count:
        raise bad_file(f"{step.operator.place}: it does not make the {count} elements that the file says")
    dtype = step.values.tensor(step.output()).dtype
    step.values.set_constant(step.output(), (start + np.arange(count) * delta).astype(dtype))


def _one_hot(step: Step) -> None:
    depth = step.writer.ints(step.ints(1, "the depth"))
    on, off = (step.values.reshaped(step.index(i), [1]) for i in (2, 3))
    axis = int(step.option("Axis", -1))
    indices = step.node("Cast", step.values.get(step.index(0)), to=TensorProto.INT64)
    made = step.node("OneHot", indices, depth, step.node("Concat", off, on, axis=0), axis=axis)
    step.finish(made)


CONVERTERS: Mapping[str, Converter] = {
    "RESHAPE": _reshape,
    "SQUEEZE": _reshape,
    "EXPAND_DIMS": _reshape,
    "TRANSPOSE": _transpose,
    "CONCATENATION": _concatenation,
    "SPLIT": _split,
    "SPLIT_V": _split,
    "PACK": _pack,
    "UNPACK": _unpack,
    "TILE": _tile,
    "BROADCAST_TO": _expand,
    "FILL": _expand,
    "GATHER": _gather,
    "GATHER_ND": _gather_nd,
    "EMBEDDING_LOOKUP": _gather,
    "SPACE_TO_DEPTH": _blocks("SpaceToDepth"),
    "DEPTH_TO_SPACE": _blocks("DepthToSpace"),
    "SHAPE": _shape,
    "RANK": _shape,
    "RANGE": _range,
    "ONE_HOT": _one_hot,
}
