"""Converters of products by weights of a few bits, as language models have them.

Their weights become floats at the import: the artifact's `weights` option says in how many bytes they are stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunefarm_tuning.tvm.frontend.converters.contributed.building_blocks import padded, reshaped, size_of
from tunefarm_tuning.tvm.frontend.node_context import (
    NodeContext,
    UnsupportedFormError,
    const,
    dtype_of,
    needed_constant,
    rank_of,
)

_WIDTHS = (2, 4, 8)
_BYTE = 8
_NUMBERS = {"float32": 1, "float16": 10}  # as TensorProto has them
_HALF_OF_FLOATS = (0.0, 0.0052083333, 2 / 3, 1.0, 1 / 3, 0.5, 1 / 6, 0.25)
_FLOATS = (*_HALF_OF_FLOATS, *(-number for number in _HALF_OF_FLOATS))
"""The numbers that bitsandbytes' ``fp4`` has for its codes."""
_NORMAL_FLOATS = (
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
    *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
    *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
    *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
)
"""The numbers that its ``nf4`` has: quantiles of the normal distribution."""


def convert_matmul_n_bits(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `MatMulNBits`: a product by a matrix of 2 to 8 bits with a scale for each block of a column."""
    x, packed, scales, zeros, order, bias = padded(inputs, 6)
    bits, block = int(attributes.get("bits", 4)), int(attributes["block_size"])
    if order is not None or bits not in _WIDTHS:
        raise UnsupportedFormError("weights of this form are not supported")
    rows, columns = int(attributes["K"]), int(attributes["N"])
    blocks = -(-rows // block)
    steps = _unpacked(needed_constant(packed, "weights"), bits).reshape(columns, blocks, -1)[:, :, :block]
    scale = needed_constant(scales, "scales").reshape(columns, blocks, 1).astype(np.float32)
    floats = (steps - _zero_points(zeros, bits, columns, blocks)) * scale
    weights = floats.reshape(columns, -1)[:, :rows].T
    y = context.node("MatMul", x, const(np.ascontiguousarray(weights.astype(dtype_of(x)))))
    return y if bias is None else context.node("Add", y, bias)


def convert_matmul_bnb4(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `MatMulBnb4`: a product by a matrix of 4 bits as bitsandbytes makes them, with a scale for each block of its elements."""
    x, packed, scales = padded(inputs, 3)
    rows, columns, block = (int(attributes[name]) for name in ("K", "N", "block_size"))
    if not attributes.get("transB", 1):
        raise UnsupportedFormError("a matrix that is not transposed is not supported")
    bytes_ = needed_constant(packed, "weights").reshape(-1).view(np.uint8)
    codes = np.stack([bytes_ >> 4, bytes_ & 15], axis=-1).reshape(-1)[: rows * columns]
    scale = needed_constant(scales, "scales").reshape(-1).astype(np.float32)
    if len(codes) < rows * columns or len(scale) * block < rows * columns:
        raise UnsupportedFormError(f"{len(codes)} weights and {len(scale)} scales for {columns} x {rows}")
    table = np.array(_NORMAL_FLOATS if attributes.get("quant_type", 0) else _FLOATS, np.float32)
    weights = (table[codes] * np.repeat(scale, block)[: rows * columns]).reshape(columns, rows).T
    return context.node("MatMul", x, const(np.ascontiguousarray(weights.astype(dtype_of(x)))))


def convert_gather_block_quantized(
    context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]
) -> Any:
    """Convert `GatherBlockQuantized`: rows of a table of 4 or 8 bits, which become floats as they are read."""
    table, indices, scales, zeros = padded(inputs, 4)
    bits, block = int(attributes.get("bits", 4)), int(attributes.get("block_size", 128))
    rank = rank_of(table)
    is_plain = attributes.get("gather_axis", 0) == 0 and attributes.get("quantize_axis", 1) % rank == 1
    if not is_plain or rank != 2 or bits not in _WIDTHS or dtype_of(table) != "uint8":
        raise UnsupportedFormError("a table of this form is not supported")
    steps = _unpacked(needed_constant(table, "table"), bits)
    blocks = size_of(scales, 1)
    if steps.shape[1] != blocks * block:
        raise UnsupportedFormError("a last block that is smaller than the others is not supported")
    element = _NUMBERS[dtype_of(scales)]
    places = [0] * rank_of(indices)

    def rows(values: Any, width: int) -> Any:
        gathered = context.node("Gather", values, indices, axis=0)
        return reshaped(context, context.node("Cast", gathered, to=element), [*places, blocks, width])

    middles: Any = const(np.array(2 ** (bits - 1), dtype_of(scales)))
    if zeros is not None:
        middles = rows(const(_unpacked(needed_constant(zeros, "zero points"), bits)[:, :blocks]), 1)
    floats = context.node("Sub", rows(const(steps), block), middles)
    return reshaped(context, context.node("Mul", floats, rows(scales, 1)), [*places, blocks * block])


def _unpacked(packed: NDArray[Any], bits: int) -> NDArray[np.uint8]:
    """Return what bytes hold along the last axis, the low bits first."""
    shifts = np.arange(0, _BYTE, bits, dtype=np.uint8)
    parts = (packed.view(np.uint8)[..., None] >> shifts) & np.uint8(2**bits - 1)
    return np.ascontiguousarray(parts.reshape(*packed.shape[:-1], -1))


def _zero_points(zeros: Any, bits: int, columns: int, blocks: int) -> NDArray[np.float32]:
    if zeros is None:
        return np.full((1, 1, 1), 2 ** (bits - 1), np.float32)
    values = needed_constant(zeros, "zero points")
    if values.dtype == np.uint8:
        values = _unpacked(values.reshape(columns, -1), bits)[:, :blocks]
    return values.reshape(columns, blocks, 1).astype(np.float32)
