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

Prepare = Callable[[Any, Sequence[int], Sequence[int]], Any]
"""Takes activations, a shape and the elements to skip before them in each dimension; returns them padded, as the instruction reads them."""


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
BFLOAT16 = DotProduct(stage="bfloat16_dot", products=2, sum_dtype="float32")
"""``vdpbf16ps``, and Arm's ``bfdot``: bfloat16 times bfloat16."""
KINDS = {kind.stage: kind for kind in (BYTES, BYTE_MATRICES, BFLOAT16)}


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


def conv2d_sums(
    kind: DotProduct,
    x: Any,
    weights: Any,
    prepare: Prepare,
    *,
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> tuple[Any, tuple[int, int, int]]:
    """Return the sums of a 2-D convolution, ``[batch, height, width, results]``; results are padded to whole vectors.

    The second value is the result's batch, height and width. If the instruction takes several rows, the sums are ``[batch, height, width / rows, results / lanes, rows * lanes]``, quotients
    rounded up.

    Args:
        kind: The instruction.
        x: Activations, NHWC.
        weights: As `packed` returns them for ``[height, width, in, out]``.
        prepare: Pads the activations.
        strides: Down, across.
        padding: Above, left, below, right.
        dilation: Down, across.
    """
    batch, height, width, _ = (int(size) for size in x.shape)
    _, rows, columns, steps, _ = (int(size) for size in weights.shape)
    above, left, below, right = padding
    tall, wide = height + above + below, width + left + right
    out_height = (tall - dilation[0] * (rows - 1) - 1) // strides[0] + 1
    out_width = (wide - dilation[1] * (columns - 1) - 1) // strides[1] + 1
    wide += -out_width % kind.rows * strides[1]
    activations = prepare(x, (batch, tall, wide, steps * kind.products), (0, above, left, 0))
    row, column = _sum_over(rows, "row"), _sum_over(columns, "column")
    lead = (batch, out_height, out_width)
    sums = _sums(
        kind,
        weights,
        lead,
        [row, column],
        lambda n, i, j, c: activations[
            n, i * strides[0] + row * dilation[0], j * strides[1] + column * dilation[1], c
        ],
    )
    return sums, lead


def matmul_sums(kind: DotProduct, x: Any, weights: Any, prepare: Prepare) -> Any:
    """Return the sums of a matrix product: arguments as of `conv2d_sums`, `x` of any rank, summed over its last axis."""
    lead = [int(size) for size in x.shape[:-1]]
    steps = int(weights.shape[1])
    wide = [*lead[:-1], lead[-1] + -lead[-1] % kind.rows]
    activations = prepare(x, (*wide, steps * kind.products), (0,) * len(x.shape))
    return _sums(kind, weights, lead, [], lambda *indices: activations[indices])


def add_byte_products(sums: Any, four: Any, factors: Any, instruction: ByteProducts) -> Any:
    """Return sums (int32) of which each lane has four products added, of the same four bytes and factors of its own.

    Args:
        sums: A vector of the instruction's lanes.
        four: Bytes of its type of activations, a vector of 4.
        factors: Signed bytes, a vector of ``4 x lanes``.
        instruction: The instruction.
    """
    lanes = instruction.lanes
    shared = tirx.Broadcast(tirx.reinterpret("int32", four), lanes)
    return tirx.call_llvm_pure_intrin(
        f"int32x{lanes}",
        instruction.intrinsic,
        sums,
        tirx.reinterpret(f"int8x{BYTES.products * lanes}", shared),
        factors,
    )


def padded(
    x: Any,
    shape: Sequence[int],
    before: Sequence[int],
    value: Callable[[Any], Any],
    padding: Any,
    name: str,
) -> Any:
    """Return a stage that reads activations through `value`, and is `padding` outside of them."""
    sizes = [int(size) for size in x.shape]

    def element(*indices: Any) -> Any:
        inner = [
            index - skipped if skipped else index for index, skipped in zip(indices, before, strict=True)
        ]
        inside = []
        for index, skipped, size, wide in zip(indices, before, sizes, shape, strict=True):
            inside += [index >= skipped] if skipped else []
            inside += [index < skipped + size] if skipped + size < wide else []
        own = value(x[tuple(inner)])
        return tirx.if_then_else(tirx.all(*inside), own, padding) if inside else own

    return te.compute(int64_sizes(shape), element, name=name)


def _sums(kind: DotProduct, weights: Any, lead: Sequence[int], sums: Sequence[Any], read: Any) -> Any:
    groups, steps, width = int(weights.shape[0]), int(weights.shape[-2]), int(weights.shape[-1])
    products, lanes = kind.products, width // kind.products
    step, part = _sum_over(steps, "step"), _sum_over(products, "part")

    def sum_of(*indices: Any) -> Any:
        if kind.rows == 1:
            *outer, channel = indices
            group, lane = channel // lanes, channel % lanes
        else:
            *outer, row, group, number = indices
            outer, lane = [*outer, row * kind.rows + number // lanes], number % lanes
        weight = weights[(group, *sums, step, lane * products + part)]
        factors = (read(*outer, step * products + part), weight)
        left, right = (factor.astype(kind.sum_dtype) for factor in factors)
        return te.sum(left * right, axis=[*sums, step, part])

    *outer, last = lead
    shape = (
        [*lead, groups * lanes]
        if kind.rows == 1
        else [*outer, -(-last // kind.rows), groups, kind.rows * lanes]
    )
    return te.compute(int64_sizes(shape), sum_of, name=kind.stage)


def sum_at(sums: Any, indices: Sequence[Any]) -> Any:
    """Return the sum of a result by the indices of its row and its channel, wherever the instruction leaves it."""
    if str(sums.op.name) != BYTE_MATRICES.stage:
        return sums[tuple(indices)]
    rows = BYTE_MATRICES.rows
    lanes = int(sums.shape[-1]) // rows
    *outer, row, channel = indices
    return sums[(*outer, row // rows, channel // lanes, row % rows * lanes + channel % lanes)]


def add_matrix_of_bytes(sums: Any, rows: Sequence[Any], factors: Any, instruction: ByteProducts) -> Any:
    """Return sums (int32, two rows of two results) with the products of two rows of eight bytes added, each by those of two results."""
    both = tirx.Shuffle(list(rows), list(range(2 * instruction.products)))
    return tirx.call_llvm_pure_intrin("int32x4", instruction.intrinsic, sums, both, factors)


def _sum_over(extent: int, name: str) -> Any:
    return te.reduce_axis((tirx.IntImm("int64", 0), tirx.IntImm("int64", extent)), name=name)
