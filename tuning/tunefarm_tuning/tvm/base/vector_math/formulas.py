"""Formulas of ``exp``, ``erf``, ``tanh``, logarithms, powers, sines and cosines that TVM compiles to vector instructions.

Errors for float32: ``exp`` within 3e-7 of its value, and 0 below 2^-125; ``erf`` and ``tanh`` within 4e-7 of their values; logarithms and powers within
3e-7; sines and cosines within 2e-7 up to 2^31, beyond which they are some number of -1 to 1. Infinities and NaN come out as in the C
library. ``benchmarks/vector_math.py`` fits the coefficients and measures all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tvm import tirx

_EXP = (1.0, 1.0000000379432996, 0.5000000047401629, 0.16666414507167093, 0.041666351637827774, 0.008375210201056221, 0.0013941213136701546)  # fmt: skip
"""Coefficients of a polynomial on ±ln(2)/2."""
_EXP_LEAST, _EXP_MOST = -125 * math.log(2), 128 * math.log(2)
_LN2_HIGH = 0.693359375  # it has few bits, so that its product with a small whole number is exact
_LN2_LOW = math.log(2) - _LN2_HIGH
_EXPONENT_BIAS, _MANTISSA_BITS = 127, 23
_LEAST_NORMAL = 2.0**-126
_SQRT_HALF_BITS = 0x3F3504F3

_LOG = (0.3333333134651184, -0.2499999701976776, 0.20000715553760529, -0.1666780263185501, 0.14249058067798615, -0.12425687164068222, 0.11685419827699661, -0.11479733884334564, 0.06971611827611923)  # fmt: skip
"""Coefficients of a polynomial that is left of ln(1 + f), without its first two terms, for 1 + f from the root of 1/2 to that of 2."""
_LOG2 = (2 / math.log(2), 0.9617966923077108, 0.5770797741323889, 0.41190127604702775, 0.3365874935171558)
"""Coefficients of log2((1 + s) / (1 - s)) / s, in the square of s."""
_EXP2 = (1.0, 0.6931472067028329, 0.24022650922289554, 0.05550327226669895, 0.00961805667843204, 0.0013400428177711937, 0.00015461444724808513)  # fmt: skip
"""Coefficients of a polynomial on ±1/2."""
_POWER_MOST = 160.0
"""Beyond this exponent of 2 a power is infinite, or 0."""

_SIN = (-0.166666641831398, 0.008332747034728527, -0.00019587638962548226)
_COS = (0.0416666641831398, -0.0013888301327824593, 2.4547689463361166e-05)
"""Coefficients of polynomials in the square that are left of both without their first terms, on ±π/4."""
_HALF_PI = (1.570796012878418, 3.139164164167596e-07, 6.223372171896613e-14)
"""Parts of π/2, all positive, of which the first two have few bits: their products with 31 bits are exact."""
_MOST_TURNS = 2.0**31 - 2

_ERF_ABOVE = (1.1283791065216064, 0.1935253143310547, 0.05309910327196121, 0.0038825010415166616, 0.00028454739367589355, 1.9869301013386576e-06)  # fmt: skip
_ERF_BELOW = (1.0, 0.5048398971557617, 0.11534181237220764, 0.015205547213554382, 0.001185368630103767, 3.742076296475716e-05)  # fmt: skip
"""Coefficients of a ratio of polynomials in the square, times the argument."""
_ERF_MOST = 4.0
"""Beyond this argument the value is ±1 in float32."""

_TANH_ABOVE = (1.0, 0.13382697105407715, 0.0034974694717675447, 2.0636005501728505e-05, 1.33845157179735e-08)
_TANH_BELOW = (1.0, 0.4671601951122284, 0.02588440664112568, 0.00032885363907553256, 7.790347922309593e-07)
"""Coefficients of a ratio of polynomials in the square, times the argument: 1 at first, so that near zero the value is the argument."""
_TANH_MOST = 9.011
"""Beyond this argument the value is ±1 in float32."""
_TANH64_ABOVE = (-1614.6876844170845, -99.28772310019185, -0.9643991794250523)
_TANH64_BELOW = (4844.063053251255, 2235.4883906010045, 112.81167849163293, 1.0)
"""Coefficients of a ratio of polynomials in the square that is left without the argument; those of Cephes."""
_TANH64_NEAR = 0.625
"""Below this argument TVM's value has lost digits."""


class Named:
    """Values that have names: TVM generates code for an expression as often as it is used."""

    def __init__(self) -> None:
        self._values: list[tuple[Any, Any]] = []

    def __call__(self, value: Any) -> Any:
        """Return a variable that has a value."""
        variable = tirx.Var("part", dtype_of(value))
        self._values.append((variable, value))
        return variable

    def around(self, result: Any) -> Any:
        """Return an expression of these variables with their values."""
        for variable, value in reversed(self._values):
            result = tirx.Let(variable, value, result)
        return result


