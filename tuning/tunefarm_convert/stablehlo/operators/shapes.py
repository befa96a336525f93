"""Converters of constants, and of operations that only change shapes and orders."""

from __future__ import annotations

from collections.abc import Mapping

from tunefarm_convert.stablehlo.converter import Converter, OperatorContext
from tunefarm_convert.stablehlo.operators.functions import arc_tangent
from tunefarm_convert.stablehlo.operators.movement import (
    concatenated,
    padded,
    reshaped,
    reversed_along,
    spread,
    transposed,
)
from tunefarm_convert.stablehlo.program import bad_program
from tunefarm_convert.stablehlo.values import Value, constant, splat


def _constant(op: OperatorContext) -> list[Value]:
    data = op.attribute("value")
    if data is None or data.shape != op.result().shape:
        raise bad_program(f"{op.operation.label}: its elements are not of its type")
    return [constant(data)]


def _reshape(op: OperatorContext) -> list[Value]:
    return [reshaped(op.emit, op.operands[0], op.result().shape)]


def _broadcast_in_dim(op: OperatorContext) -> list[Value]:
    return [spread(op.emit, op.operands[0], op.result().shape, op.ints("broadcast_dimensions"))]


def _broadcast(op: OperatorContext) -> list[Value]:
    shape, rank = op.result().shape, op.operands[0].rank
    return [spread(op.emit, op.operands[0], shape, list(range(len(shape) - rank, len(shape))))]


def _pad(op: OperatorContext) -> list[Value]:
    value, around = op.operands
    sizes = (op.ints(f"{name}") for name in ("edge_padding_low", "edge_padding_high", "interior_padding"))
    return [padded(op.emit, value, around, *sizes)]


CONVERTERS: Mapping[str, Converter] = {
    "stablehlo.constant": _constant,
    "chlo.constant": _constant,
    "chlo.constant_like": lambda op: [splat(op.attribute("value"), op.result().dtype, op.result().shape)],
    "stablehlo.reshape": _reshape,
    "stablehlo.dynamic_reshape": _reshape,
    "stablehlo.broadcast_in_dim": _broadcast_in_dim,
    "stablehlo.dynamic_broadcast_in_dim": _broadcast_in_dim,
    "stablehlo.broadcast": _broadcast,
    "stablehlo.transpose": lambda op: [transposed(op.operands[0], op.ints("permutation"))],
    "stablehlo.concatenate": lambda op: [concatenated(op.emit, op.operands, int(op.attribute("dimension")))],
    "stablehlo.pad": _pad,
    "stablehlo.reverse": lambda op: [reversed_along(op.emit, op.operands[0], op.ints("dimensions"))],
    "stablehlo.atan2": lambda op: [arc_tangent(op.emit, *op.operands)],
}
"""The shape operand of a dynamic operation is not read: its result's type gives the shape, or it is refused."""
