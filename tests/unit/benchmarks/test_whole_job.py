"""The table of whole jobs."""

from __future__ import annotations

from benchmarks.whole_job import WholeJob, render


def test_a_job_is_held_against_its_budget() -> None:
    job = WholeJob(
        number=2, budget_sec=60.0, sec=66.0, search_sec=9.04, trials=16, compile_sec=54.1, expected_sec=47.5,
        latency_sec=0.0175, untuned_sec=0.0213,
    )  # fmt: skip
    assert render([job]).splitlines()[-1] == "| 2 | 60 | 66.0 | 1.10 | 9.0 (16) | 54.1 (47.5) | 17.5 (21.3) |"
