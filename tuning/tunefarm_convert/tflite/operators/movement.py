"""Operators that move elements without arithmetic: reshapes, transposes, concatenation, splits, gathers."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from onnx import TensorProto

from tunefarm_convert.tflite.converter import Converter, OperatorContext
from tunefarm_convert.tflite.values import TO_FIRST

_LONGEST_RANGE = 1 << 20


def _reshape(op: OperatorContext) -> None:
    """Reshape the first input to the output's shape in the file; other sources of the shape are ignored."""
    source, shape = op.index(0), op.out_shape()
    if math.prod(op.values.shape(source)) != math.prod(shape):
        raise op.bad_file(
            f"{list(op.values.shape(source))} has another number of elements than {list(shape)}"
        )
    raw = op.can_stay_raw([source], [op.output()])
    data = op.values.constant(source)
    if data is not None and raw and not op.tensor(0).is_quantized:
        op.values.set_constant(op.output(), data.reshape(shape))
        return
    product = op.values.product(source)
    if product is not None and shape and shape[-1] == product[1].shape[1]:
        op.values.note_product(op.output(), *product)
    op.finish(op.values.reshaped(source, shape, raw=raw), raw=raw)


def _transpose(op: OperatorContext) -> None:
    source = op.index(0)
    rank = len(op.shape(0))
    perm = [op.axis(a, rank) for a in op.ints(1, "the order of the dimensions")]
    if sorted(perm) != list(range(rank)):
        raise op.bad_file(f"{perm} is not an order of {rank} dimensions")
    raw = op.can_stay_raw([source], [op.output()])
    if rank != 4 or op.values.constant(source) is not None:
        op.finish(op.values.arranged(source, perm, raw=raw), raw=raw)
        return
    # Of the four pairs of forms, one may need no transpose at all.
    came_first = op.values.is_first_only(source)
    inner = [TO_FIRST.index(a) for a in perm] if came_first else perm
    as_first = [inner[i] for i in TO_FIRST]
    name = op.values.get(source, first=came_first, raw=raw)
    if as_first == [0, 1, 2, 3]:
        op.finish(name, first=True, raw=raw)
    elif inner == [0, 1, 2, 3]:
        op.finish(name, raw=raw)
    else:
        op.finish(op.node("Transpose", name, perm=inner), raw=raw)


def _concatenation(op: OperatorContext) -> None:
    indexes = op.inputs()
    rank = len(op.out_shape())
    axis = op.axis(int(op.option("Axis")), rank)
    fused = op.option("FusedActivationFunction")
    raw = not fused and op.can_stay_raw(indexes, [op.output()])
    first = rank == 4 and op.prefers_first(*indexes)
    parts = [(op.values.get(i, first=first, raw=raw), op.values.shape(i)[axis]) for i in indexes]
    result = op.writer.concat(parts, TO_FIRST.index(axis) if first else axis)
    op.finish(op.activated(result), first=first, raw=raw)


