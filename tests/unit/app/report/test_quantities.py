"""Numbers as a report shows them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunefarm_app.report import quantities as q

UNITS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0.0, "0 s"),
        (7.46e-8, "74.6 ns"),
        (1.45e-4, "145 µs"),
        (0.9994e-3, "999 µs"),
        (0.9996e-3, "1.00 ms"),
        (0.0748, "74.8 ms"),
        (-1.92, "−1.92 s"),
        (59.96, "60.0 s"),
        (725.0, "12 min 5 s"),
    ],
)
def test_seconds(value: float | None, text: str) -> None:
    assert q.seconds(value) == text


@given(st.floats(1e-9, 599.0))
def test_seconds_are_right_to_a_percent(value: float) -> None:
    number, unit = q.seconds(value).split()
    assert float(number) * UNITS[unit] == pytest.approx(value, rel=0.01)


@pytest.mark.parametrize(
    ("told", "text"),
    [
        (q.ratio(47.09), "47.1×"),
        (q.ratio(0.8499), "0.85×"),
        (q.ratio(None), "–"),
        (q.percent(0.5), "50.0 %"),
        (q.percent(-0.031), "−3.1 %"),
        (q.error(1.43e-5), "1.43e-5"),
        (q.error(0.0), "0"),
        (q.error(2.5e11), "2.50e+11"),
        (q.size(47_146_181), "47.1 MB"),
        (q.size(None), "–"),
        (q.number(11_699_112), "11,699,112"),
        (q.flops_per_sec(2e9, 0.1), "20.0 GFLOP/s"),
        (q.per_sec(1.234e12, "FLOP/s"), "1.23 TFLOP/s"),
        (q.per_sec(25.6e9, "B/s"), "25.6 GB/s"),
        (q.per_sec(12.0, "B/s"), "12.0 B/s"),
        (q.per_sec(None, "B/s"), "–"),
        (q.flops_per_sec(None, 0.1), "–"),
        (q.count(1, "kernel"), "1 kernel"),
        (q.count(2000, "trial"), "2,000 trials"),
        (q.when(1.8e9), "2027-01-15 08:00 UTC"),
        (q.tick(0.05), "50 ms"),
        (q.tick(0.0), "0"),
        (q.shape({"shape": [1, 3], "dtype": "float32"}), "1×3 float32"),
        (q.shape({"shape": []}), "scalar"),
        (q.shapes([]), ""),
    ],
)
def test_others(told: str, text: str) -> None:
    assert told == text


def test_shapes_of_a_kernel() -> None:
    first, result = {"shape": [1, 8], "dtype": "float32"}, {"shape": [8], "dtype": "float32"}
    assert q.shapes([first, first, result]) == "1×8, 1×8 → 8 float32"
    assert q.shapes([result]) == "8 float32"
    assert q.shapes([first, {"shape": [8], "dtype": "int64"}]) == "1×8 float32 → 8 int64"
