"""Tune whole models as a user would: with and without records; show where the seconds go.

    python -m benchmarks.search.model --output out/model.jsonl --minutes 20
    python -m benchmarks.search.model --output out/model.jsonl --model mine.onnx --compile
    python -m benchmarks.search.model --output out/model.jsonl --table

For each model and seed a cold run of so many minutes comes first. Then one is given the cold run's records of half of the tasks
(every second one by share of the model's time; the seed says which half), and one those of all; both end once they have
seen the latency that the cold run ended with (less `--margin`). Then every kernel that was a task's best when some round
ended is timed again, in turn, and only those costs are compared.

Each line is written when it is known, and what is in the file already is not run again.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.search import json_lines
from benchmarks.search.machine import cores_target, machine_facts
from benchmarks.search.model_run import RunPlan, run_model
from benchmarks.search.model_table import SIDES, make_table
from benchmarks.search.retime import retime_on, retiming_runner
from benchmarks.search.tasks import MODELS, model_file

from tunefarm_tuning import History, compile, extract_tasks, import_model  # noqa: A004
from tunefarm_tuning.records.record import TuningRecord, load_records
from tunefarm_tuning.tuner import DEFAULT_TUNER, TUNERS
from tunefarm_tuning.workload.model import Model
from tunefarm_tuning.workload.task import TuningTask


class ModelBenchmark:
    """One file of results, with a folder of kernels and one of records beside it."""

    def __init__(self, path: Path, options: argparse.Namespace) -> None:
        self._path = path
        self._kernels = path.with_suffix(".kernels")
        self._records = path.with_suffix(".records")
        self._options = options
        self._target = cores_target(options.cores)
        self._lines = json_lines.load(path)

    def run(self, name: str) -> None:
        """Run the missing searches of a model."""
        options = self._options
        if not self._find("machine"):
            self._add("machine", **machine_facts() | {"target": self._target.key}, cores=options.cores)
        with tempfile.TemporaryDirectory(prefix="tunefarm-bench-") as folder:
            model = import_model(model_file(name, Path(folder)))
            tasks = extract_tasks(model, self._target, alternatives=False)
            title = Path(name).stem
            for seed in options.seeds:
                sides = [side for side in SIDES if side == "cold" or side in options.sides]
                missing = [side for side in sides if not self._find("run", title, seed, side)]
                for side in missing:
                    self._run(title, seed, side, tasks)
                if missing or not self._find("timing", title, seed):
                    self._retime(title, seed, tasks)
                if options.compile and not self._find("compile", title, seed):
                    self._compile(title, seed, model, Path(folder))

    def _run(self, model: str, seed: int, side: str, tasks: Sequence[TuningTask]) -> None:
        options = self._options
        records: Sequence[TuningRecord] = ()
        goal_sec = None
        if side != "cold":
            cold = self._find("run", model, seed, "cold")[0]
            known = known_half(cold, seed) if side == "half" else {task["workload"] for task in cold["tasks"]}
            earlier = load_records(self._record_path(model, seed, "cold"))
            records = [record for record in earlier if record.workload_key in known]
            goal_sec = (cold["latency_sec"] or 0.0) * (1 - options.margin)
        minutes = {
            "cold": options.minutes,
            "half": options.half_minutes or options.minutes / 2,
            "all": options.all_minutes,
        }
        plan = RunPlan(
            tasks=tasks,
            minutes=minutes[side],
            seed=seed,
            tuner=options.tuner,
            cores=options.cores,
            records=records,
            goal_sec=goal_sec,
        )
        outcome = run_model(plan, kernels=self._kernels, log_path=self._record_path(model, seed, side))
        self._add(
            "run", model=model, seed=seed, side=side, tuner=options.tuner, minutes=plan.minutes, **outcome
        )
        latency_ms = 1e3 * (outcome["latency_sec"] or float("nan"))
        print(
            f"{model} seed {seed} {side}: {latency_ms:.2f} ms, {outcome['num_trials']} trials, {outcome['wall_sec']:.0f} s",
            file=sys.stderr,
            flush=True,
        )

    def _retime(self, model: str, seed: int, tasks: Sequence[TuningTask]) -> None:
        incumbents = [i for line in self._find("run", model, seed) for i in line["incumbents"]]
        costs: dict[str, float] = {}
        with retiming_runner(threads=self._options.cores) as runner:
            for task in tasks:
                names = {i["kernel"] for i in incumbents if i["workload"] == task.workload.key}
                if names:
                    costs |= retime_on(runner, task, {name: self._kernels / name for name in sorted(names)})
        self._add("timing", model=model, seed=seed, costs_sec=costs)

    def _compile(self, title: str, seed: int, model: Model, folder: Path) -> None:
        history = History(load_records(self._record_path(title, seed, "cold")))
        artifact = compile(model, self._target, output=folder / f"{title}-{seed}", history=history)
        self._add(
            "compile",
            model=title,
            seed=seed,
            latency_sec=artifact.manifest["latency_sec"],
            coverage=artifact.manifest["coverage"],
            warnings=artifact.report["warnings"],
        )

    def _record_path(self, model: str, seed: int, side: str) -> Path:
        return self._records / f"{model}-{seed}-{side}.jsonl"

    def _find(
        self, kind: str, model: str | None = None, seed: int | None = None, side: str | None = None
    ) -> list[dict[str, Any]]:
        wanted = {"kind": kind, "model": model, "seed": seed, "side": side}
        conditions = {key: value for key, value in wanted.items() if value is not None}
        return [line for line in self._lines if conditions.items() <= line.items()]

    def _add(self, kind: str, **facts: Any) -> None:
        line = {"kind": kind, **facts}
        json_lines.append(self._path, line)
        self._lines.append(line)


def known_half(cold: Mapping[str, Any], seed: int) -> set[str]:
    """Return every second workload of a run, by share of the model's time: from the first on, or for odd seeds the second."""
    working = [task for task in cold["tasks"] if task["best_sec"] is not None]
    ranked = sorted(working, key=lambda task: (-task["weight"] * task["best_sec"], task["workload"]))
    return {task["workload"] for task in ranked[seed % 2 :: 2]}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, required=True, help="file of results, JSON lines")
    parser.add_argument("--model", nargs="+", default=list(MODELS), help="those, or ONNX files")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--minutes", type=float, default=20.0, help="of the cold run")
    parser.add_argument(
        "--half-minutes", type=float, help="at most, with the records of half of the tasks; half of --minutes"
    )
    parser.add_argument(
        "--all-minutes", type=float, default=2.0, help="at most, with the records of all tasks"
    )
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    parser.add_argument(
        "--margin",
        type=float,
        default=0.01,
        help="how far under the cold run's end a warm run must see itself before it ends (what it sees is flattering)",
    )
    parser.add_argument("--tuner", choices=TUNERS, default=DEFAULT_TUNER)
    parser.add_argument("--cores", type=int, default=1, help="that kernels are made for and run on")
    parser.add_argument(
        "--compile", action="store_true", help="and time the compiled model, and ONNX Runtime"
    )
    parser.add_argument("--fresh", action="store_true", help="delete the file and begin anew")
    parser.add_argument("--table", action="store_true", help="print the tables of what is in the file")
    options = parser.parse_args(arguments)
    if options.table:
        print(make_table(json_lines.load(options.output)))
        return
    if options.fresh:
        options.output.unlink(missing_ok=True)
        for suffix in (".kernels", ".records"):
            shutil.rmtree(options.output.with_suffix(suffix), ignore_errors=True)
    benchmark = ModelBenchmark(options.output, options)
    for model in options.model:
        benchmark.run(model)
    print(make_table(json_lines.load(options.output)))


if __name__ == "__main__":
    main()
