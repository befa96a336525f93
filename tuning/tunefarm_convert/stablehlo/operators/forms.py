"""Constants, and operations that only say in which shape or order values are."""

from __future__ import annotations

from collections.abc import Mapping

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
from tunefarm_convert.stablehlo.step import Converter, Step
from tunefarm_convert.stablehlo.values import Value, constant, splat


def _constant(step: Step) -> list[Value]:
    data = step.attribute("value")
    if data is None or data.shape != step.result().shape:
        raise bad_program(f"{step.operation.place}: its elements are not of its type")
    return [constant(data)]


def _reshape(step: Step) -> list[Value]:
    return [reshaped(step.emit, step.operands[0], step.result().shape)]


def _broadcast_in_dim(step: Step) -> list[Value]:
    return [spread(step.emit, step.operands[0], step.result().shape, step.ints("broadcast_dimensions"))]


def _broadcast(step: Step) -> list[Value]:
    shape, rank = step.result().shape, step.operands[0].rank
    return [spread(step.emit, step.operands[0], shape, list(range(len(shape) - rank, len(shape))))]


def _transpose(step: Step) -> list[Value]:
    return [transposed(step.operands[0], step.ints("permutation"))]


def _concatenate(step: Step) -> list[Value]:
    return [concatenated(step.emit, step.operands, int(step.attribute("dimension")))]


def _pad(step: Step) -> list[Value]:
    value, around = step.operands
    sizes = (step.ints(f"{name}") for name in ("edge_padding_low", "edge_padding_high", "interior_padding"))
    return [padded(step.emit, value, around, *sizes)]


def _reverse(step: Step) -> list[Value]:
    return [reversed_along(step.emit, step.operands[0], step.ints("dimensions"))]


def _arc_tangent(step: Step) -> list[Value]:
    return [arc_tangent(step.emit, *step.operands)]


def _constant_like(step: Step) -> list[Value]:
    return [splat(step.attribute("value"), step.result().dtype, step.result().shape)]


CONVERTERS: Mapping[str, Converter] = {
    "stablehlo.constant": _constant,
    "chlo.constant": _constant,
    "chlo.constant_like": _constant_like,
    "stablehlo.reshape": _reshape,
    "stablehlo.dynamic_reshape": _reshape,
    "stablehlo.broadcast_in_dim": _broadcast_in_dim,
    "stablehlo.dynamic_broadcast_in_dim": _broadcast_in_dim,
    "stablehlo.broadcast": _broadcast,
    "stablehlo.transpose": _transpose,
    "stablehlo.concatenate": _concatenate,
    "stablehlo.pad": _pad,
    "stablehlo.reverse": _reverse,
    "stablehlo.atan2": _arc_tangent,
}
"""Those that are called dynamic take a shape that they need not be told: their result's is known, or they are refused."""