def _split(op: OperatorContext) -> None:
    source, at = (1, 0) if op.operator.kind == "SPLIT" else (0, 2)
    shape, count = op.shape(source), len(op.operator.outputs)
    axis = op.axis(op.ints(at, "the dimension")[0], len(shape))
    if op.operator.kind == "SPLIT":
        if not count or shape[axis] % count:
            raise op.bad_file(f"{shape[axis]} elements cannot be split into {count} parts")
        sizes = [shape[axis] // count] * count
    else:
        sizes = op.ints(1, "the list of sizes")
        if sizes.count(-1) == 1:
            sizes[sizes.index(-1)] = shape[axis] - sum(sizes) - 1
        if len(sizes) != count or sum(sizes) != shape[axis] or min(sizes) < 0:
            raise op.bad_file(f"{shape[axis]} elements cannot be split into {sizes}")
    index = op.index(source)
    raw = op.can_stay_raw([index], op.operator.outputs)
    first = op.prefers_first(index)
    name = op.values.get(index, first=first, raw=raw)
    parts = op.writer.nodes(
        "Split",
        [name, op.writer.ints(sizes)],
        [f"{op.writer.scope}_{i}" for i in range(count)],
        axis=TO_FIRST.index(axis) if first else axis,
    )
    for position, part in enumerate(parts):
        op.finish(part, first=first, raw=raw, position=position)


def _pack(op: OperatorContext) -> None:
    indexes, out = op.inputs(), op.out_shape()
    axis = op.axis(int(op.option("Axis")), len(out))
    known = [op.values.constant(i) for i in indexes]
    if all(array is not None for array in known) and not op.values.tensor(op.output()).is_quantized:
        op.values.set_constant(op.output(), np.stack([array for array in known if array is not None], axis))
        return
    raw = op.can_stay_raw(indexes, [op.output()])
    part = [1 if i == axis else size for i, size in enumerate(out)]
    names = [op.values.reshaped(i, part, raw=raw) for i in indexes]
    op.finish(op.node("Concat", *names, axis=axis), raw=raw)


def _unpack(op: OperatorContext) -> None:
    shape, count = op.shape(0), len(op.operator.outputs)
    axis = op.axis(int(op.option("Axis")), len(shape))
    if shape[axis] != count:
        raise op.bad_file(f"{shape[axis]} elements cannot be unpacked to {count} tensors")
    raw = op.can_stay_raw([op.index(0)], op.operator.outputs)
    parts = op.writer.nodes(
        "Split",
        [op.values.get(op.index(0), raw=raw), op.writer.ints([1] * count)],
        [f"{op.writer.scope}_{i}" for i in range(count)],
        axis=axis,
    )
    for position, part in enumerate(parts):
        result = op.node("Reshape", part, op.writer.ints([*shape[:axis], *shape[axis + 1 :]]))
        op.finish(result, raw=raw, position=position)


def _tile(op: OperatorContext) -> None:
    raw = op.can_stay_raw([op.index(0)], [op.output()])
    times = op.writer.ints(op.ints(1, "the number of repetitions"))
    op.finish(op.node("Tile", op.values.get(op.index(0), raw=raw), times), raw=raw)


def _expand(op: OperatorContext) -> None:
    at = 1 if op.operator.kind == "FILL" else 0
    raw = op.can_stay_raw([op.index(at)], [op.output()])
    shape = op.writer.ints(op.out_shape())
    op.finish(op.node("Expand", op.values.get(op.index(at), raw=raw), shape), raw=raw)


def _gather(op: OperatorContext) -> None:
    embedding = op.operator.kind == "EMBEDDING_LOOKUP"
    table, indices = (1, 0) if embedding else (0, 1)
    axis = 0 if embedding else op.axis(int(op.option("Axis")), len(op.shape(table)))
    raw = op.can_stay_raw([op.index(table)], [op.output()])
    names = [op.values.get(op.index(table), raw=raw), op.values.get(op.index(indices))]
    batched = int(op.option("BatchDims"))
    if batched:
        if batched != axis:
            raise op.unsupported_form(f"{batched} batch dimensions, and positions of dimension {axis}")
        rows = op.node("Cast", op.node("Unsqueeze", names[1], op.writer.ints([-1])), to=TensorProto.INT64)
        op.finish(op.node("GatherND", names[0], rows, batch_dims=batched), raw=raw)
        return
    op.finish(op.node("Gather", *names, axis=axis), raw=raw)


def _gather_nd(op: OperatorContext) -> None:
    raw = op.can_stay_raw([op.index(0)], [op.output()])
    indices = op.node("Cast", op.values.get(op.index(1)), to=TensorProto.INT64)
    op.finish(op.node("GatherND", op.values.get(op.index(0), raw=raw), indices), raw=raw)


def _blocks(operator: str) -> Converter:
    def convert(op: OperatorContext) -> None:
        shape = op.need_rank(0, 4)
        size = int(op.option("BlockSize"))
        fits = size > 0 and (operator == "DepthToSpace" or all(shape[i] % size == 0 for i in (1, 2)))
        if not fits:
            raise op.bad_file(f"blocks of {size} do not fit an image of {list(shape)}")
        raw = op.can_stay_raw([op.index(0)], [op.output()])
        x = op.values.get(op.index(0), first=True, raw=raw)
        op.finish(op.node(operator, x, blocksize=size), first=True, raw=raw)

    return convert


def _shape(op: OperatorContext) -> None:
    dtype = op.values.tensor(op.output()).dtype
    shape = op.shape(0)
    op.values.set_constant(op.output(), np.array(shape if op.operator.kind == "SHAPE" else len(shape), dtype))


def _range(op: OperatorContext) -> None:
    start, limit, delta = (op.constant(i, "an end of the range").reshape(()) for i in range(3))
    (count,) = op.out_shape()
    if delta == 0 or count > _LONGEST_RANGE or max(0, math.ceil((limit - start) / delta)) != count:
        raise op.bad_file(f"it does not make the {count} elements that the file says")
    dtype = op.values.tensor(op.output()).dtype
    op.values.set_constant(op.output(), (start + np.arange(count) * delta).astype(dtype))


def _broadcast_shapes(op: OperatorContext) -> None:
    shapes = [tuple(op.ints(i, "a shape")) for i in range(2)]
    result = np.array(np.broadcast_shapes(*shapes), op.values.tensor(op.output()).dtype)
    op.values.set_constant(op.output(), result)


def _reverse_sequence(op: OperatorContext) -> None:
    """Reverse the first elements of each sequence, by their number."""
    shape, lengths = op.shape(0), op.ints(1, "the list of lengths")
    along, across = int(op.option("SeqDim")), int(op.option("BatchDim"))
    if sorted((along, across)) != [0, 1] or len(shape) < 2:
        raise op.unsupported_form(f"sequences along dimension {along} in batches along dimension {across}")
    if math.prod(shape[:2]) > _LONGEST_RANGE:
        raise op.unsupported_form(
            f"sequences of shape {list(shape)}; the limit is {_LONGEST_RANGE} elements of all"
        )
    if len(lengths) != shape[across] or any(not 0 <= length <= shape[along] for length in lengths):
        raise op.bad_file(f"{lengths[:16]} are not the lengths of sequences in {list(shape)}")
    positions = np.moveaxis(np.indices(shape[:2]), 0, -1).copy()
    steps, ends = positions[..., along], np.array(lengths)[positions[..., across]]
    positions[..., along] = np.where(steps < ends, ends - 1 - steps, steps)
    op.finish(op.node("GatherND", op.values.get(op.index(0)), op.writer.weight(positions.astype(np.int64))))


def _one_hot(op: OperatorContext) -> None:
    depth = op.writer.ints(op.ints(1, "the depth"))
    on, off = (op.values.reshaped(op.index(i), [1]) for i in (2, 3))
    axis = int(op.option("Axis", -1))
    indices = op.node("Cast", op.values.get(op.index(0)), to=TensorProto.INT64)
    result = op.node("OneHot", indices, depth, op.node("Concat", off, on, axis=0), axis=axis)
    op.finish(result)


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
    "BROADCAST_ARGS": _broadcast_shapes,
    "REVERSE_SEQUENCE": _reverse_sequence,
}
