from __future__ import annotations

from benchmarks.job_seconds import Measured, render


def measured(sec: float, llvm: float) -> Measured:
    return Measured(way="again", sec=sec, kinds={"llvm": llvm, "timing": 1.0}, latency_sec=0.0125)


def test_the_table_has_medians_of_the_runs() -> None:
    runs = [[measured(sec, llvm)] for sec, llvm in ((9.0, 4.0), (12.0, 2.0), (10.0, 3.0))]
    head, _, row = render(runs).splitlines()
    assert head == "| Way | Seconds | llvm | timing | Latency (ms) |"
    assert row == "| again | 10.0 | 3.0 | 1.0 | 12.50 |"
