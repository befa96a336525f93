"""Compare stock MetaSchedule with tunefarm's tuners, task by task.

    python -m benchmarks.search.compare --output out/compare.jsonl --quick --seeds 0 1 2
    python -m benchmarks.search.compare --output out/compare.jsonl --table

For each task and seed the sides run one after the other: stock 64 trials, ours 128. Then every kernel that was the best so far
of any side is timed again, in turn, by one and the same code, and only those costs are compared: a side's best after some
seconds or trials is the kernel that it would have named then, at the cost seen then by all alike.

Each line is written when it is known, and what is in the file already is not run again: start it anew after a crash, or
with more tasks, seeds or sides. `--no-prior` and `--history` make other sides of ``xgb`` (see `ours`); a history is of the
cold runs of the same seed that are in the file, of all tasks but the one that is tuned.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.search import json_lines
from benchmarks.search.compare_table import make_table
from benchmarks.search.machine import machine_facts
from benchmarks.search.ours import run_ours
from benchmarks.search.peak import measure_peak
from benchmarks.search.retime import retime
from benchmarks.search.stock import TRIALS as STOCK_TRIALS
from benchmarks.search.stock import add_stock_options, run_stock
from benchmarks.search.tasks import BenchTask, add_options, chosen_tasks

from tunefarm_tuning.records.log import RecordLog
from tunefarm_tuning.records.record import TuningRecord, load_records


class Comparison:
    """One file of results, with a folder of kernels and one of records beside it."""

    def __init__(self, path: Path, tasks: Sequence[BenchTask], options: argparse.Namespace) -> None:
        self._path = path
        self._kernels = path.with_suffix(".kernels")
        self._records = path.with_suffix(".records")
        self._tasks = tasks
        self._options = options
        self._lines = json_lines.load(path)

    def _add(self, line: dict[str, Any]) -> None:
        json_lines.append(self._path, line)
        self._lines.append(line)

    def _run_of(self, task: BenchTask, seed: int, side: str) -> dict[str, Any] | None:
        key = (task.task.workload.key, seed, side)
        runs = (line for line in self._lines if line["kind"] == "run")
        return next((run for run in runs if (run["workload"], run["seed"], run["side"]) == key), None)

    def measure_peak(self) -> None:
        """Measure the core's peak, at each start: its clock rises and falls over the day, and the highest counts."""
        self._add({"kind": "machine", **machine_facts(), "peak": measure_peak()})

    def run(self, task: BenchTask, seed: int, sides: Sequence[str]) -> None:
        """Run the sides that are not in the file yet, then time all kernels of the task and seed again."""
        missing = [side for side in sides if self._run_of(task, seed, side) is None]
        for side in missing:
            began = time.monotonic()
            stem = f"{task.task.workload.key[:12]}-{seed}-{side}"
            outcome = self._run_side(task, seed, side, stem)
            self._add({"kind": "run", **self._head(task, seed), "side": side, **outcome})
            best = outcome["incumbents"][-1]["cost_sec"] if outcome["incumbents"] else float("nan")
            gflops = task.task.workload.flops / best / 1e9
            print(
                f"{task.name} seed {seed} {side}: {gflops:.0f} GFLOP/s, {len(outcome['trials'])} trials, "
                f"{time.monotonic() - began:.0f} s",
                file=sys.stderr,
                flush=True,
            )
        if missing or not self._timed(task, seed):
            self._retime(task, seed)

    def _run_side(self, task: BenchTask, seed: int, side: str, stem: str) -> dict[str, Any]:
        options = self._options
        if side == "stock":
            return run_stock(
                task.task,
                kernels=self._kernels,
                stem=stem,
                trials=options.stock_trials,
                batch=options.batch,
                cores=options.cores,
                build_timeout_sec=options.build_timeout,
                seed=seed,
            )
        earlier = [
            (other.task, self._cold_records(other, seed)) for other in self._tasks if "+history" in side
        ]
        outcome, records = run_ours(
            task.task,
            side,
            trials=options.trials,
            seed=seed,
            kernels=self._kernels,
            stem=stem,
            earlier=earlier,
        )
        path = self._record_path(task, seed, side)
        path.unlink(missing_ok=True)
        with RecordLog(path) as log:
            log.append(records)
        return outcome

    def _record_path(self, task: BenchTask, seed: int, side: str) -> Path:
        return self._records / f"{task.task.workload.key}-{seed}-{side}.jsonl"

    def _cold_records(self, task: BenchTask, seed: int) -> list[TuningRecord]:
        sides = [s for s in sides_of(self._options) if s != "stock" and "+history" not in s]
        paths = (self._record_path(task, seed, side) for side in sides)
        return [record for path in paths if path.exists() for record in load_records(path)]

    def _head(self, task: BenchTask, seed: int) -> dict[str, Any]:
        workload = task.task.workload
        return {"task": task.name, "workload": workload.key, "flops": workload.flops, "seed": seed}

    def _timed(self, task: BenchTask, seed: int) -> bool:
        key = task.task.workload.key
        return any(
            line["kind"] == "timing" and (line["workload"], line["seed"]) == (key, seed)
            for line in self._lines
        )

    def _retime(self, task: BenchTask, seed: int) -> None:
        key = task.task.workload.key
        kernels = [
            incumbent["kernel"]
            for line in self._lines
            if line["kind"] == "run" and (line["workload"], line["seed"]) == (key, seed)
            for incumbent in line["incumbents"]
        ]
        costs = retime(task.task, {name: self._kernels / name for name in kernels})
        self._add({"kind": "timing", **self._head(task, seed), "costs_sec": costs})


def sides_of(options: argparse.Namespace) -> list[str]:
    """Return who runs: stock, the tuners, and the variants of ``xgb`` that are asked for."""
    base = "xgb-no-prior" if options.no_prior else "xgb"
    sides = [] if options.no_stock else ["stock"]
    sides += [base if tuner == "xgb" else tuner for tuner in options.tuners]
    if options.history:
        sides.append(f"{base}+history")
    return sides


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options of a command line; the process's own by default."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser)
    add_stock_options(parser)
    parser.add_argument("--output", type=Path, required=True, help="file of results, JSON lines")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--trials", type=int, default=128, help="of ours")
    parser.add_argument("--stock-trials", type=int, default=STOCK_TRIALS)
    parser.add_argument("--tuners", nargs="+", default=["random", "ga", "xgb"])
    parser.add_argument("--no-stock", action="store_true")
    parser.add_argument(
        "--no-prior", action="store_true", help="xgb without the model shipped with the wheel"
    )
    parser.add_argument("--history", action="store_true", help="xgb also with the records of the other tasks")
    parser.add_argument("--fresh", action="store_true", help="delete the file and begin anew")
    parser.add_argument("--table", action="store_true", help="print the table of what is in the file")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    if options.table:
        print(make_table(json_lines.load(options.output)))
        return
    if options.fresh:
        options.output.unlink(missing_ok=True)
        for suffix in (".kernels", ".records"):
            shutil.rmtree(options.output.with_suffix(suffix), ignore_errors=True)
    tasks = chosen_tasks(options)
    comparison = Comparison(options.output, tasks, options)
    comparison.measure_peak()
    sides = sides_of(options)
    cold = [side for side in sides if "+history" not in side]
    for seed in options.seeds:
        # Histories are of cold runs: those of all tasks come first.
        for task in tasks:
            comparison.run(task, seed, cold)
        if options.history:
            for task in tasks:
                comparison.run(task, seed, sides)
    print(make_table(json_lines.load(options.output)))


if __name__ == "__main__":
    main()
