"""The arithmetic of `compare`'s tables, on lines written by hand."""

from __future__ import annotations

from typing import Any

import pytest
from benchmarks.search.compare_table import make_table, side_runs
from benchmarks.search.split import split_cells, split_of
from benchmarks.search.stock import split as stock_split

pytestmark = pytest.mark.exhaustive

MACHINE = {
    "kind": "machine",
    "target": "llvm",
    "toolchain": "tvm-0",
    "peak": {"gflops": 90.0, "fastest_gflops": 100.0},
}
SPLIT = {"propose": 1.0, "fit": 1.0, "apply": 2.0, "build": 10.0, "measure": 5.0, "start": 0.0, "wait": 1.0}


def run(
    side: str, incumbents: list[tuple[float, int, str]], *, seed: int = 0, trials: int = 64
) -> dict[str, Any]:
    """Return a run's line; an incumbent is (seconds, trials, kernel), and the cost that the run saw is ignored."""
    return {
        "kind": "run",
        "task": "net/conv",
        "workload": "w",
        "flops": 1e9,
        "seed": seed,
        "side": side,
        "wall_sec": 20.0,
        "trials": [[1.0, 0.5]] * trials,
        "failures": ["x"],
        "incumbents": [
            {"sec": sec, "trials": count, "cost_sec": 123.0, "kernel": kernel}
            for sec, count, kernel in incumbents
        ],
        "split_sec": SPLIT,
    }


def timing(costs_sec: dict[str, float], *, seed: int = 0) -> dict[str, Any]:
    return {"kind": "timing", "workload": "w", "seed": seed, "costs_sec": costs_sec}


def rows_of(table: str, title: str) -> dict[str, list[str]]:
    """Return the rows of one table by their first cell."""
    part = table.split(f"## {title}")[1].split("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("|")]
    return {row[0]: row[1:] for row in rows[2:]}


LINES = [
    MACHINE,
    run("stock", [(60.0, 10, "s-10"), (100.0, 64, "s-64")]),
    run("ga", [(2.0, 8, "g-8"), (9.0, 40, "g-40")]),
    run("xgb-no-prior", [(2.0, 8, "n-8")], trials=16),
    run("xgb", [(1.0, 8, "x-8"), (4.0, 16, "x-16"), (6.0, 30, "x-30")], trials=128),
    run("xgb+history", [(1.0, 8, "h-8")], trials=128),
    timing(
        {
            "s-10": 0.04,
            "s-64": 0.02,
            "g-8": 0.05,
            "g-40": 0.04,
            "n-8": 0.03,
            "x-8": 0.025,
            "x-16": 0.018,
            "x-30": 0.0125,
            "h-8": 0.0125,
        }
    ),
]


def test_sides_are_compared_by_what_the_common_timing_said() -> None:
    runs = {run.side: run for run in side_runs(LINES)}
    assert runs["xgb"].final_sec == 0.0125
    assert runs["xgb"].seconds_to(0.02) == 4.0
    assert runs["ga"].seconds_to(0.02) is None
    assert [runs["xgb"].cost_at(n) for n in (4, 8, 16, 128)] == [None, 0.025, 0.018, 0.0125]
    assert runs["xgb-no-prior"].cost_at(32) is None  # it had stopped


def test_the_table_of_seconds_to_stocks_best() -> None:
    rows = rows_of(make_table(LINES), "Seconds until stock's own best is reached")
    head = ["ga", "xgb", "xgb+history", "xgb-no-prior"]
    cells = dict(zip(head, rows["net/conv"][2:], strict=True))
    assert rows["net/conv"][:2] == ["50", "100.0"]
    assert cells == {
        "ga": "never (–, 0/1)",
        "xgb": "4.0 (25.00×, 1/1)",
        "xgb+history": "1.0 (100.00×, 1/1)",
        "xgb-no-prior": "never (–, 0/1)",
    }
    careful = dict(zip(head, rows["the same, 1× where not reached"][2:], strict=True))
    assert careful["xgb"] == "25.00×"
    assert careful["ga"] == "1.00×"


def test_the_tables_of_throughput() -> None:
    table = make_table(LINES)
    against = rows_of(table, "Throughput against stock's at 64 trials")
    assert against["xgb"] == ["1.11×", "1.60×", "1.60×", "1.60×"]
    assert against["ga"][:3] == ["0.40×", "0.40×", "0.50×"]
    part = table.split("## Best throughput")[1].split("\n## ")[0]
    row = next(line for line in part.splitlines() if "| xgb |" in line)
    assert row == "| net/conv | xgb | 56 | 80 | 80 | 80 | 80 % | 20.0 | 128 | 1 |"


def test_medians_and_geometric_means_are_over_seeds() -> None:
    lines = [
        *LINES,
        run("stock", [(50.0, 64, "s")], seed=1),
        run("xgb", [(5.0, 8, "x")], seed=1),
        timing({"s": 0.02, "x": 0.02}, seed=1),
    ]
    rows = rows_of(make_table(lines), "Seconds until stock's own best is reached")
    assert rows["net/conv"][3] == "4.5 (15.81×, 2/2)"


def test_a_kernel_that_could_not_be_timed_was_never_named() -> None:
    lines = [MACHINE, run("xgb", [(1.0, 8, "broken"), (4.0, 16, "good")]), timing({"good": 0.02})]
    (side_run,) = side_runs(lines)
    assert side_run.incumbents == ((4.0, 16, 0.02),)


def test_runs_wait_for_their_timing_and_the_last_one_counts() -> None:
    untimed = [MACHINE, run("xgb", [(1.0, 8, "x")])]
    assert make_table(untimed) == "nothing has been compared yet"
    twice = [*untimed, timing({"x": 0.5}), timing({"x": 0.25})]
    assert side_runs(twice)[0].final_sec == 0.25


def test_the_split_of_seconds() -> None:
    clock = {"ask": 3.0, "fit": 1.0, "tell": 0.5, "build": 10.0, "measure": 4.0, "space": 1.0}
    parts = split_of({**clock, "build_cpu": 20.0, "apply_cpu": 2.0}, 20.0)
    assert parts == {
        "propose": 2.5,
        "fit": 1.0,
        "apply": 1.0,
        "build": 9.0,
        "measure": 4.0,
        "start": 1.0,
        "wait": 1.5,
    }
    assert split_of({}, 2.0)["wait"] == 2.0
    assert split_cells([(20.0, parts), (20.0, parts)])[-1] == "22.5"


def test_stocks_split_is_by_its_profiler() -> None:
    profile = {
        "SendToBuilder": 10.0,
        "SendToRunner": 1.0,
        "JoinRunnerFutures": 4.0,
        "EvoSearch/UpdateCostModel": 2.0,
    }
    assert stock_split(profile, 100.0) == pytest.approx(
        {"build": 10.0, "measure": 5.0, "fit": 2.0, "propose": 83.0}
    )
