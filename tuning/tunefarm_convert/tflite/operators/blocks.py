"""Blocks of an image as batches: how older converters write dilated convolutions."""

from __future__ import annotations

import math
from collections.abc import Mapping

from tunefarm_convert.tflite.converter import Converter, OperatorContext


def block_sizes(op: OperatorContext) -> tuple[list[int], list[tuple[int, int]]]:
    """Return the size of a block in each dimension after the first, and what is padded or cropped there."""
    shape, blocks, flat = op.shape(0), op.ints(1, "the block"), op.ints(2, "the padding")
    if (
        len(flat) != 2 * len(blocks)
        or not 0 < len(blocks) < len(shape)
        or min(*blocks, 1) < 1
        or min(flat) < 0
    ):
        raise op.bad_file(f"blocks of {blocks[:8]} with {flat[:16]} around do not fit {list(shape)}")
    return blocks, list(zip(flat[::2], flat[1::2], strict=True))


def to_batches_shape(op: OperatorContext) -> tuple[int, ...]:
    """Return the shape of the result of `SPACE_TO_BATCH_ND`."""
    shape = op.shape(0)
    blocks, pads = block_sizes(op)
    sizes = []
    for size, block, (before, after) in zip(shape[1:], blocks, pads, strict=False):
        if (size + before + after) % block:
            raise op.bad_file(f"blocks of {blocks} do not fit {list(shape)} with {pads} around")
        sizes.append((size + before + after) // block)
    return (shape[0] * math.prod(blocks), *sizes, *shape[1 + len(blocks) :])


def to_space_shape(op: OperatorContext) -> tuple[int, ...]:
    """Return the shape of the result of `BATCH_TO_SPACE_ND`."""
    shape = op.shape(0)
    blocks, crops = block_sizes(op)
    if shape[0] % math.prod(blocks):
        raise op.bad_file(f"{shape[0]} batches cannot be divided into blocks of {blocks}")
    sizes = [
        size * block - before - after
        for size, block, (before, after) in zip(shape[1:], blocks, crops, strict=False)
    ]
    if min(sizes) < 1:
        raise op.bad_file(f"it crops {crops} off {list(shape)}, where nothing stays")
    return (shape[0] // math.prod(blocks), *sizes, *shape[1 + len(blocks) :])


def _to_batches(op: OperatorContext) -> None:
    shape = op.shape(0)
    blocks, pads = block_sizes(op)
    result = to_batches_shape(op)
    raw = op.can_stay_raw([op.index(0)], [op.output()]) and not op.tensor(0).is_quantized
    x = op.values.get(op.index(0), raw=raw)
    if any(map(any, pads)):
        rest = [0] * (len(shape) - len(pads) - 1)
        ends = [0, *(a for a, _ in pads), *rest, 0, *(b for _, b in pads), *rest]
        x = op.node("Pad", x, op.writer.ints(ends), op.scalar(0, op.index(0)))
    split: list[int] = [shape[0]]
    for size, block in zip(result[1:], blocks, strict=False):
        split += [size, block]
    x = op.node("Reshape", x, op.writer.ints([*split, *result[1 + len(blocks) :]]))
    inner = [2 + 2 * i for i in range(len(blocks))]
    perm = [
        *inner,
        0,
        *(i - 1 for i in inner),
        *range(1 + 2 * len(blocks), len(split) + len(result) - len(blocks) - 1),
    ]
    x = op.node("Reshape", op.node("Transpose", x, perm=perm), op.writer.ints(result))
    op.values.note_blocks(op.output(), op.index(0), blocks, pads)
    op.finish(x, raw=raw)


def _to_space(op: OperatorContext) -> None:
    shape = op.shape(0)
    blocks, crops = block_sizes(op)
    result = to_space_shape(op)
    dilated = op.values.dilated(op.index(0))
    if dilated is not None and len(shape) == 4 and not op.values.tensor(op.output()).is_quantized:
        name = dilated(blocks, crops)
        if name is not None:
            op.finish(name, first=True)
            return
    raw = op.can_stay_raw([op.index(0)], [op.output()])
    x = op.values.get(op.index(0), raw=raw)
    count = len(blocks)
    x = op.node("Reshape", x, op.writer.ints([*blocks, result[0], *shape[1:]]))
    perm = [count]
    for i in range(count):
        perm += [count + 1 + i, i]
    perm += range(2 * count + 1, count + len(shape))
    whole = [size * block for size, block in zip(shape[1:], blocks, strict=False)]
    x = op.node(
        "Reshape",
        op.node("Transpose", x, perm=perm),
        op.writer.ints([result[0], *whole, *shape[1 + count :]]),
    )
    if any(map(any, crops)):
        starts = [before for before, _ in crops]
        ends = [start + size for start, size in zip(starts, result[1:], strict=False)]
        x = op.node("Slice", x, *(op.writer.ints(v) for v in (starts, ends, list(range(1, 1 + count)))))
    op.finish(x, raw=raw)


CONVERTERS: Mapping[str, Converter] = {"SPACE_TO_BATCH_ND": _to_batches, "BATCH_TO_SPACE_ND": _to_space}
