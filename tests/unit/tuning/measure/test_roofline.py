"""The roofline of a kernel: only from figures that were measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tunefarm_tuning.measure.peak import Bandwidth, Peak, Rate
from tunefarm_tuning.measure.roofline import Roofline, kernel_bytes, kernel_dtype, roofline
from tunefarm_tuning.workload.computation import Access, Axis, Computation

KIB, MIB = 1 << 10, 1 << 20

PEAK = Peak(
    key="k",
    threads=4,
    measured_at=1.0,
    flops_per_sec={"float32": Rate(one_core=100e9, all_cores=360e9)},
    bandwidth=(
        Bandwidth(working_set_bytes=256 * KIB, bytes_per_sec=Rate(one_core=200e9, all_cores=800e9)),
        Bandwidth(working_set_bytes=4 * MIB, bytes_per_sec=Rate(one_core=40e9, all_cores=100e9)),
        # The memory's, disturbed: but what memory can do, a cache can do as well.
        Bandwidth(working_set_bytes=16 * MIB, bytes_per_sec=Rate(one_core=50e9, all_cores=90e9)),
        Bandwidth(working_set_bytes=512 * MIB, bytes_per_sec=Rate(one_core=10e9, all_cores=30e9)),
    ),
)


def known(bound: Roofline | None) -> Roofline:
    assert bound is not None
    return bound


def test_a_kernel_that_computes_much_is_bound_by_the_peak() -> None:
    bound = known(
        roofline(2e9, 0.025, peak=PEAK, threads=1, dtype="float32", moved_bytes=1 * MIB)
    )  # 80 GFLOP/s
    assert bound.flops_per_sec == pytest.approx(80e9)
    assert bound.share_of_peak == pytest.approx(0.8)
    assert bound.bound_flops_per_sec == 100e9
    assert bound.memory_bound is False
    assert bound.share_of_bound == bound.share_of_peak


def test_a_kernel_that_moves_much_is_bound_by_the_bandwidth_of_where_its_data_fit() -> None:
    in_memory = known(
        roofline(1e9, 0.2, peak=PEAK, threads=1, dtype="float32", moved_bytes=1e9)
    )  # one operation a byte
    assert in_memory.intensity == 1.0
    assert in_memory.bound_flops_per_sec == pytest.approx(10e9)
    assert in_memory.memory_bound is True
    assert in_memory.share_of_bound == pytest.approx(0.5)
    assert in_memory.share_of_peak == pytest.approx(0.05)
    in_cache = known(roofline(4e6, 1e-4, peak=PEAK, threads=1, dtype="float32", moved_bytes=4e6))
    assert in_cache.bound_flops_per_sec == 100e9, "as fast as the cache that is surely large enough"
    smaller = known(roofline(5e6, 1e-4, peak=PEAK, threads=1, dtype="float32", moved_bytes=5 * MIB))
    assert smaller.bound_flops_per_sec == pytest.approx(50e9 * 5e6 / (5 * MIB)), (
        "no cache is slower than memory"
    )


def test_a_figure_that_a_kernel_disproves_is_not_told() -> None:
    def stands(cost_sec: float, moved_bytes: float) -> Roofline:
        return known(roofline(1e9, cost_sec, peak=PEAK, threads=1, dtype="float32", moved_bytes=moved_bytes))

    a_little_over = stands(1 / 105, 1 * MIB)
    assert a_little_over.share_of_peak == pytest.approx(1.05)
    beyond_the_peak = stands(1 / 200, 1 * MIB)
    assert beyond_the_peak.flops_per_sec == pytest.approx(200e9)
    assert beyond_the_peak.share_of_peak is None
    assert beyond_the_peak.share_of_bound is None
    beyond_the_memory = stands(1 / 20, 1e9)
    assert beyond_the_memory.share_of_peak == pytest.approx(0.2)
    assert beyond_the_memory.share_of_bound is None
    assert beyond_the_memory.memory_bound is None


def test_the_threads_that_were_used_count() -> None:
    def bound(threads: int) -> float | None:
        return known(
            roofline(1e9, 0.1, peak=PEAK, threads=threads, dtype="float32", moved_bytes=1e6)
        ).peak_flops_per_sec

    assert [bound(threads) for threads in (1, 2, 3, 4, 8)] == [100e9, 200e9, 300e9, 360e9, 360e9]
    assert PEAK.memory_bandwidth_on(1) == 10e9
    assert PEAK.memory_bandwidth_on(2) == 20e9
    assert PEAK.memory_bandwidth_on(4) == 30e9


@pytest.mark.parametrize(
    ("changed", "peak_known"),
    [
        ({"peak": None}, False),
        ({"dtype": None}, False),
        ({"dtype": "float16"}, False),
        ({"peak": replace(PEAK, flops_per_sec={})}, False),
        ({"moved_bytes": None}, True),
        ({"peak": replace(PEAK, bandwidth=())}, True),
    ],
)
def test_unknown_figures_are_none(changed: dict[str, object], peak_known: bool) -> None:
    arguments: dict[str, object] = {"peak": PEAK, "dtype": "float32", "moved_bytes": 1e6, "threads": 1}
    bound = known(roofline(1e9, 0.1, **{**arguments, **changed}))  # type: ignore[arg-type]
    assert bound.flops_per_sec == pytest.approx(1e10)
    assert (bound.share_of_peak is not None) == peak_known
    assert (bound.bound_flops_per_sec, bound.share_of_bound, bound.memory_bound) == (None, None, None)


def test_less_than_any_cache_that_was_measured_is_bound_by_the_peak_alone() -> None:
    bound = known(roofline(1e5, 1e-5, peak=PEAK, threads=1, dtype="float32", moved_bytes=1e5))
    assert bound.bound_flops_per_sec == 100e9
    assert PEAK.bandwidth_on(1, 1e5) is None


def test_of_less_than_any_cache_that_was_measured_no_bound_is_told_where_bandwidth_may_be_what_bounds_it() -> (
    None
):
    bound = known(roofline(2e4, 1e-5, peak=PEAK, threads=1, dtype="float32", moved_bytes=1e5))
    assert bound.intensity == pytest.approx(0.2)
    assert bound.share_of_peak is not None
    assert (bound.bound_flops_per_sec, bound.share_of_bound, bound.memory_bound) == (None, None, None)


@pytest.mark.parametrize(("flops", "cost_sec"), [(0.0, 1e-3), (1e6, None), (1e6, 0.0)])
def test_a_kernel_without_operations_or_time_has_none(flops: float, cost_sec: float | None) -> None:
    assert roofline(flops, cost_sec, peak=PEAK, threads=1, dtype="float32", moved_bytes=1e6) is None


def test_json() -> None:
    document = known(roofline(1e9, 0.2, peak=PEAK, threads=1, dtype="float32", moved_bytes=1e9)).to_json()
    assert document["share_of_bound"] == pytest.approx(0.5)
    assert document["memory_bound"] is True
    assert set(document) == {
        "flops_per_sec",
        "peak_flops_per_sec",
        "share_of_peak",
        "intensity",
        "bound_flops_per_sec",
        "share_of_bound",
        "memory_bound",
    }


def spec(*shape: int, dtype: str = "float32") -> dict[str, object]:
    return {"name": "x", "shape": list(shape), "dtype": dtype}


def test_bytes_are_of_the_distinct_buffers() -> None:
    args = [spec(64, 32), spec(32, 16), spec(64, 16), spec(dtype="int64")]
    assert kernel_bytes(args) == 4 * (64 * 32 + 32 * 16 + 64 * 16) + 8
    assert kernel_bytes([*args, spec(4, dtype="e4m3")]) is None, "of one type nobody knows the size"
    assert kernel_bytes([]) is None


def strided_convolution() -> Computation:
    """One in each direction: 28 × 28 of every second of 56 × 56, 8 channels in and 16 out."""
    axes = tuple(
        Axis(extent=extent, reduces=reduces)
        for extent, reduces in ((28, False), (28, False), (16, False), (8, True))
    )
    accesses = (
        Access(itemsize_bytes=4, writes=False, dims=(((0, 2),), ((1, 2),), ((3, 1),))),
        Access(itemsize_bytes=4, writes=False, dims=(((3, 1),), ((2, 1),))),
        Access(itemsize_bytes=4, writes=True, dims=(((0, 1),), ((1, 1),), ((2, 1),))),
    )
    return Computation(axes=axes, accesses=accesses, vector_bytes=64)


def test_bytes_that_a_window_passes_over_do_not_count() -> None:
    args = [spec(56, 56, 8), spec(8, 16), spec(28, 28, 16)]
    touched = 4 * (28 * 28 * 8 + 8 * 16 + 28 * 28 * 16)
    assert kernel_bytes(args, strided_convolution()) == touched
    assert kernel_bytes([spec(4, dtype="e4m3")], strided_convolution()) == touched
    padded = Computation(
        axes=(Axis(extent=56, reduces=False), Axis(extent=3, reduces=True)),
        accesses=(
            Access(itemsize_bytes=4, writes=False, dims=(((0, 1), (1, 1)),)),
            Access(itemsize_bytes=4, writes=True, dims=(((0, 1),),)),
        ),
        vector_bytes=64,
    )
    assert kernel_bytes([spec(56), spec(56)], padded) == 4 * 112, "what is padded need not come from memory"
    assert kernel_bytes([spec(56, 56), spec(56, 56)], padded) == 4 * (58 + 56)


@pytest.mark.parametrize(
    ("dtypes", "expected"),
    [
        (["float32", "float32"], "float32"),
        (["float32", "int64"], "float32"),
        (["float16", "float32"], None),
        (["int8"], None),
        ([], None),
    ],
)
def test_the_type_that_is_computed_in(dtypes: list[str], expected: str | None) -> None:
    assert kernel_dtype([spec(1, dtype=dtype) for dtype in dtypes]) == expected
