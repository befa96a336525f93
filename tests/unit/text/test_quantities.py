"""Quantities as people read them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunefarm_text import quantities as q

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
    ("shown", "text"),
    [
        (q.ratio(47.09), "47.1×"),
        (q.ratio(0.8499), "0.85×"),
        (q.ratio(None), "–"),
        (q.signed_percent(0.5), "50.0 %"),
        (q.signed_percent(-0.031), "−3.1 %"),
        (q.error(1.43e-5), "1.43e-5"),
        (q.error(0.0), "0"),
        (q.error(2.5e11), "2.50e+11"),
        (q.size(47_146_181), "47.1 MB"),
        (q.size(None), "–"),
        (q.whole_number(11_699_112), "11,699,112"),
        (q.flops_per_sec(2e9, 0.1), "20.0 GFLOP/s"),
        (q.rate(1.234e12, "FLOP/s"), "1.23 TFLOP/s"),
        (q.rate(25.6e9, "B/s"), "25.6 GB/s"),
        (q.rate(12.0, "B/s"), "12.0 B/s"),
        (q.rate(None, "B/s"), "–"),
        (q.flops_per_sec(None, 0.1), "–"),
        (q.plural(1, "kernel"), "1 kernel"),
        (q.plural(2000, "trial"), "2,000 trials"),
        (q.utc_minute(1.8e9), "2027-01-15 08:00 UTC"),
        (q.tick(0.05), "50 ms"),
        (q.tick(0.0), "0"),
        (q.tensor({"shape": [1, 3], "dtype": "float32"}), "1×3 float32"),
        (q.tensor({"shape": []}), "scalar"),
        (q.kernel_shapes([]), ""),
    ],
)
def test_other_units(shown: str, text: str) -> None:
    assert shown == text


def test_shapes_of_a_kernel() -> None:
    first, result = {"shape": [1, 8], "dtype": "float32"}, {"shape": [8], "dtype": "float32"}
    assert q.kernel_shapes([first, first, result]) == "1×8, 1×8 → 8 float32"
    assert q.kernel_shapes([result]) == "8 float32"
    assert q.ascii_kernel_shapes([first, first, result]) == "1x8, 1x8 -> 8 float32"
    assert q.kernel_shapes([first, {"shape": [8], "dtype": "int64"}]) == "1×8 float32 → 8 int64"


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (q.latency(None), "–"),
        (q.latency(0.00812), "8.12 ms"),
        (q.latency(1.5), "1.5 s"),
        (q.latency(3e-8), "30 ns"),
        (q.duration(0), "0 s"),
        (q.duration(4.25), "4.2 s"),
        (q.duration(59.7), "1 min 00 s"),
        (q.duration(245), "4 min 05 s"),
        (q.duration(7260), "2 h 01 min"),
        (q.duration(200_000), "2 d 7 h"),
        (q.size(192), "192 B"),
        (q.size(44_700_000), "44.7 MB"),
        (q.number(12_345), "12,345"),
        (q.number(11_700_000), "11.7 M"),
        (q.percent(199 / 200), "> 99 %"),
        (q.percent(1.0), "100 %"),
        (q.percent(0.123), "12 %"),
        (q.percent(0.012), "1.2 %"),
        (q.percent(0.0004), "< 0.1 %"),
        (q.percent(0.0), "0.0 %"),
        (q.change(0.06), "+6.0 %"),
        (q.change(-0.031), "−3.1 %"),
        (q.temperature(46.8), "47 °C"),
        (q.clock(3410.0), "3.41 GHz"),
        (q.flops_per_sec(2e9, 0.5), "4.00 GFLOP/s"),
        (q.flops_per_sec(2e9, None), "–"),
        (q.rate(272.4e9, "FLOP/s"), "272 GFLOP/s"),
        (q.rate(1.234e12, "FLOP/s"), "1.23 TFLOP/s"),
        (q.rate(25.6e9, "B/s"), "25.6 GB/s"),
        (q.rate(1234.0, "B/s"), "1,234 B/s"),
        (q.rate(None, "B/s"), "–"),
        (q.figures(31250.0), "31,250"),
        (q.figures(0.5), "0.50"),
        (q.plural(1, "trial"), "1 trial"),
        (q.plural(1234, "trial"), "1,234 trials"),
        (q.shape([1, 3], "float32"), "1×3 float32"),
        (q.budget({"wall_sec": 600, "trials": 5}), "10 min 00 s, 5 trials"),
        (q.budget({"job_sec": 600, "wall_sec": None}), "10 min 00 s for the whole job"),
        (q.budget({"job_sec": 600}, "sweep"), "10 min 00 s for the whole sweep"),
        (q.budget({"job_sec": 60, "wall_sec": 31.0}), "1 min 00 s for the whole job, 31 s of search"),
        (q.iso(0.0), "1970-01-01T00:00:00Z"),
    ],
)
def test_every_quantity_has_its_unit(shown: str, text: str) -> None:
    assert shown == text


def test_the_unit_fits_the_quantity() -> None:
    assert [q.latency(sec) for sec in (None, 1.5, 0.0123, 2.5e-5, 4e-9, 0.9996)] == [
        "–",
        "1.5 s",
        "12.3 ms",
        "25 µs",
        "4 ns",
        "1000 ms",
    ]
    assert [q.duration(sec) for sec in (3.2, 61, 3700)] == ["3.2 s", "1 min 01 s", "1 h 01 min"]
    assert [q.size(n) for n in (12, 46_800_000, 3_000_000_000_000)] == ["12 B", "46.8 MB", "3000.0 GB"]
    assert q.ratio(1.5) == "1.50×"
    assert q.ratio(None) == "–"
    assert q.shape((), "int64") == "scalar int64"


def test_many_names_are_the_first_and_how_many_more() -> None:
    assert [q.some_of("abcde"[:count], 3) for count in (0, 3, 5)] == ["", "a, b, c", "a, b, c and 2 more"]


def test_a_speed_up_names_what_it_is_over() -> None:
    assert q.over("1.24×", "ONNX Runtime") == "1.24× ONNX Runtime"
    assert q.over(q.speedup(1.0, 0.1, 33.0), "ONNX Runtime") == "not known (ONNX Runtime)"


def test_a_latency_is_called_disturbed_where_no_ratio_says_much_of_it() -> None:
    assert q.is_disturbed([(0.18, 4.0), (0.9, 9.0)])
    assert not q.is_disturbed([(0.18, 4.0), (0.9, 2.0)])
    assert not q.is_disturbed([(None, None)])
    assert not q.is_disturbed([])


def test_a_ratio_to_itself_does_not_tell_that_a_timing_was_quiet() -> None:
    itself, wild, known = (1.0, 1.0), (0.01, 4.0), (1.0, 1.3)
    assert q.is_disturbed([itself, wild]), "an artifact that fell back is its untuned network"
    assert not q.is_disturbed([itself, wild, known])
    assert not q.is_disturbed([itself])
