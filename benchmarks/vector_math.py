"""Fit the coefficients of functions in vector instructions, and measure error and speed beside the C library's.

Usage::

    taskset -c 1 python -m benchmarks.vector_math

The coefficients that it prints first are those in `tunefarm_tuning.tvm.base.vector_math.formulas`, rounded to float32 for ``erf`` and ``tanh``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from numpy.polynomial import Chebyshev, Polynomial
from numpy.polynomial.polynomial import polyval
from numpy.typing import NDArray
from tvm import te, tirx

from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.tvm.base.target import tvm_target

_N = 1 << 20
_ROUNDS = 60
_erf = np.vectorize(math.erf)


def fit_exp(degree: int = 6) -> list[float]:
    """Interpolate on ±ln(2)/2, at Chebyshev's points."""
    half = 1.001 * math.log(2) / 2
    fitted = Chebyshev.interpolate(np.exp, degree, domain=[-half, half]).convert(kind=Polynomial)
    return [float(c) for c in fitted.coef]


def fit_ratio(
    function: Callable[[Any], Any], above: int, below: int, end: float, first: float | None = None
) -> tuple[list[float], list[float]]:
    """Fit function(x)/x by a ratio of polynomials in x², by least squares weighted anew until the error is even (Lawson's way).

    The ratio begins with `first`, if that is given.
    """
    points = end * 0.5 * (1 - np.cos(math.pi * (np.arange(4000) + 0.5) / 4000))
    points = points[points > 1e-4]
    square, wanted = points * points, function(points) / points
    known = 0 if first is None else 1
    start = np.full(known, first or 0.0)
    weights, p, q = np.ones_like(points), np.zeros(above + 1), np.array([1.0, *np.zeros(below)])
    for _ in range(_ROUNDS):
        columns = np.hstack(
            [
                np.vander(square, above + 1, increasing=True)[:, known:],
                -wanted[:, None] * np.vander(square, below + 1, increasing=True)[:, 1:],
            ]
        )
        rows = weights / wanted / np.abs(polyval(square, q))
        scale = np.linalg.norm(columns * rows[:, None], axis=0)
        left = (wanted - start.sum()) * rows
        solved = np.linalg.lstsq(columns * rows[:, None] / scale, left, rcond=None)[0] / scale
        p = np.concatenate([start, solved[: above + 1 - known]])
        q = np.concatenate([[1.0], solved[above + 1 - known :]])
        error = np.abs(polyval(square, p) / polyval(square, q) / wanted - 1)
        weights *= (1e-3 + error / error.max()) ** 0.3
        weights /= weights.max()
    return [float(np.float32(c)) for c in p], [float(np.float32(c)) for c in q]


def fit_series(series: Callable[[Any], Any], low: float, high: float, degree: int) -> list[float]:
    """Interpolate at Chebyshev's points what is left of a function without its first terms."""
    fitted = Chebyshev.interpolate(series, degree, domain=[low, high]).convert(kind=Polynomial)
    return [float(c) for c in fitted.coef]


def others() -> dict[str, list[float]]:
    """Return the coefficients of logarithms, powers, sines and cosines."""
    root, quarter = math.sqrt(2), 1.001 * (math.pi / 4) ** 2

    def log_rest(f: Any) -> Any:
        near = sum((-1) ** k * f**k / (k + 3) for k in range(12))
        return np.where(np.abs(f) < 1e-2, near, (np.log1p(f) - f + f * f / 2) / np.where(f == 0, 1, f) ** 3)

    def log2_rest(s: Any) -> Any:
        return 2 / math.log(2) * sum(s**k / (2 * k + 3) for k in range(25))

    def sine_rest(first: int) -> Callable[[Any], Any]:
        sign = 1 if first % 2 == 0 else -1
        return lambda q: sign * sum((-1) ** k * q**k / math.factorial(2 * k + first) for k in range(10))

    return {
        "log": [float(np.float32(c)) for c in fit_series(log_rest, root / 2 - 1, root - 1, 8)],
        "log2, without the first": fit_series(log2_rest, 0, ((root - 1) / (root + 1)) ** 2, 3),
        "exp2": fit_series(np.exp2, -0.5, 0.5, 6),
        "sin": [float(np.float32(c)) for c in fit_series(sine_rest(3), 0, quarter, 2)],
        "cos": [float(np.float32(c)) for c in fit_series(sine_rest(4), 0, quarter, 2)],
    }


def measure(function: Callable[[Any], Any], values: NDArray[np.float32]) -> tuple[NDArray[np.float32], float]:
    """Return the outputs of a kernel for the values, and its nanoseconds per element."""
    source = te.placeholder(values.shape, "float32", name="given")
    schedule = tvm.s_tir.Schedule(
        te.create_prim_func([source, te.compute(values.shape, lambda i: function(source[i]), name="made")])
    )
    schedule.vectorize(schedule.split(schedule.get_loops(schedule.get_sblock("made"))[0], [None, 16])[1])
    kernel = tvm.tirx.build(schedule.mod, target=tvm_target(parse_target("host")))
    args = tvm.runtime.tensor(values), tvm.runtime.empty(values.shape, "float32")
    timer = kernel.time_evaluator("main", tvm.cpu(), number=5, repeat=7)
    seconds = float(np.median([float(sec) for sec in timer(*args).results]))
    return args[1].numpy(), 1e9 * seconds / values.size


def main() -> None:
    print("exp:", fit_exp())
    for name, sides in (
        ("erf", fit_ratio(_erf, 5, 5, 4.0)),
        ("tanh", fit_ratio(np.tanh, 4, 4, 9.02, first=1.0)),
    ):
        print(f"{name}: {sides[0]}, {sides[1]}")
    for name, coefficients in others().items():
        print(f"{name}:", coefficients)
    rng = np.random.default_rng(0)
    values = np.concatenate([rng.uniform(-86, 88, _N // 2), rng.normal(size=_N // 2)]).astype(np.float32)
    calls: dict[str, tuple[Any, Callable[[Any], Any], Any]] = {
        "exp": (tirx.exp, lambda x: tirx.call_pure_extern("float32", "expf", x), np.exp),
        "erf": (tirx.erf, lambda x: tirx.call_pure_extern("float32", "erff", x), _erf),
        "tanh": (tirx.tanh, lambda x: tirx.call_pure_extern("float32", "tanhf", x), np.tanh),
        "log": (tirx.log, lambda x: tirx.call_pure_extern("float32", "logf", x), np.log),
        "log1p": (tirx.log1p, lambda x: tirx.call_pure_extern("float32", "log1pf", x), np.log1p),
        "sin": (tirx.sin, lambda x: tirx.call_pure_extern("float32", "sinf", x), np.sin),
        "cos": (tirx.cos, lambda x: tirx.call_pure_extern("float32", "cosf", x), np.cos),
        "pow": (
            lambda x: tirx.pow(x, tirx.const(0.75, "float32")),
            lambda x: tirx.call_pure_extern("float32", "powf", x, tirx.const(0.75, "float32")),
            lambda x: x**0.75,
        ),
    }
    for name, (ours, libc, exact) in calls.items():
        if name in ("log", "log1p", "pow"):
            values = np.abs(values)
        outputs, ours_ns = measure(ours, values)
        _, libc_ns = measure(libc, values)
        error = np.max(np.abs(outputs / exact(values.astype(np.float64)) - 1)[np.abs(values) > 1e-30])
        print(f"{name}: {ours_ns:.2f} ns, the C library {libc_ns:.2f} ns; largest relative error {error:.1e}")


if __name__ == "__main__":
    main()
