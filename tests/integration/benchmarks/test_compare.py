"""The comparison of tuners on two small tasks: it runs, resumes after a kill, and makes a table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks.search import json_lines
from benchmarks.search.compare import Comparison, main, parse, sides_of
from benchmarks.search.ours import tuner_options
from benchmarks.search.tasks import BenchTask

from tunefarm_tuning.testing.workloads import sample_task

pytestmark = pytest.mark.exhaustive

KERNEL_SIDES = ["ga", "xgb-no-prior+history"]


def tasks() -> list[BenchTask]:
    return [
        BenchTask(name=f"sample/matmul-{n}", kind="dense", task=sample_task("matmul", n=n)) for n in (32, 64)
    ]


def lines_of(path: Path, kind: str) -> list[dict[str, Any]]:
    return [line for line in json_lines.load(path) if line["kind"] == kind]


def test_it_runs_and_resumes_and_makes_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "compare.jsonl"
    arguments = ["--output", str(path), "--no-stock", "--trials", "4", "--no-prior", "--history"]
    options = parse([*arguments, "--tuners", "ga"])
    assert sides_of(options) == KERNEL_SIDES
    bench_tasks = tasks()

    comparison = Comparison(path, bench_tasks, options)
    comparison.measure_peak()
    comparison.run(bench_tasks[0], 0, KERNEL_SIDES[:1])
    comparison.run(bench_tasks[1], 0, KERNEL_SIDES)
    runs = lines_of(path, "run")
    assert [(run["task"], run["side"]) for run in runs] == [
        ("sample/matmul-32", "ga"),
        ("sample/matmul-64", "ga"),
        ("sample/matmul-64", "xgb-no-prior+history"),
    ]
    for run in runs:
        assert 1 <= len(run["trials"]) <= 4
        assert run["incumbents"]
        assert run["split_sec"]["build"] > 0
        assert run["split_sec"]["apply"] > 0
    (machine,) = lines_of(path, "machine")
    assert machine["peak"]["fastest_gflops"] >= machine["peak"]["gflops"] > 0
    timings = {line["task"]: line["costs_sec"] for line in lines_of(path, "timing")}
    assert set(timings["sample/matmul-64"]) == {i["kernel"] for run in runs[1:] for i in run["incumbents"]}

    # Killed while it wrote the last timing: that alone is done again.
    complete = path.read_bytes()
    path.write_bytes(complete[:-20])
    Comparison(path, bench_tasks, options).run(bench_tasks[1], 0, KERNEL_SIDES)
    assert len(lines_of(path, "run")) == len(runs)
    assert len(lines_of(path, "timing")) == 2

    main(["--output", str(path), "--table"])
    table = capsys.readouterr().out
    assert "| sample/matmul-64 | xgb-no-prior+history |" in table
    assert "## Where the seconds go" in table


@pytest.mark.parametrize(
    ("arguments", "sides"),
    [
        ([], ["stock", "random", "ga", "xgb"]),
        (["--no-prior"], ["stock", "random", "ga", "xgb-no-prior"]),
        (["--history", "--no-stock"], ["random", "ga", "xgb", "xgb+history"]),
        (
            ["--history", "--no-prior", "--tuners", "xgb"],
            ["stock", "xgb-no-prior", "xgb-no-prior+history"],
        ),
    ],
)
def test_the_options_name_the_sides(arguments: list[str], sides: list[str]) -> None:
    assert sides_of(parse(["--output", "x.jsonl", *arguments])) == sides


def test_a_side_says_its_tuner_and_what_it_is_given() -> None:
    assert tuner_options("ga") == ("ga", {}, False)
    assert tuner_options("xgb-no-prior") == ("xgb", {"use_prior": False}, False)
    assert tuner_options("xgb-no-prior+history") == ("xgb", {"use_prior": False}, True)
    with pytest.raises(SystemExit):
        tuner_options("xgb+what")


def test_a_line_that_was_not_finished_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    json_lines.append(path, {"a": 1})
    with path.open("a") as file:
        file.write('{"b": ')
    assert json_lines.load(path) == [{"a": 1}]
    json_lines.append(path, {"c": 2})
    assert [json.loads(line) for line in path.read_text().splitlines()] == [{"a": 1}, {"c": 2}]
