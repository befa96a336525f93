"""Kernels that round are recognised: their outputs may differ by one step where a float ties."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tvm import te, tirx, topi

from tunefarm_tuning.reference.comparison import BFLOAT16
from tunefarm_tuning.tvm.tasks.extract import rounding_of, rounds_values


@pytest.mark.parametrize(
    ("compute", "rounds"),
    [
        (lambda x: tirx.round(x) * 0.5, True),
        (tirx.nearbyint, True),
        (tirx.floor, True),
        (tirx.ceil, True),
        (tirx.trunc, True),
        (lambda x: x.astype("int8"), True),
        (lambda x: x * 2.0, False),
        (lambda x: x.astype("bfloat16"), False),
        (tirx.exp, False),
    ],
    ids=["round", "nearbyint", "floor", "ceil", "trunc", "cast", "product", "narrow", "exp"],
)
def test_which_kernels_round(compute: Callable[[Any], Any], rounds: bool) -> None:
    data = te.placeholder((8,), "float32", "data")
    func = te.create_prim_func([data, te.compute((8,), lambda i: compute(data[i]))])
    assert rounds_values(func) is rounds


def test_rounding_where_to_read_from_is_none() -> None:
    data = te.placeholder((8,), "float32", "data")

    def neighbour(i: Any) -> Any:
        position = tirx.floor(i.astype("float32") * 0.4)
        return data[position.astype("int32")] * 0.5

    assert not rounds_values(te.create_prim_func([data, te.compute((8,), neighbour)]))


@pytest.mark.parametrize(
    ("reduce", "dtype", "rounding"),
    [
        (topi.sum, "float16", BFLOAT16),
        (topi.sum, "float32", ""),
        (topi.max, "float16", ""),
        (topi.min, "float16", ""),
        (topi.argmax, "float16", ""),
    ],
    ids=["sum", "wide", "max", "min", "argmax"],
)
def test_only_sums_of_float16_lose_digits(reduce: Callable[..., Any], dtype: str, rounding: str) -> None:
    data = te.placeholder((4, 8), dtype, "data")
    assert rounding_of(te.create_prim_func([data, reduce(data, axis=1)])) == rounding
