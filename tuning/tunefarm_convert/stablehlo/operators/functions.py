"""Functions of a real number: ONNX's own, and others by a few of its operators.

Small results keep as many digits as StableHLO's: ``exp(x) - 1`` near zero, ``log(1 + x)``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from tunefarm_convert.stablehlo.values import Emitter, Value, splat

Function = Callable[[Emitter, Value], Value]

_SMALL = 0.03
"""Where log(1 + x) is a series of five terms, to a share of 4e-9; beyond, the sum 1 + x is off by a share of 2e-6."""


def _like(value: Value, number: Any) -> Value:
    return splat(number, value.dtype, value.shape)


def _chain(*operators: str) -> Function:
    def convert(emit: Emitter, x: Value) -> Value:
        for operator in operators:
            x = emit.apply(operator, x)
        return x

    return convert


def _exp_minus_one(emit: Emitter, x: Value) -> Value:
    # The hyperbolic tangent of half of x, by one more than the exponential.
    half = emit.apply("Tanh", emit.apply("Mul", x, _like(x, 0.5)))
    return emit.apply("Mul", half, emit.apply("Add", emit.apply("Exp", x), _like(x, 1)))


def _log_plus_one(emit: Emitter, x: Value) -> Value:
    series = _like(x, 0.2)
    for term in (0.25, 1 / 3, 0.5, 1.0):
        series = emit.apply("Sub", _like(x, term), emit.apply("Mul", series, x))
    far = emit.apply("Log", emit.apply("Add", x, _like(x, 1)))
    near = emit.apply("Less", emit.apply("Abs", x), _like(x, _SMALL), dtype="bool")
    return emit.apply("Where", near, emit.apply("Mul", series, x), far, dtype=x.dtype)


def _cbrt(emit: Emitter, x: Value) -> Value:
    root = emit.apply("Pow", emit.apply("Abs", x), _like(x, 1 / 3))
    return emit.apply("Mul", emit.apply("Sign", x), root)


def _round_away(emit: Emitter, x: Value) -> Value:
    size = emit.apply("Abs", x)
    floor = emit.apply("Floor", size)
    up = emit.apply("GreaterOrEqual", emit.apply("Sub", size, floor), _like(x, 0.5), dtype="bool")
    rounded = emit.apply("Where", up, emit.apply("Add", floor, _like(x, 1)), floor, dtype=x.dtype)
    return emit.apply("Mul", emit.apply("Sign", x), rounded)


def arc_tangent(emit: Emitter, y: Value, x: Value) -> Value:
    """Return the angle of the point (x, y), as C's ``atan2`` does for numbers that are finite and not both zero."""
    straight = emit.apply("Atan", emit.apply("Div", y, x))
    zero = _like(x, 0)
    below = emit.apply("Less", y, zero, dtype="bool")
    half_turn = emit.apply("Where", below, _like(x, -math.pi), _like(x, math.pi), dtype=x.dtype)
    is_left = emit.apply("Less", x, zero, dtype="bool")
    turned = emit.apply("Where", is_left, emit.apply("Add", straight, half_turn), straight, dtype=x.dtype)
    both = emit.apply(
        "And", emit.apply("Equal", x, zero, dtype="bool"), emit.apply("Equal", y, zero, dtype="bool")
    )
    return emit.apply("Where", both, zero, turned, dtype=x.dtype)


FUNCTIONS: Mapping[str, Function] = {
    "stablehlo.exponential": _chain("Exp"),
    "stablehlo.exponential_minus_one": _exp_minus_one,
    "stablehlo.log": _chain("Log"),
    "stablehlo.log_plus_one": _log_plus_one,
    "stablehlo.logistic": _chain("Sigmoid"),
    "stablehlo.tanh": _chain("Tanh"),
    "stablehlo.sqrt": _chain("Sqrt"),
    "stablehlo.rsqrt": _chain("Sqrt", "Reciprocal"),
    "stablehlo.cbrt": _cbrt,
    "stablehlo.floor": _chain("Floor"),
    "stablehlo.ceil": _chain("Ceil"),
    "stablehlo.round_nearest_even": _chain("Round"),
    "stablehlo.round_nearest_afz": _round_away,
    "stablehlo.sine": _chain("Sin"),
    "stablehlo.cosine": _chain("Cos"),
    "stablehlo.tan": _chain("Tan"),
    "chlo.erf": _chain("Erf"),
    "chlo.erfc": lambda emit, x: emit.apply("Sub", _like(x, 1), emit.apply("Erf", x)),
    "chlo.square": lambda emit, x: emit.apply("Mul", x, x),
    "chlo.tan": _chain("Tan"),
    "chlo.acos": _chain("Acos"),
    "chlo.asin": _chain("Asin"),
    "chlo.atan": _chain("Atan"),
    "chlo.sinh": _chain("Sinh"),
    "chlo.cosh": _chain("Cosh"),
    "chlo.asinh": _chain("Asinh"),
    "chlo.acosh": _chain("Acosh"),
    "chlo.atanh": _chain("Atanh"),
}
"""Functions by the name of an operation, a composite or a custom call."""
