"""Convolutions and matrix products whose sums a CPU's dot product instruction adds to: several products at once, in each of `lanes` sums.

Weights are packed as the instruction reads them (`packed`): the products of each of `lanes` results side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import te, tirx

from tunefarm_tuning.target.dot_products import ByteProducts
from tunefarm_tuning.tvm.base.tir import int64_sizes

Array = NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """Groups of a product's channels.

    Attributes:
        count: Their number.
        depth: Channels that each reads.
        results: Results that each has.
        merged: Groups that are computed as one, by weights that are mostly zeros; the last of these may have fewer.
    """

    count: int = 1
    depth: int
    results: int
    merged: int = 1

    @property
    def computed(self) -> int:
        """Groups that are computed."""
        return -(-self.count // self.merged)


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """Rows of an image, each as one run of its columns' channels; a row of a convolution's window is a piece of a run.

    An instruction's products then need not end with a column: three columns of three channels have nine products, not thrice four.

    Attributes:
        channels: Of a column.
        columns: Of a window.
    """

    channels: int
    columns: int


def runs_of(channels: int, columns: int, dilation: int, products: int) -> Runs | None:
    """Return the runs of a convolution of a single group, for an instruction of one row; None if its columns are whole instructions, or dilation parts them."""
    if channels % products == 0 or (dilation > 1 and columns > 1):
        return None
    return Runs(channels=channels, columns=columns)


Prepare = Callable[[Any, Sequence[int], Sequence[int], Groups], Any]
"""Takes activations, a shape, the elements to skip before them in each dimension, and the groups of channels, each of which is padded; returns
them padded, as the instruction reads them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DotProduct:
    """A kind of dot product.

    Attributes:
        stage: Name of the summing stage, and prefix of the other stages' names. It is part of workload keys.
        products: Products that one instruction adds to each sum.
        sum_dtype: Type of the sums.
        rows: Rows of activations that one instruction takes. The sums of two rows and two results lie side by side, in a
            dimension of their own.
    """

    stage: str
    products: int
    sum_dtype: str
    rows: int = 1


BYTES = DotProduct(stage="byte_dot", products=4, sum_dtype="int32")
"""``vpdpbusd``: unsigned bytes times signed bytes; ``sdot``: signed bytes (`target.dot_products`)."""
BYTE_MATRICES = DotProduct(stage="byte_matrix", products=8, sum_dtype="int32", rows=2)
"""``smmla``: two rows of signed bytes times those of two results."""
BYTE_PAIRS = DotProduct(stage="byte_pair", products=2, sum_dtype="int32")
"""``vpmaddwd``: activations in 16 bits times signed bytes that are widened."""
BYTE_TAPS = DotProduct(stage="byte_taps", products=4, sum_dtype="int32")
"""The instruction of `BYTES` with bytes of each sum's own: four rows of a depthwise convolution (`kernels.narrow_depthwise`)."""
BFLOAT16 = DotProduct(stage="bfloat16_dot", products=2, sum_dtype="float32")
"""``vdpbf16ps``, and Arm's ``bfdot``: bfloat16 times bfloat16."""
BFLOAT16_MATRICES = DotProduct(stage="bfloat16_matrix", products=4, sum_dtype="float32", rows=2)
"""``bfmmla``: two rows of bfloat16 times those of two results."""
_AXES = ("depth", "row", "column")
KINDS = {
    kind.stage: kind for kind in (BYTES, BYTE_MATRICES, BYTE_PAIRS, BYTE_TAPS, BFLOAT16, BFLOAT16_MATRICES)
}


def kind_of(block_name: str) -> DotProduct | None:
    """Return the kind of dot product of a block that was made from its stage: TVM appends to the stage's name."""
    return next((kind for stage, kind in KINDS.items() if block_name.startswith(stage)), None)


