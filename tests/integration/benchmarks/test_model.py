"""The benchmark of whole models: on a tiny one, and its tables on lines made by hand."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from benchmarks.search import json_lines
from benchmarks.search.model import known_half, main
from benchmarks.search.model_table import make_table, model_runs
from repository import ROOT

pytestmark = pytest.mark.exhaustive

EXAMPLE = ROOT / "examples" / "tiny_convnet.py"


def write_tiny_model(path: Path) -> Path:
    spec = importlib.util.spec_from_file_location("examples_tiny_convnet", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    path.write_bytes(module.build_tiny_mlp().SerializeToString())
    return path


def test_it_runs_cold_and_warm_and_makes_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, model = tmp_path / "model.jsonl", write_tiny_model(tmp_path / "mlp.onnx")
    # The budget is looked at between rounds: every task gets its first one before it ends.
    arguments = ["--output", str(path), "--model", str(model), "--minutes", "0.1", "--all-minutes", "0.01"]
    main(arguments)
    assert "## With the records of the cold run" in capsys.readouterr().out
    lines = json_lines.load(path)
    assert [line["kind"] for line in lines] == ["machine", "run", "run", "run", "timing"]
    cold, half, of_all = (line for line in lines if line["kind"] == "run")
    assert [cold["side"], half["side"], of_all["side"]] == ["cold", "half", "all"]
    tasks = {task["workload"] for task in cold["tasks"]}
    assert cold["known"] == []
    assert set(half["known"]) == known_half(cold, 0) < tasks
    assert set(of_all["known"]) == {i["workload"] for i in cold["incumbents"]}
    # Recorded kernels are there when the first round ends.
    known = [i for i in of_all["incumbents"] if i["trials"] == 0]
    assert {i["workload"] for i in known} == set(of_all["known"])
    assert {i["sec"] for i in known} == {of_all["seen"][0][0]}
    # A confirmation may name a kernel that was never the best, which nobody kept: it is not timed again.
    kernels = {i["kernel"] for line in (cold, half, of_all) for i in line["incumbents"]}
    assert set(lines[-1]["costs_sec"]) <= kernels
    timed = {i["workload"] for i in cold["incumbents"] if i["kernel"] in lines[-1]["costs_sec"]}
    assert timed == {i["workload"] for i in cold["incumbents"]}
    for part in ("build", "apply", "measure", "propose", "start"):
        assert cold["split_sec"][part] > 0, part

    main([*arguments, "--table"])
    assert "| mlp | all | 100 % |" in capsys.readouterr().out


MACHINE = {"kind": "machine", "target": "llvm", "toolchain": "tvm-0", "cores": 1}
TASKS = [
    {"workload": workload, "weight": weight, "best_sec": best_sec}
    for workload, weight, best_sec in (("a", 2, 0.1), ("b", 1, 0.3), ("c", 1, 0.05), ("dead", 1, None))
]


def run(side: str, incumbents: list[tuple[float, str, str]], **facts: Any) -> dict[str, Any]:
    """Return a run's line; an incumbent is (seconds, workload, kernel)."""
    return {
        "kind": "run",
        "model": "net",
        "seed": 0,
        "side": side,
        "wall_sec": 100.0,
        "num_trials": 40,
        "latency_sec": 0.4,
        "tasks": TASKS,
        "known": [],
        "incumbents": [
            {"sec": sec, "trials": 0, "workload": workload, "kernel": kernel, "cost_sec": 9.0}
            for sec, workload, kernel in incumbents
        ],
        "split_sec": {"propose": 5.0, "build": 50.0},
    } | facts


COLD = [(1.0, "a", "a1"), (2.0, "b", "b1"), (3.0, "c", "c1"), (50.0, "b", "b2"), (80.0, "a", "a2")]
TIMING = {
    "kind": "timing",
    "model": "net",
    "seed": 0,
    "costs_sec": {"a1": 0.2, "a2": 0.1, "b1": 0.4, "b2": 0.3, "c1": 0.1},
}


def test_a_latency_is_the_weighted_sum_of_what_is_named() -> None:
    (cold,) = model_runs([MACHINE, run("cold", COLD), TIMING])
    assert [at for at, _ in cold.curve] == [3.0, 50.0, 80.0]
    assert [latency for _, latency in cold.curve] == pytest.approx([0.9, 0.8, 0.6])
    assert cold.latency_at(2.0) is None
    assert cold.latency_at(60.0) == pytest.approx(0.8)
    assert cold.latency_at(200.0) is None  # it had stopped
    assert cold.seconds_to(0.85) == 50.0
    assert cold.left_out == 1


def test_a_kernel_that_could_not_be_timed_again_changes_nothing() -> None:
    incumbents = [*COLD, (90.0, "c", "broken")]
    (cold,) = model_runs([MACHINE, run("cold", incumbents), TIMING])
    assert cold.curve[-1] == (80.0, pytest.approx(0.6))


def test_a_kernel_on_record_that_nobody_kept_counts_as_the_cold_runs_last() -> None:
    records = run("all", [(2.0, "a", "confirmed"), (2.0, "b", "b2"), (2.0, "c", "c1")], known=["a", "b", "c"])
    cold, warm = model_runs([MACHINE, run("cold", COLD), records, TIMING])
    assert warm.curve == ((2.0, cold.final_sec),)
    assert warm.left_out == cold.left_out


def test_the_tables_of_cold_and_warm_runs() -> None:
    warm = run("half", [(4.0, "b", "b2"), (5.0, "a", "a1"), (6.0, "c", "c1"), (20.0, "a", "a2")], known=["b"])
    records = run("all", [(2.0, "a", "a2"), (2.0, "b", "b2"), (2.0, "c", "c1")], known=["a", "b", "c"])
    compiled = {
        "kind": "compile",
        "model": "net",
        "seed": 0,
        "latency_sec": {"untuned": 9.0, "tuned": 0.5, "onnxruntime": 0.6},
    }
    table = make_table([MACHINE, run("cold", COLD), warm, records, TIMING, compiled])
    assert "Tasks without a kernel, left out: {'net': 1}." in table
    assert "| net | 40 | 900.00 | 800.00 | 600.00 (400.00) | 80.0 | 80.0 | 80.0 |" in table
    cells = "20.0 / 80.0 = 0.250"
    assert (
        f"| net | half | 50 % | {cells} | {cells} | {cells} | {cells} | 600.00 after 100.0 s | 600.00 |"
        in table
    )
    assert "| net | all | 100 % | 2.0 / 80.0 = 0.025 |" in table
    assert "| net | 9000.00 | 500.00 | 600.00 | 1.20× |" in table


def test_a_warm_run_that_never_gets_there_says_so() -> None:
    warm = run("half", [(4.0, "b", "b1"), (5.0, "a", "a1"), (6.0, "c", "c1")])
    table = make_table([MACHINE, run("cold", COLD), warm, TIMING])
    assert "never / 80.0, 0/1" in table


def test_every_second_task_by_its_share_is_known() -> None:
    cold = {"tasks": TASKS}
    assert known_half(cold, 0) == {"b", "c"}
    assert known_half(cold, 1) == {"a"}


def test_nothing_yet() -> None:
    assert make_table([MACHINE, run("cold", COLD)]) == "no run has ended yet"
