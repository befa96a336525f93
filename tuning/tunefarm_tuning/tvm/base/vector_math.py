"""Compute ``exp``, ``erf``, ``tanh``, logarithms, powers, sines and cosines as polynomials, and all that rounds, in vector instructions.

LLVM has no vector form of them: it takes a vector apart and calls the C library for each element, 2 to 8 ns at a time. A GELU
behind a small matmul then takes longer than the matmul. These rules replace them in every kernel for a CPU, when its
loops are lowered. Operators that TVM builds on ``exp`` (sigmoid, softmax) gain as well. Its ``tanh``, also built on ``exp``, loses digits
near zero.

TVM takes ``nearbyint``, ``rsqrt`` and ``erf`` for functions of scalars, and makes a plain loop of a vector that has one. LLVM finds most of
these loops. Where a tile's are unrolled, it found the first: the activations of quantised networks were written byte by byte.

Errors for float32: ``exp`` within 3e-7 of its value, and 0 below 2^-125; ``erf`` and ``tanh`` within 4e-7 of their values; logarithms and powers within
3e-7; sines and cosines within 2e-7 up to 2^31, beyond which they are some number of -1 to 1. Infinities and NaN come out as in the C
library. ``benchmarks/vector_math.py`` fits the coefficients and measures all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from tunefarm_tuning.tvm.base.tir import nodes_of, walk

_LEVEL = 99
"""Priority of our rules, above TVM's."""

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

_MOST_CALLS = 32
_ERF, _TANH = "tirx.erf", "tirx.tanh"
_VECTORIZABLE = ("tirx.nearbyint", "tirx.rsqrt", _ERF)


def register() -> None:
    """Compute and vectorise functions so in every kernel that this process builds for LLVM from now on."""
    for name in _VECTORIZABLE:
        tvm.ir.Op.get(name).set_attr("TVectorizable", True)
    for name, rule in (("tirx.exp", partial(_rule, _exp)), (_ERF, partial(_rule, _erf)), (_TANH, _tanh_rule)):
        op = tvm.ir.Op.get(name)
        of_tvm = op.get_attr("llvm.FLowerIntrinsic") or op.get_attr("default.FLowerIntrinsic")
        tirx.op.register_intrin_lowering(name, target="llvm", f=rule(of_tvm), level=_LEVEL)


