"""The table of intervals beside a load: what counts, what is made again, what holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from benchmarks.disturbed import BUSY, _missing, holds, render, schedule
from benchmarks.search import json_lines

from tunefarm_tuning.core.ratio import Ratio


def line(
    run: int, load: str, value: float, low: float, high: float, *, is_quiet: bool = False
) -> dict[str, Any]:
    return {
        "network": "n",
        "run": run,
        "load": load,
        "value": value,
        "low": low,
        "high": high,
        "is_quiet": is_quiet,
    }


def test_quiet_runs_are_spread_over_the_busy_ones() -> None:
    loads = schedule(20)
    assert (len(loads), loads.count("none")) == (25, 5)
    assert loads[0] == loads[-1] == "none"
    assert {loads.count(load) for load in BUSY} == {6, 7}


def test_the_table_counts_intervals_that_hold_the_quiet_ratio() -> None:
    lines = [
        line(0, "none", 1.0, 0.9, 1.1, is_quiet=True),
        line(1, "none", 9.0, 8.0, 9.9),  # disturbed: no truth
        line(2, "none", 1.2, 1.1, 1.3, is_quiet=True),
        line(3, "bursts", 2.0, 1.1, 4.0),
        line(4, "one core", 2.0, 1.15, 3.0),
        line(5, "bursts", 2.0, 1.19, 3.0),
        line(6, "bursts", 0.5, 0.45, 0.55),
    ]
    row = render(lines).splitlines()[-1]
    assert row == "| n | 1.00 to 1.20 | 1.10 | 1 of 4 | 3 of 4 | 0 | 1.10 to 4.00 | 0.50 to 2.00 |"


def test_without_a_quiet_run_nothing_is_known() -> None:
    row = render([line(0, "none", 1.0, 0.9, 1.1), line(1, "bursts", 2.0, 1.1, 4.0)]).splitlines()[-1]
    assert row.startswith("| n | no quiet run yet, 1 beside a load |")


def test_what_counts_is_not_made_again(tmp_path: Path) -> None:
    output = tmp_path / "runs.jsonl"
    assert len(_missing(output, "n", 5)) == 7
    json_lines.append(output, line(0, "none", 1.0, 0.9, 1.1))
    json_lines.append(output, line(1, "bursts", 1.0, 0.9, 1.1))
    assert [number for number, _ in _missing(output, "n", 5)] == [0, 2, 3, 4, 5, 6]
    json_lines.append(output, line(0, "none", 1.0, 0.9, 1.1, is_quiet=True))
    assert [number for number, _ in _missing(output, "n", 5)] == [2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("ratio", "held"),
    [
        (Ratio(value=2.0, low=1.0, high=3.0), True),
        (Ratio(value=2.0, low=1.6, high=3.0), False),
        (Ratio(value=1.0, low=0.5, high=1.3), False),
        (Ratio(value=1.5), True),
        (Ratio(value=2.0), False),
    ],
)
def test_an_interval_holds_or_does_not(ratio: Ratio, held: bool) -> None:
    assert holds(ratio, 1.4, 1.5) == held