def packed(weights: Array, lanes: int, products: int) -> Array:
    """Pack weights ``[..., products, results]`` for an instruction that makes `lanes` sums, padded with zeros.

    Args:
        weights: The weights.
        lanes: Sums of an instruction.
        products: Products that it adds to each.

    Returns:
        ``[results / lanes, ..., all products / products, lanes * products]``, quotients rounded up.
    """
    *kernel, depth, results = weights.shape
    groups, steps = -(-results // lanes), -(-depth // products)
    wide = np.zeros((*kernel, steps * products, groups * lanes), weights.dtype)
    wide[..., :depth, :results] = weights
    split = wide.reshape(*kernel, steps, products, groups, lanes)
    outer = len(kernel)
    order = (outer + 2, *range(outer), outer, outer + 3, outer + 1)
    result: Array = split.transpose(order).reshape(groups, *kernel, steps, lanes * products)
    return result


def unpacked(weights: Array, depth: int, results: int, products: int) -> Array:
    """Return weights as they were before `packed`, ``[..., depth, results]``."""
    groups, *kernel, steps, width = weights.shape
    lanes, outer = width // products, len(kernel)
    split = weights.reshape(groups, *kernel, steps, lanes, products)
    order = (*range(1, outer + 1), outer + 1, outer + 3, 0, outer + 2)
    result: Array = split.transpose(order).reshape(*kernel, steps * products, groups * lanes)
    return result[..., :depth, :results]


def packed_groups(weights: Array, groups: Groups, lanes: int, products: int) -> Array:
    """Return the weights of a product of groups as `packed` packs those of each group that is computed, one behind the other.

    Args:
        weights: ``[..., products of a group, results]``, the results of a group side by side.
        groups: The groups.
        lanes: Sums of an instruction.
        products: Products that it adds to each.
    """
    *kernel, depth, results = weights.shape
    per_group, merged = results // groups.count, groups.merged
    wide = np.zeros((groups.computed, *kernel, merged * depth, merged * per_group), weights.dtype)
    for group in range(groups.count):
        row, column = group % merged * depth, group % merged * per_group
        wide[group // merged, ..., row : row + depth, column : column + per_group] = weights[
            ..., group * per_group : (group + 1) * per_group
        ]
    return np.concatenate([packed(part, lanes, products) for part in wide])


def conv_sums(
    kind: DotProduct,
    x: Any,
    weights: Any,
    prepare: Prepare,
    *,
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: Groups | None = None,
    runs: Runs | None = None,
) -> tuple[Any, tuple[int, ...]]:
    """Return the sums of a convolution, ``[batch, *sizes, results]``; the results of each group are padded to whole vectors.

    The second value is the result's batch and sizes. If the instruction takes several rows, the sums are ``[batch, ..., width / rows,
    results / lanes, rows * lanes]``, quotients rounded up.

    Args:
        kind: The instruction.
        x: Activations, channels last.
        weights: As `packed_groups` returns them for ``[*sizes, in, out]``.
        prepare: Pads the activations.
        strides: Along each axis.
        padding: At the start of each axis, then at the end of each.
        dilation: Along each axis.
        groups: Groups of channels; None for one.
        runs: If `x` is ``[batch, ..., columns * channels]``, and the weights are of windows of one column, ``[..., 1, all in, out]``.
    """
    batch, *sizes, channels = (int(size) for size in x.shape)
    _, *kernel, steps, _ = (int(size) for size in weights.shape)
    taps = [_sum_over(size, name) for size, name in zip(kernel, _AXES[-len(kernel) :], strict=True)]
    pitch = 1
    if runs is not None:
        sizes, channels, pitch = [*sizes, channels // runs.channels], runs.channels, runs.channels
        kernel[-1] = runs.columns
    rank = len(kernel)
    wide = [
        size + before + after
        for size, before, after in zip(sizes, padding[:rank], padding[rank:], strict=True)
    ]
    results = [
        (wide[axis] - dilation[axis] * (kernel[axis] - 1) - 1) // strides[axis] + 1 for axis in range(rank)
    ]
    wide[-1] += -results[-1] % kind.rows * strides[-1]
    groups = groups or Groups(depth=channels, results=0)
    shape = (batch, *wide, groups.computed * steps * kind.products)
    before = (0, *padding[:rank], 0)
    if runs is not None:
        last = (wide[-1] - runs.columns) // strides[-1] * strides[-1] * pitch
        shape = (batch, *wide[:-1], max(wide[-1] * pitch, last + steps * kind.products))
        before = (0, *padding[: rank - 1], padding[rank - 1] * pitch)
        groups = Groups(depth=shape[-1], results=0)
    activations = prepare(x, shape, before, groups)
    lead = (batch, *results)

    def read(n: Any, *indices: Any) -> Any:
        *spatial, c = indices
        inner = [index * strides[axis] + taps[axis] * dilation[axis] for axis, index in enumerate(spatial)]
        if runs is not None:
            *inner, column = inner
            c = column * pitch + c
        return activations[(n, *inner, c)]

    return _sums(kind, weights, lead, taps, read, groups.computed), lead


def matmul_sums(kind: DotProduct, x: Any, weights: Any, prepare: Prepare) -> Any:
    """Return the sums of a matrix product: arguments as of `conv_sums`, `x` of any rank, summed over its last axis."""
    lead = [int(size) for size in x.shape[:-1]]
    steps = int(weights.shape[1])
    wide = [*lead[:-1], lead[-1] + -lead[-1] % kind.rows]
    activations = prepare(
        x, (*wide, steps * kind.products), (0,) * len(x.shape), Groups(depth=int(x.shape[-1]), results=0)
    )
    return _sums(kind, weights, lead, [], lambda *indices: activations[indices], 1)


def batch_sums(kind: DotProduct, x: Any, weights: Any) -> Any:
    """Return the sums of a batch of matrix products, ``[batch, 1, rows, results]``, padded to whole vectors of results.

    The dimension of one keeps the rows of two products out of one tile: they have different weights.

    Args:
        kind: An instruction of one row.
        x: ``[batch, 1, rows, steps * products]``.
        weights: Of each product as `packed` returns them, one behind the other: ``[batch, results / lanes, steps, lanes * products]``.
    """
    lead = [int(size) for size in x.shape[:-1]]
    return _sums(kind, weights, lead, [], lambda *indices: x[indices], 1, batched=True)


def add_byte_products(sums: Any, activations: Any, factors: Any, instruction: ByteProducts) -> Any:
    """Return sums (int32) of which each lane has an instruction's products added, of the same activations and factors of its own.

    Args:
        sums: A vector of the instruction's lanes.
        activations: Four bytes, or two numbers of 16 bits, of its type of activations; a vector.
        factors: Signed bytes, a vector of ``products x lanes``.
        instruction: The instruction.
    """
    lanes = instruction.lanes
    shared = tirx.Broadcast(tirx.reinterpret("int32", activations), lanes)
    if instruction.products == BYTES.products:
        return add_bytes(sums, shared, factors, instruction)
    wide = f"int16x{instruction.products * lanes}"
    pairs = [tirx.reinterpret(wide, shared), tirx.Cast(wide, factors)]
    return sums + tirx.call_llvm_pure_intrin(f"int32x{lanes}", instruction.intrinsic, *pairs)


def add_bytes(sums: Any, bytes_of_all: Any, factors: Any, instruction: ByteProducts) -> Any:
    """Return sums of which each lane has four products added, of bytes and factors of its own: each a vector as long as ``4 x lanes`` bytes."""
    lanes = instruction.lanes
    signed = tirx.reinterpret(f"int8x{BYTES.products * lanes}", bytes_of_all)
    return tirx.call_llvm_pure_intrin(f"int32x{lanes}", instruction.intrinsic, sums, signed, factors)


def padded(
    x: Any,
    shape: Sequence[int],
    before: Sequence[int],
    value: Callable[[Any], Any],
    padding: Any,
    name: str,
    groups: Groups | None = None,
) -> Any:
    """Return a stage that reads activations through `value`, and is `padding` outside of them, and behind each group of channels."""
    sizes = [int(size) for size in x.shape]
    count = 1 if groups is None else groups.computed
    channels, wide = sizes[-1] if groups is None else groups.merged * groups.depth, shape[-1] // count

    def element(*indices: Any) -> Any:
        inner = [
            index - skipped if skipped else index for index, skipped in zip(indices, before, strict=True)
        ]
        limits = [*zip(indices, before, sizes, shape, strict=True)]
        if count > 1:
            channel = indices[-1]
            inner[-1] = channel if channels == wide else channel // wide * channels + channel % wide
            limits[-1] = (inner[-1], 0, sizes[-1], count * channels)
            limits += [(channel % wide, 0, channels, wide)]
        inside = []
        for index, skipped, size, whole in limits:
            inside += [index >= skipped] if skipped else []
            inside += [index < skipped + size] if skipped + size < whole else []
        read = value(x[tuple(inner)])
        return tirx.if_then_else(tirx.all(*inside), read, padding) if inside else read

    return te.compute(int64_sizes(shape), element, name=name)


def _sums(
    kind: DotProduct,
    weights: Any,
    lead: Sequence[int],
    sums: Sequence[Any],
    read: Any,
    groups: int,
    *,
    batched: bool = False,
) -> Any:
    """Return the stage that sums; weights that are `batched` belong each to an element of the first dimension."""
    vectors, steps, width = int(weights.shape[batched]), int(weights.shape[-2]), int(weights.shape[-1])
    products, lanes = kind.products, width // kind.products
    step, part = _sum_over(steps, "step"), _sum_over(products, "part")

    def sum_of(*indices: Any) -> Any:
        if kind.rows == 1:
            *outer, channel = indices
            vector, lane = channel // lanes, channel % lanes
        else:
            *outer, row, vector, number = indices
            outer, lane = [*outer, row * kind.rows + number // lanes], number % lanes
        weight = weights[(*outer[:batched], vector, *sums, step, lane * products + part)]
        element = step * products + part
        if groups > 1:
            element = vector // (vectors // groups) * (steps * products) + element
        factors = (read(*outer, element), weight)
        left, right = (factor.astype(kind.sum_dtype) for factor in factors)
        return te.sum(left * right, axis=[*sums, step, part])

    *outer, last = lead
    shape = (
        [*lead, vectors * lanes]
        if kind.rows == 1
        else [*outer, -(-last // kind.rows), vectors, kind.rows * lanes]
    )
    return te.compute(int64_sizes(shape), sum_of, name=kind.stage)


def sum_at(sums: Any, indices: Sequence[Any]) -> Any:
    """Return the sum of a result by the indices of its row and its channel, wherever the instruction leaves it."""
    rows = KINDS[str(sums.op.name)].rows
    if rows == 1:
        return sums[tuple(indices)]
    lanes = int(sums.shape[-1]) // rows
    *outer, row, channel = indices
    return sums[(*outer, row // rows, channel // lanes, row % rows * lanes + channel % lanes)]


def column_of_group(sums: Any, groups: Groups, group: Any, number: Any, each: int) -> Any:
    """Return the column in which the sum of a group's result lies, if each group has so many."""
    wide = padded_results(sums) // groups.computed
    return group // groups.merged * wide + group % groups.merged * each + number


def padded_results(sums: Any) -> int:
    """Return the number of results that the sums of a row have room for."""
    rows = KINDS[str(sums.op.name)].rows
    return int(sums.shape[-1]) if rows == 1 else int(sums.shape[-2]) * int(sums.shape[-1]) // rows


def add_matrix_of_bytes(sums: Any, rows: Sequence[Any], factors: Any, instruction: ByteProducts) -> Any:
    """Return sums (int32, two rows of two results) with the products of two rows of eight bytes added, each by those of two results."""
    both = tirx.Shuffle(list(rows), list(range(2 * instruction.products)))
    return tirx.call_llvm_pure_intrin("int32x4", instruction.intrinsic, sums, both, factors)


def _sum_over(extent: int, name: str) -> Any:
    return te.reduce_axis((tirx.IntImm("int64", 0), tirx.IntImm("int64", extent)), name=name)
