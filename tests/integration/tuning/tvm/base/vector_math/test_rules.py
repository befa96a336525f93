"""``exp``, ``erf`` and other functions of CPU kernels, against double precision."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from numpy.typing import NDArray
from tvm import te, tirx

from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.tvm.base.target import tvm_target  # its import puts the rules in

_N = 1 << 16
_SPECIALS = [math.nan, math.inf, -math.inf, 0.0, -0.0, 88.72, 89.0, -86.0, -88.0, -104.0]
_erf = np.vectorize(math.erf)


def evaluate(function: Callable[[Any], Any], values: NDArray[Any], *, vector: bool) -> NDArray[Any]:
    source = te.placeholder(values.shape, str(values.dtype), name="given")
    schedule = tvm.s_tir.Schedule(
        te.create_prim_func([source, te.compute(values.shape, lambda i: function(source[i]), name="made")])
    )
    if vector:
        _, inner = schedule.split(schedule.get_loops(schedule.get_sblock("made"))[0], [None, 8])
        schedule.vectorize(inner)
    kernel = tvm.tirx.build(schedule.mod, target=tvm_target(parse_target("host")))
    output = tvm.runtime.empty(values.shape, str(values.dtype))
    kernel(tvm.runtime.tensor(values), output)
    result: NDArray[Any] = output.numpy()
    return result


def arguments() -> NDArray[np.float32]:
    rng = np.random.default_rng(0)
    return np.concatenate(
        [rng.uniform(-86, 88, _N // 2), rng.normal(size=_N // 2 - 16), np.resize(_SPECIALS, 16)]
    ).astype(np.float32)


def check(
    function: Callable[[Any], Any],
    reference: Callable[[Any], Any],
    values: NDArray[np.float32],
    error: float,
    *,
    vector: bool,
    small: float = 2.4e-38,
) -> None:
    """Compare a kernel with a function of float64, infinities, NaN and the signs of zeros included."""
    with np.errstate(all="ignore"):
        expected = reference(values.astype(np.float64)).astype(np.float32)
    actual = evaluate(function, values, vector=vector)
    normal = np.isfinite(expected) & (np.abs(expected) > small)
    np.testing.assert_allclose(actual[normal], expected[normal], rtol=error)
    tiny = ~normal & np.isfinite(expected)
    np.testing.assert_allclose(actual[tiny], expected[tiny], atol=small)
    np.testing.assert_array_equal(actual[~np.isfinite(expected)], expected[~np.isfinite(expected)])
    np.testing.assert_array_equal(np.signbit(actual[expected == 0]), np.signbit(expected[expected == 0]))


@pytest.mark.parametrize("vector", [True, False])
@pytest.mark.parametrize(
    ("function", "reference", "error"), [(tirx.exp, np.exp, 3e-7), (tirx.erf, _erf, 4e-7)]
)
def test_float32(function: Any, reference: Any, error: float, *, vector: bool) -> None:
    values = arguments()
    with np.errstate(over="ignore"):
        expected = reference(values.astype(np.float64)).astype(np.float32)
    actual = evaluate(function, values, vector=vector)
    normal = np.isfinite(expected) & (np.abs(expected) > 2.4e-38)
    np.testing.assert_allclose(actual[normal], expected[normal], rtol=error)
    np.testing.assert_array_equal(np.isnan(actual), np.isnan(expected))
    np.testing.assert_array_equal(np.isposinf(actual), np.isposinf(expected))
    small = ~normal & np.isfinite(expected)
    assert np.all(np.abs(actual[small]) <= 2.4e-38)
    assert np.all(np.signbit(actual[values == 0]) == np.signbit(expected[values == 0]))


@pytest.mark.parametrize("vector", [True, False])
def test_tanh_keeps_its_digits_near_zero(*, vector: bool) -> None:
    rng = np.random.default_rng(0)
    sizes = np.exp(rng.uniform(-86, 4, _N - 16)) * rng.choice([1, -1], _N - 16)
    values = np.concatenate([sizes, np.resize(_SPECIALS, 16)]).astype(np.float32)
    check(tirx.tanh, np.tanh, values, 4e-7, vector=vector)


def test_tanh_ends_at_one_exactly_and_is_never_beyond() -> None:
    values = np.concatenate([np.linspace(9.02, 30, 62), [1e30, math.inf]]).astype(np.float32)
    assert np.all(evaluate(tirx.tanh, values, vector=True) == 1)
    assert np.all(evaluate(tirx.tanh, -values, vector=True) == -1)
    assert np.max(evaluate(tirx.tanh, np.linspace(3, 9.1, _N).astype(np.float32), vector=True)) == 1


@pytest.mark.parametrize("vector", [True, False])
def test_tanh_of_float64(*, vector: bool) -> None:
    rng = np.random.default_rng(0)
    values = np.exp(rng.uniform(-80, 4, _N)) * rng.choice([1, -1], _N)
    np.testing.assert_allclose(evaluate(tirx.tanh, values, vector=vector), np.tanh(values), rtol=1e-15)


@pytest.mark.parametrize("vector", [True, False])
@pytest.mark.parametrize(
    ("function", "reference"),
    [(tirx.log, np.log), (tirx.log2, np.log2), (tirx.log10, np.log10), (tirx.log1p, np.log1p)],
)
def test_logarithms(function: Any, reference: Any, *, vector: bool) -> None:
    rng = np.random.default_rng(0)
    sizes = np.exp(rng.uniform(-103, 88, _N // 2))
    near = np.concatenate([1 + rng.normal(size=_N // 4) * 1e-3, rng.normal(size=_N // 4 - 16) * 1e-4])
    values = np.concatenate([sizes, near, [1.0, -1.0, 1e-45, *_SPECIALS[:6], *_SPECIALS[:7]]])
    check(function, reference, values.astype(np.float32), 4e-7, vector=vector)


@pytest.mark.parametrize("vector", [True, False])
def test_atanh_keeps_its_digits_near_zero(*, vector: bool) -> None:
    rng = np.random.default_rng(0)
    sizes = np.exp(-np.exp(rng.uniform(-14, 4.3, _N - 16))) * rng.choice([1, -1], _N - 16)
    values = np.concatenate(
        [sizes, np.resize([1.0, -1.0, 1.5, -2.0, 0.0, math.nan, math.inf, -math.inf], 16)]
    )
    check(tirx.atanh, np.arctanh, values.astype(np.float32), 4e-7, vector=vector)


@pytest.mark.parametrize(("function", "reference"), [(tirx.sin, np.sin), (tirx.cos, np.cos)])
def test_sines(function: Any, reference: Any) -> None:
    rng = np.random.default_rng(0)
    wide = rng.uniform(-1, 1, _N // 2) * 2.0 ** rng.uniform(-20, 31, _N // 2)
    turns = np.round(rng.uniform(-1000, 1000, _N // 2 - 8)) * math.pi / 2
    values = np.concatenate([wide, turns, _SPECIALS[:8]]).astype(np.float32)
    check(function, reference, values, 2e-7, vector=True, small=1e-30)
    beyond = np.float32([1e10, -3e20, 3e38, -1e38, 2.0**31, 2.0**32, 1e15, 1e30])
    assert np.all(np.abs(evaluate(function, np.resize(beyond, 64), vector=True)) <= 1)


@pytest.mark.matrix(every=3, each_value=False)
@pytest.mark.parametrize("power", [0.75, -0.75, 2.5, 3.0, 1 / 3, 0.1, -2.0, 100.0, 0.0, math.inf, -math.inf])
def test_powers(power: float) -> None:
    rng = np.random.default_rng(0)
    sizes = np.exp(rng.uniform(-103, 88, _N // 2)) * rng.choice([1, 1, -1], _N // 2)
    near = 1 + rng.normal(size=_N // 2 - 16) * 1e-3
    values = np.concatenate([sizes, near, [1.0, -1.0, 1e-45, *_SPECIALS[:6], *_SPECIALS[:7]]])
    check(
        lambda x: tirx.pow(x, tirx.const(power, "float32")),
        lambda x: np.power(x, np.float64(np.float32(power))),
        values.astype(np.float32),
        4e-7,
        vector=True,
    )


def test_powers_of_one_and_of_nothing() -> None:
    values = np.resize(np.float32([math.nan, math.inf, 0.0, -0.0, 2.5, -3.0, 7.0, 1e9]), 64)
    ones = evaluate(lambda x: tirx.pow(tirx.const(1.0, "float32"), x), values, vector=True)
    assert np.all(ones == 1)
    signs = evaluate(lambda x: tirx.pow(tirx.const(-2.0, "float32"), x), values, vector=True)
    np.testing.assert_array_equal(signs[:8], np.float32([np.nan, np.inf, 1, 1, np.nan, -0.125, -128, np.inf]))


def test_erf_ends_at_one_exactly() -> None:
    values = np.concatenate([np.linspace(4.01, 30, 62), [1e30, math.inf]]).astype(np.float32)
    assert np.all(evaluate(tirx.erf, values, vector=True) == 1)
    assert np.all(evaluate(tirx.erf, -values, vector=True) == -1)


@pytest.mark.parametrize(("dtype", "error"), [("float16", 1e-3), ("float64", 1e-14)])
@pytest.mark.parametrize(
    ("function", "reference"),
    [(tirx.exp, np.exp), (tirx.erf, _erf), (tirx.tanh, np.tanh), (tirx.log1p, np.log1p), (tirx.cos, np.cos)],
)
def test_other_widths(function: Any, reference: Any, dtype: str, error: float) -> None:
    values = np.linspace(-0.9, 3, 64).astype(dtype)
    actual = evaluate(function, values, vector=True)
    np.testing.assert_allclose(
        actual.astype(np.float64), reference(values.astype(np.float64)), rtol=error, atol=1e-12
    )


def test_what_is_made_of_exp_gains_too() -> None:
    values = arguments()
    with np.errstate(over="ignore"):
        expected = 1 / (1 + np.exp(-values.astype(np.float64)))
    np.testing.assert_allclose(evaluate(tirx.sigmoid, values, vector=True), expected, rtol=1e-6, atol=1e-37)


@pytest.mark.parametrize(
    ("function", "reference"), [(tirx.nearbyint, np.rint), (tirx.rsqrt, lambda x: 1 / np.sqrt(x))]
)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_what_tvm_takes_for_functions_of_scalars(function: Any, reference: Any, dtype: str) -> None:
    values = np.linspace(0.5, 63.75, 256).astype(dtype)
    expected = reference(values.astype(np.float64)).astype(dtype)
    actual = evaluate(function, values, vector=True)
    np.testing.assert_allclose(actual, expected, rtol=2e-3 if dtype == "float16" else 2e-7)


@pytest.mark.parametrize("function", [tirx.nearbyint, tirx.rsqrt, tirx.erf])
@pytest.mark.parametrize("target", ["llvm -mcpu=skylake-avx512", "llvm -mtriple=aarch64-linux-gnu"])
def test_vectors_stay_vectors(function: Any, target: str) -> None:
    x = te.placeholder((64, 16), "float32", name="x")
    schedule = tvm.s_tir.Schedule(
        te.create_prim_func(
            [x, te.compute((64, 16), lambda i, j: function(x[i, j]).astype("uint8"), name="y")]
        )
    )
    row, column = schedule.get_loops(schedule.get_sblock("y"))
    schedule.unroll(row)
    schedule.vectorize(column)
    code = str(tvm.tirx.build(schedule.mod, target=tvm_target(parse_target(target))).inspect_source("ll"))
    assert code.count("fptoui <16 x float>") == 64
    assert "fptoui float" not in code


def code_of(function: Callable[[Any], Any], target: str = "host") -> str:
    source = te.placeholder((64,), "float32")
    func = te.create_prim_func([source, te.compute((64,), lambda i: function(source[i]))])
    module = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    return str(tvm.tirx.build(module, target=tvm_target(parse_target(target))).inspect_source("ll"))


@pytest.mark.matrix(every=2, each_value=False)
@pytest.mark.parametrize("target", ["host", "llvm -mtriple=aarch64-linux-gnu"])
@pytest.mark.parametrize(
    ("function", "names"),
    [
        (lambda x: tirx.erf(tirx.exp(x)), ("erff", "llvm.exp")),
        (tirx.tanh, ("tanhf", "llvm.exp")),
        (lambda x: tirx.log1p(x) + tirx.log(x), ("log1pf", "llvm.log")),
        (lambda x: tirx.sin(x) * tirx.cos(x), ("llvm.sin", "llvm.cos")),
        (lambda x: tirx.pow(x, x), ("llvm.pow",)),
    ],
)
def test_no_call_of_the_c_library_is_left(function: Any, names: tuple[str, ...], target: str) -> None:
    assert not any(name in code_of(function, target) for name in names)
