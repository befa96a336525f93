"""Workload keys are equal for equal computations only."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tvm
from tvm import te, tirx

from tunefarm_tuning.tvm.base.serialization import module_from_text, module_to_text
from tunefarm_tuning.tvm.tasks.workload_key import workload_key


def dense(
    n: int = 8,
    m: int = 16,
    k: int = 32,
    *,
    prefix: str = "",
    dtype: str = "float32",
    scale: float = 1.0,
    order: str = "abc",
    add: bool = True,
    attributes: dict[str, Any] | None = None,
) -> tirx.PrimFunc:
    """``c = scale * (a @ b) + 1``, with every name under control."""
    a = te.placeholder((n, k), dtype, name=f"{prefix}a")
    b = te.placeholder((k, m), dtype, name=f"{prefix}b")
    axis = te.reduce_axis((0, k), name=f"{prefix}axis")
    product = te.compute(
        (n, m), lambda i, j: te.sum(a[i, axis] * b[axis, j], axis=axis), name=f"{prefix}product"
    )
    unit = tirx.const(1.0, dtype)

    def last(i: Any, j: Any) -> Any:
        scaled = product[i, j] * tirx.const(scale, dtype)
        return scaled + unit if add else scaled - unit

    c = te.compute((n, m), last, name=f"{prefix}c", attrs=attributes or {})
    by_letter = {"a": a, "b": b, "c": c}
    return te.create_prim_func([by_letter[letter] for letter in order])


BASE = workload_key(dense())


def test_the_key_is_fixed() -> None:
    # Records are found by it: a change of the encoding must be wanted, and then said by a new format number.
    assert BASE == "41d3a17a79f504a67cbf9123eaf1b155"
    assert len(BASE) == 32


def test_names_do_not_count() -> None:
    assert workload_key(dense(prefix="layer1.<script>")) == BASE


def test_graph_attributes_do_not_count() -> None:
    func = dense().with_attr("global_symbol", "fused_dense_17").with_attr("op_pattern", 4)
    assert workload_key(func) == workload_key(dense().with_attr("global_symbol", "main"))


def test_copies_and_shared_objects_are_the_same() -> None:
    module = tvm.IRModule({"main": dense()})
    assert workload_key(module_from_text(module_to_text(module))["main"]) == BASE


@pytest.mark.parametrize(
    "other",
    [
        {"n": 9},
        {"k": 33},
        {"dtype": "float16"},
        {"scale": 2.0},
        {"scale": 1.0000000000000002, "dtype": "float64"},
        {"scale": float("inf")},
        {"scale": float("nan")},
        {"scale": -0.0},
        {"order": "bac"},
        {"add": False},
        {"attributes": {"schedule_rule": "None"}},
    ],
    ids=str,
)
def test_what_is_computed_counts(other: dict[str, Any]) -> None:
    assert workload_key(dense(**other)) != BASE


def test_attributes_count_by_value_not_by_order() -> None:
    forwards = {"first": 1, "second": "x"}
    backwards = {"second": "x", "first": 1}
    key = workload_key(dense(attributes=forwards))
    assert workload_key(dense(attributes=backwards)) == key
    assert workload_key(dense(attributes={"first": "1", "second": "x"})) != key
    assert workload_key(dense(attributes={"first": 1, "second": "y"})) != key


def test_which_variable_is_meant_counts() -> None:
    def pick(second: bool) -> tirx.PrimFunc:
        a = te.placeholder((4, 4), name="a")
        c = te.compute((4, 4), lambda i, j: a[j, i] if second else a[i, j], name="c")
        return te.create_prim_func([a, c])

    assert workload_key(pick(second=False)) != workload_key(pick(second=True))


def test_deep_expressions_need_no_deep_stack() -> None:
    def chain(length: int) -> tirx.PrimFunc:
        a = te.placeholder((4,), name="a")

        def value(i: Any) -> Any:
            total = a[i]
            for _ in range(length):
                total = total * a[i]
            return total

        return te.create_prim_func([a, te.compute((4,), value, name="c")])

    assert workload_key(chain(1500)) != workload_key(chain(1501))


@pytest.mark.matrix(every=3, each_value=False)
@pytest.mark.parametrize("seed", ["0", "1", "4711"])
def test_every_process_finds_the_same_key(seed: str) -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from test_workload_key import BASE; print(BASE)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert done.stdout.strip() == BASE
