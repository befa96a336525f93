"""Compute ``exp`` and ``erf`` as polynomials, and all that rounds, in vector instructions.

LLVM has no vector form of them: it takes a vector apart and calls the C library for each element, 3 to 8 ns at a time. A GELU
behind a small matmul then takes longer than the matmul. These rules replace both in every kernel for a CPU, when its
loops are lowered. Operators that TVM builds on ``exp`` (sigmoid, tanh, softmax) gain as well.

TVM takes ``nearbyint``, ``rsqrt`` and ``erf`` for functions of scalars, and makes a plain loop of a vector that has one. LLVM finds most of
these loops. Where a tile's are unrolled, it found the first: the activations of quantised networks were written byte by byte.

Errors for float32: ``exp`` within 3e-7 of its value, and 0 below 2^-125; ``erf`` within 4e-7 of its value. Infinities and NaN
come out as in the C library. ``benchmarks/vector_math.py`` fits the coefficients and measures both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import tvm
from tvm import tirx

_LEVEL = 99
"""Priority of our rules, above TVM's."""

_EXP = (1.0, 1.0000000379432996, 0.5000000047401629, 0.16666414507167093, 0.041666351637827774, 0.008375210201056221, 0.0013941213136701546)  # fmt: skip
"""Coefficients of a polynomial on ±ln(2)/2."""
_EXP_LEAST, _EXP_MOST = -125 * math.log(2), 128 * math.log(2)
_LN2_HIGH = 0.693359375  # it has few bits, so that its product with a small whole number is exact
_LN2_LOW = math.log(2) - _LN2_HIGH
_EXPONENT_BIAS, _MANTISSA_BITS = 127, 23

_ERF_ABOVE = (1.1283791065216064, 0.1935253143310547, 0.05309910327196121, 0.0038825010415166616, 0.00028454739367589355, 1.9869301013386576e-06)  # fmt: skip
_ERF_BELOW = (1.0, 0.5048398971557617, 0.11534181237220764, 0.015205547213554382, 0.001185368630103767, 3.742076296475716e-05)  # fmt: skip
"""Coefficients of a ratio of polynomials in the square, times the argument."""
_ERF_MOST = 4.0
"""Beyond this argument the value is ±1 in float32."""


_ERF = "tirx.erf"
_VECTORIZABLE = ("tirx.nearbyint", "tirx.rsqrt", _ERF)


def register() -> None:
    """Do so in every kernel that this process builds for LLVM from now on."""
    for name in _VECTORIZABLE:
        tvm.ir.Op.get(name).set_attr("TVectorizable", True)
    for name, approximate in (("tirx.exp", _exp), (_ERF, _erf)):
        op = tvm.ir.Op.get(name)
        own = op.get_attr("llvm.FLowerIntrinsic") or op.get_attr("default.FLowerIntrinsic")
        tirx.op.register_intrin_lowering(name, target="llvm", f=_rule(approximate, own), level=_LEVEL)


def _rule(approximate: Callable[[Any], Any], own: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def lower(call: Any) -> Any:
        value = call.args[0]
        dtype = str(value.expr_ty().dtype)
        element, _, lanes = dtype.partition("x")
        if element == "float32":
            return approximate(value)
        if element in ("float16", "bfloat16"):
            wide = f"float32x{lanes}" if lanes else "float32"
            return tirx.Cast(dtype, approximate(tirx.Cast(wide, value)))
        if lanes and call.op.name == _ERF:  # the C library has no function of vectors
            elements = [tirx.Shuffle([value], [number]) for number in range(int(lanes))]
            return tirx.Shuffle([own(tirx.erf(each)) for each in elements], list(range(int(lanes))))
        return own(call)

    return lower


def _exp(x: Any) -> Any:
    """Return 2^n · e^r, where x = n · ln 2 + r."""
    n = tirx.floor(x * _like(x, 1 / math.log(2)) + _like(x, 0.5))
    remainder = x - n * _like(x, _LN2_HIGH) - n * _like(x, _LN2_LOW)
    exponent = tirx.Cast(_dtype(x).replace("float", "int"), n)
    # Half of the power, as the whole one is out of range at the upper end.
    bits = (exponent + _like(exponent, _EXPONENT_BIAS - 1)) << _like(exponent, _MANTISSA_BITS)
    power = tirx.reinterpret(_dtype(x), bits)
    result = _polynomial(remainder, _EXP) * power * _like(x, 2.0)
    # This order keeps a NaN: every comparison with it is false.
    result = tirx.Select(x < _like(x, _EXP_LEAST), _like(x, 0.0), result)
    return tirx.Select(x > _like(x, _EXP_MOST), _like(x, math.inf), result)


def _erf(x: Any) -> Any:
    square = x * x
    result = x * _polynomial(square, _ERF_ABOVE) / _polynomial(square, _ERF_BELOW)
    # Exactly ±1: a GELU multiplies a large negative number by 1 + erf. This keeps a NaN, too.
    result = tirx.Select(x < _like(x, -_ERF_MOST), _like(x, -1.0), result)
    return tirx.Select(x > _like(x, _ERF_MOST), _like(x, 1.0), result)


def _polynomial(x: Any, coefficients: Sequence[float]) -> Any:
    result = _like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        result = result * x + _like(x, coefficient)
    return result


def _like(value: Any, number: float) -> Any:
    return tirx.const(number, _dtype(value))


def _dtype(value: Any) -> str:
    return str(value.expr_ty().dtype)