def with_names(approximate: Callable[..., Any], *values: Any) -> Any:
    """Return an approximation that takes `Named` and arguments with names."""
    named = Named()
    return named.around(approximate(named, *map(named, values)))


def exp(x: Any) -> Any:
    """Return 2^n · e^r, where x = n · ln 2 + r."""
    n = tirx.floor(x * like(x, 1 / math.log(2)) + like(x, 0.5))
    remainder = x - n * like(x, _LN2_HIGH) - n * like(x, _LN2_LOW)
    exponent = tirx.Cast(dtype_of(x).replace("float", "int"), n)
    # Half of the power, as the whole one is out of range at the upper end.
    bits = (exponent + like(exponent, _EXPONENT_BIAS - 1)) << like(exponent, _MANTISSA_BITS)
    power = tirx.reinterpret(dtype_of(x), bits)
    result = _polynomial(remainder, _EXP) * power * like(x, 2.0)
    # This order keeps a NaN: every comparison with it is false.
    result = tirx.Select(x < like(x, _EXP_LEAST), like(x, 0.0), result)
    return tirx.Select(x > like(x, _EXP_MOST), like(x, math.inf), result)


def erf(x: Any) -> Any:
    """Return a ratio of polynomials in the square, times the argument."""
    square = x * x
    result = x * _polynomial(square, _ERF_ABOVE) / _polynomial(square, _ERF_BELOW)
    # Exactly ±1: a GELU multiplies a large negative number by 1 + erf. This keeps a NaN, too.
    result = tirx.Select(x < like(x, -_ERF_MOST), like(x, -1.0), result)
    return tirx.Select(x > like(x, _ERF_MOST), like(x, 1.0), result)


def tanh(named: Named, x: Any) -> Any:
    """Return a ratio of polynomials in the square, times the argument."""
    square, most = named(x * x), like(x, 1.0)
    result = named(x * _polynomial(square, _TANH_ABOVE) / _polynomial(square, _TANH_BELOW))
    # Never beyond ±1, as a root of 1 - tanh² may follow; and exactly that at the ends, as in `erf`. This keeps a NaN, too.
    result = tirx.Select(tirx.any(x > like(x, _TANH_MOST), result > most), most, result)
    return tirx.Select(tirx.any(x < like(x, -_TANH_MOST), result < -most), -most, result)


def tanh64(named: Named, x: Any, *, of_tvm: Any) -> Any:
    """Return a value in float64: TVM's own but for near zero."""
    square = named(x * x)
    near = x + x * square * (_polynomial(square, _TANH64_ABOVE) / _polynomial(square, _TANH64_BELOW))
    return tirx.Select(square < like(x, _TANH64_NEAR**2), near, of_tvm)


def log(named: Named, x: Any) -> Any:
    """Return ln(m · 2^e), where m lies between the root of 1/2 and that of 2."""
    mantissa, exponent = _parts(named, x)
    f = named(mantissa - like(x, 1.0))
    power = named(tirx.Cast(dtype_of(x), exponent))
    rest = f * f * f * _polynomial(f, _LOG) + power * like(x, _LN2_LOW) - f * f * like(x, 0.5)
    return _log_at_ends(x, power * like(x, _LN2_HIGH) + (f + rest))


def log2(named: Named, x: Any) -> Any:
    """Return the exponent and log2 of the mantissa: exact for powers of 2."""
    mantissa, exponent = _parts(named, x)
    f = named(mantissa - like(x, 1.0))
    rest = f + (f * f * f * _polynomial(f, _LOG) - f * f * like(x, 0.5))
    return _log_at_ends(x, tirx.Cast(dtype_of(x), exponent) + rest * like(x, 1 / math.log(2)))


def _log_at_ends(x: Any, result: Any) -> Any:
    result = tirx.Select(x == like(x, math.inf), x, result)
    return tirx.Select(
        x > like(x, 0.0), result, tirx.Select(x == like(x, 0.0), like(x, -math.inf), like(x, math.nan))
    )


def log1p(named: Named, x: Any) -> Any:
    """Return ln(1 + x), in proportion to what of x the sum has kept."""
    total = named(x + like(x, 1.0))
    kept = named(total - like(x, 1.0))
    result = tirx.Select(kept == like(x, 0.0), x, log(named, total) * (x / kept))
    return tirx.Select(x == like(x, math.inf), x, result)


def atanh(named: Named, x: Any) -> Any:
    """Return half of ln(1 + 2x / (1 - x)), of a positive number: of a negative one near -1 the logarithm's argument has few digits."""
    size = named(tirx.Select(x < like(x, 0.0), -x, x))
    ratio = named(size * like(x, 2.0) / (like(x, 1.0) - size))
    result = named(log1p(named, ratio) * like(x, 0.5))
    return tirx.Select(x < like(x, 0.0), -result, result)