def _rule(approximate: Callable[[Any], Any], of_tvm: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def lower(call: Any) -> Any:
        approximated = _in_float32(approximate, call)
        if approximated is not None:
            return approximated
        value = call.args[0]
        _, _, lanes = _dtype(value).partition("x")
        if lanes and call.op.name == _ERF:  # the C library has no function of vectors
            elements = [tirx.Shuffle([value], [number]) for number in range(int(lanes))]
            return tirx.Shuffle([of_tvm(tirx.erf(each)) for each in elements], list(range(int(lanes))))
        return of_tvm(call)

    return lower


def _tanh_rule(of_tvm: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def lower(call: Any) -> Any:
        approximated = _in_float32(partial(_with_names, _tanh), call)
        return (
            _with_names(partial(_tanh64, of_tvm=of_tvm(call)), call.args[0])
            if approximated is None
            else approximated
        )

    return lower


def _in_float32(approximate: Callable[..., Any], call: Any) -> Any | None:
    """Return an approximation of a call, computed in float32; None in float64, or if it is none of floats."""
    values = list(call.args)
    dtype = _dtype(values[0])
    element, _, lanes = dtype.partition("x")
    if element == "float32":
        return approximate(*values)
    if element in ("float16", "bfloat16"):
        wide = f"float32x{lanes}" if lanes else "float32"
        return tirx.Cast(dtype, approximate(*(tirx.Cast(wide, value) for value in values)))
    return None


class _Named:
    """Values that have names: TVM generates code for an expression as often as it is used."""

    def __init__(self) -> None:
        self._values: list[tuple[Any, Any]] = []

    def __call__(self, value: Any) -> Any:
        """Return a variable that has a value."""
        variable = tirx.Var("part", _dtype(value))
        self._values.append((variable, value))
        return variable

    def around(self, result: Any) -> Any:
        """Return an expression of these variables with their values."""
        for variable, value in reversed(self._values):
            result = tirx.Let(variable, value, result)
        return result


def _with_names(approximate: Callable[..., Any], *values: Any) -> Any:
    """Return an approximation that takes `_Named` and arguments with names."""
    named = _Named()
    return named.around(approximate(named, *map(named, values)))


def approximate_alone(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a lowered kernel with approximations of logarithms, powers, sines and cosines, where no function has another's value.

    TVM generates code for an expression as often as it is used, and an approximation uses its argument many times: three of them in one
    another would be a million instructions. The C library computes those, and those of kernels with very many calls.
    """
    if not any(_name_of(call) in _ALONE for call in nodes_of(func.body, tvm.ir.Call)):
        return func  # most kernels: TVM finds that sooner than `walk`
    if sum(_name_of(node) in _ALONE for node in walk(func.body)) > _MOST_CALLS:
        return func

    def without_calls(stmt: Any) -> Any:
        calls = [node for node in walk(stmt.value) if _name_of(node) in _FUNCTIONS]
        if any(_name_of(node) in _FUNCTIONS for call in calls for arg in call.args for node in walk(arg)):
            return stmt

        def of(call: Any) -> Any:
            approximate = _ALONE.get(_name_of(call))
            if approximate is None:
                return call
            approximated = _in_float32(partial(_with_names, approximate), call)
            return call if approximated is None else approximated

        return tvm_ffi.structural_map(stmt, (tvm.ir.Call, of))

    return func.with_body(tvm_ffi.structural_map(func.body, (tirx.BufferStore, without_calls)))


def _name_of(node: Any) -> str:
    return str(node.op.name) if isinstance(node, tvm.ir.Call) and isinstance(node.op, tvm.ir.Op) else ""


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


def _tanh(named: _Named, x: Any) -> Any:
    square, most = named(x * x), _like(x, 1.0)
    result = named(x * _polynomial(square, _TANH_ABOVE) / _polynomial(square, _TANH_BELOW))
    # Never beyond ±1, as a root of 1 - tanh² may follow; and exactly that at the ends, as in `_erf`. This keeps a NaN, too.
    result = tirx.Select(tirx.any(x > _like(x, _TANH_MOST), result > most), most, result)
    return tirx.Select(tirx.any(x < _like(x, -_TANH_MOST), result < -most), -most, result)


def _tanh64(named: _Named, x: Any, *, of_tvm: Any) -> Any:
    """Return a value in float64: TVM's own but for near zero."""
    square = named(x * x)
    near = x + x * square * (_polynomial(square, _TANH64_ABOVE) / _polynomial(square, _TANH64_BELOW))
    return tirx.Select(square < _like(x, _TANH64_NEAR**2), near, of_tvm)


def _log(named: _Named, x: Any) -> Any:
    """Return ln(m · 2^e), where m lies between the root of 1/2 and that of 2."""
    mantissa, exponent = _parts(named, x)
    f = named(mantissa - _like(x, 1.0))
    power = named(tirx.Cast(_dtype(x), exponent))
    rest = f * f * f * _polynomial(f, _LOG) + power * _like(x, _LN2_LOW) - f * f * _like(x, 0.5)
    return _log_at_ends(x, power * _like(x, _LN2_HIGH) + (f + rest))


def _log2(named: _Named, x: Any) -> Any:
    """Return e + log2(m), which is exact for powers of 2."""
    mantissa, exponent = _parts(named, x)
    f = named(mantissa - _like(x, 1.0))
    rest = f + (f * f * f * _polynomial(f, _LOG) - f * f * _like(x, 0.5))
    return _log_at_ends(x, tirx.Cast(_dtype(x), exponent) + rest * _like(x, 1 / math.log(2)))


def _log_at_ends(x: Any, result: Any) -> Any:
    result = tirx.Select(x == _like(x, math.inf), x, result)
    return tirx.Select(
        x > _like(x, 0.0), result, tirx.Select(x == _like(x, 0.0), _like(x, -math.inf), _like(x, math.nan))
    )


def _log1p(named: _Named, x: Any) -> Any:
    """Return ln(1 + x), in proportion to what of x the sum has kept."""
    total = named(x + _like(x, 1.0))
    kept = named(total - _like(x, 1.0))
    result = tirx.Select(kept == _like(x, 0.0), x, _log(named, total) * (x / kept))
    return tirx.Select(x == _like(x, math.inf), x, result)


def _atanh(named: _Named, x: Any) -> Any:
    """Return half of ln(1 + 2x / (1 - x)), of a positive number: of a negative one near -1 the logarithm's argument has few digits."""
    size = named(tirx.Select(x < _like(x, 0.0), -x, x))
    ratio = named(size * _like(x, 2.0) / (_like(x, 1.0) - size))
    result = named(_log1p(named, ratio) * _like(x, 0.5))
    return tirx.Select(x < _like(x, 0.0), -result, result)


def _pow(named: _Named, x: Any, y: Any) -> Any:
    """Return 2^(y · log2 |x|), computed in float64, with the sign and the exceptions of C's ``pow``."""
    size = named(tirx.Select(x < _like(x, 0.0), -x, x))
    mantissa, exponent = _parts(named, size)
    m = named(tirx.Cast(_dtype(x).replace("float32", "float64"), mantissa))
    s = named((m - _like(m, 1.0)) / (m + _like(m, 1.0)))
    square = named(s * s)
    log2 = s * _polynomial(square, _LOG2) + tirx.Cast(_dtype(m), exponent)
    t = tirx.Cast(_dtype(m), y) * log2
    t = named(tirx.max(tirx.min(t, _like(m, _POWER_MOST)), _like(m, -_POWER_MOST)))
    n = named(tirx.floor(t + _like(t, 0.5)))
    rest = named(t - n)
    whole = named(tirx.Cast(_dtype(x).replace("float", "int"), n))
    half = named(whole >> _like(whole, 1))  # a product of two powers reaches what is not normal
    result = tirx.Cast(_dtype(x), _polynomial(rest, _EXP2)) * _power_of_2(half) * _power_of_2(whole - half)
    falls, is_infinite = y < _like(y, 0.0), size == _like(x, math.inf)
    zero, infinity, nan = (_like(x, number) for number in (0.0, math.inf, math.nan))
    result = tirx.Select(size == _like(x, 1.0), _like(x, 1.0), result)
    result = tirx.Select(size == zero, tirx.Select(falls, infinity, zero), result)
    result = named(tirx.Select(is_infinite, tirx.Select(falls, zero, infinity), result))
    is_whole = tirx.floor(y) == y
    is_odd = tirx.all(is_whole, tirx.floor(y * _like(y, 0.5)) * _like(y, 2.0) != y)
    is_negative = tirx.reinterpret(_dtype(x).replace("float", "int"), x) < _like(whole, 0)
    result = named(tirx.Select(tirx.all(is_negative, is_odd), -result, result))
    has_root = tirx.any(x >= zero, is_infinite, is_whole)
    result = tirx.Select(tirx.all(has_root, x == x, y == y), result, nan)
    return tirx.Select(tirx.any(y == zero, x == _like(x, 1.0)), _like(x, 1.0), result)


def _power_of_2(exponent: Any) -> Any:
    bits = (exponent + _like(exponent, _EXPONENT_BIAS)) << _like(exponent, _MANTISSA_BITS)
    return tirx.reinterpret(_dtype(exponent).replace("int", "float"), bits)


def _parts(named: _Named, x: Any) -> tuple[Any, Any]:
    """Return m and e of a positive number m · 2^e, where m lies between the root of 1/2 and that of 2; of others anything."""
    is_small = x < _like(x, _LEAST_NORMAL)
    scaled = tirx.Select(is_small, x * _like(x, 2.0**_MANTISSA_BITS), x)
    integer = _dtype(x).replace("float", "int")
    bits = tirx.reinterpret(integer, scaled)
    above = named(bits - _like(bits, _SQRT_HALF_BITS))
    exponent = above >> _like(above, _MANTISSA_BITS)
    mantissa = (above & _like(above, (1 << _MANTISSA_BITS) - 1)) + _like(above, _SQRT_HALF_BITS)
    less = tirx.Select(is_small, _like(above, _MANTISSA_BITS), _like(above, 0))
    return named(tirx.reinterpret(_dtype(x), mantissa)), exponent - less


def _sine(named: _Named, x: Any, turns: int) -> Any:
    """Return the sine of x and so many right angles, from what x is more than a multiple of the right angle."""
    wide = named(tirx.Cast(_dtype(x).replace("float32", "float64"), x))
    n = named(tirx.floor(wide * _like(wide, 2 / math.pi) + _like(wide, 0.5)))
    for part in _HALF_PI:
        wide = wide - n * _like(wide, part)
    n = named(tirx.Select(n > _like(n, -_MOST_TURNS), n, _like(n, -_MOST_TURNS)))
    n = tirx.Select(n < _like(n, _MOST_TURNS), n, _like(n, _MOST_TURNS))
    turn = tirx.Cast(_dtype(x).replace("float", "int"), n)
    turn = named(turn + _like(turn, turns))
    r = named(tirx.Cast(_dtype(x), wide))
    most = _like(x, 0.7854)
    r = named(tirx.Select(r > most, most, tirx.Select(r < -most, -most, r)))
    square = named(r * r)
    sine = tirx.Select(r == _like(x, 0.0), r, r + r * square * _polynomial(square, _SIN))
    cosine = _like(x, 1.0) - square * _like(x, 0.5) + square * square * _polynomial(square, _COS)
    result = named(tirx.Select((turn & _like(turn, 1)) == _like(turn, 0), sine, cosine))
    return tirx.Select((turn & _like(turn, 2)) == _like(turn, 0), result, -result)


def _polynomial(x: Any, coefficients: Sequence[float]) -> Any:
    result = _like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        result = result * x + _like(x, coefficient)
    return result


def _like(value: Any, number: float) -> Any:
    return tirx.const(number, _dtype(value))


def _dtype(value: Any) -> str:
    return str(value.expr_ty().dtype)


_ALONE: Mapping[str, Callable[..., Any]] = {
    "tirx.log": _log,
    "prim.log2": _log2,
    "tirx.log10": lambda named, x: _log(named, x) * _like(x, 1 / math.log(10)),
    "tirx.log1p": _log1p,
    "tirx.atanh": _atanh,
    "tirx.pow": _pow,
    "tirx.sin": partial(_sine, turns=0),
    "tirx.cos": partial(_sine, turns=1),
}
_FUNCTIONS = frozenset(
    {*_ALONE, "tirx.exp", _ERF}
    | {
        f"tirx.{name}"
        for name in ("exp2", "exp10", "tanh", "sigmoid", "tan", "sinh", "cosh", "asinh", "acosh", "atanh")
    }
)