def power(named: Named, x: Any, y: Any) -> Any:
    """Return 2^(y · log2 |x|), computed in float64, with the sign and the exceptions of C's ``pow``."""
    size = named(tirx.Select(x < like(x, 0.0), -x, x))
    mantissa, exponent = _parts(named, size)
    m = named(tirx.Cast(dtype_of(x).replace("float32", "float64"), mantissa))
    s = named((m - like(m, 1.0)) / (m + like(m, 1.0)))
    square = named(s * s)
    log2 = s * _polynomial(square, _LOG2) + tirx.Cast(dtype_of(m), exponent)
    t = tirx.Cast(dtype_of(m), y) * log2
    t = named(tirx.max(tirx.min(t, like(m, _POWER_MOST)), like(m, -_POWER_MOST)))
    n = named(tirx.floor(t + like(t, 0.5)))
    rest = named(t - n)
    whole = named(tirx.Cast(dtype_of(x).replace("float", "int"), n))
    half = named(whole >> like(whole, 1))  # a product of two powers reaches what is not normal
    result = tirx.Cast(dtype_of(x), _polynomial(rest, _EXP2)) * _power_of_2(half) * _power_of_2(whole - half)
    falls, is_infinite = y < like(y, 0.0), size == like(x, math.inf)
    zero, infinity, nan = (like(x, number) for number in (0.0, math.inf, math.nan))
    result = tirx.Select(size == like(x, 1.0), like(x, 1.0), result)
    result = tirx.Select(size == zero, tirx.Select(falls, infinity, zero), result)
    result = named(tirx.Select(is_infinite, tirx.Select(falls, zero, infinity), result))
    is_whole = tirx.floor(y) == y
    is_odd = tirx.all(is_whole, tirx.floor(y * like(y, 0.5)) * like(y, 2.0) != y)
    is_negative = tirx.reinterpret(dtype_of(x).replace("float", "int"), x) < like(whole, 0)
    result = named(tirx.Select(tirx.all(is_negative, is_odd), -result, result))
    has_root = tirx.any(x >= zero, is_infinite, is_whole)
    result = tirx.Select(tirx.all(has_root, x == x, y == y), result, nan)
    return tirx.Select(tirx.any(y == zero, x == like(x, 1.0)), like(x, 1.0), result)


def _power_of_2(exponent: Any) -> Any:
    bits = (exponent + like(exponent, _EXPONENT_BIAS)) << like(exponent, _MANTISSA_BITS)
    return tirx.reinterpret(dtype_of(exponent).replace("int", "float"), bits)


def _parts(named: Named, x: Any) -> tuple[Any, Any]:
    """Return m and e of a positive number m · 2^e, where m lies between the root of 1/2 and that of 2; of others anything."""
    is_small = x < like(x, _LEAST_NORMAL)
    scaled = tirx.Select(is_small, x * like(x, 2.0**_MANTISSA_BITS), x)
    integer = dtype_of(x).replace("float", "int")
    bits = tirx.reinterpret(integer, scaled)
    above = named(bits - like(bits, _SQRT_HALF_BITS))
    exponent = above >> like(above, _MANTISSA_BITS)
    mantissa = (above & like(above, (1 << _MANTISSA_BITS) - 1)) + like(above, _SQRT_HALF_BITS)
    less = tirx.Select(is_small, like(above, _MANTISSA_BITS), like(above, 0))
    return named(tirx.reinterpret(dtype_of(x), mantissa)), exponent - less


def sine(named: Named, x: Any, turns: int) -> Any:
    """Return the sine of x and so many right angles, from what x is more than a multiple of the right angle."""
    wide = named(tirx.Cast(dtype_of(x).replace("float32", "float64"), x))
    n = named(tirx.floor(wide * like(wide, 2 / math.pi) + like(wide, 0.5)))
    for part in _HALF_PI:
        wide = wide - n * like(wide, part)
    n = named(tirx.Select(n > like(n, -_MOST_TURNS), n, like(n, -_MOST_TURNS)))
    n = tirx.Select(n < like(n, _MOST_TURNS), n, like(n, _MOST_TURNS))
    turn = tirx.Cast(dtype_of(x).replace("float", "int"), n)
    turn = named(turn + like(turn, turns))
    r = named(tirx.Cast(dtype_of(x), wide))
    most = like(x, 0.7854)
    r = named(tirx.Select(r > most, most, tirx.Select(r < -most, -most, r)))
    square = named(r * r)
    sine = tirx.Select(r == like(x, 0.0), r, r + r * square * _polynomial(square, _SIN))
    cosine = like(x, 1.0) - square * like(x, 0.5) + square * square * _polynomial(square, _COS)
    result = named(tirx.Select((turn & like(turn, 1)) == like(turn, 0), sine, cosine))
    return tirx.Select((turn & like(turn, 2)) == like(turn, 0), result, -result)


def _polynomial(x: Any, coefficients: Sequence[float]) -> Any:
    result = like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        result = result * x + like(x, coefficient)
    return result


def like(value: Any, number: float) -> Any:
    """Return a constant of a value's type."""
    return tirx.const(number, dtype_of(value))


def dtype_of(value: Any) -> str:
    """Return an expression's type, such as ``"float32x8"``."""
    return str(value.expr_ty().dtype)
