"""Tune and compile a network as a user would, with files that a later run continues from.

Of each model and number of threads there are its records, a summary of its tuning so far, and its artifact.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from benchmarks.models.distance import TaskFacts

from tunefarm_tuning import (
    Budget,
    History,
    LocalBuilder,
    LocalRunner,
    compile,  # noqa: A004
    extract_tasks,
    kernel_bytes,
    load_records,
    tune,
)
from tunefarm_tuning.compiler.phases.pack import Artifact
from tunefarm_tuning.measure.interfaces import MeasureOption
from tunefarm_tuning.measure.roofline import kernel_dtype
from tunefarm_tuning.search.events import RoundFinished, TuneEvent
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.workload.model import Model
from tunefarm_tuning.workload.task import TuningTask

_LEAST_MINUTES = 0.02


@dataclass(slots=True, kw_only=True)
class Tuning:
    """The tuning of a network over all runs: time spent, and tasks by workload. `wall_sec` includes confirming."""

    wall_sec: float = 0.0
    trials: int = 0
    failures: int = 0
    tasks: dict[str, TaskFacts] = field(default_factory=dict)


class TunedNetwork:
    """A model that is tuned and compiled for a number of threads.

    Args:
        model: What to tune.
        target: With as many cores as there are threads.
        threads: Of its kernels.
        files: Folder of records and artifacts.
        name: What its files are called.
    """

    def __init__(self, model: Model, target: Target, *, threads: int, files: Path, name: str) -> None:
        self._model = model
        self._target = target
        self._threads = threads
        files.mkdir(parents=True, exist_ok=True)
        self.records_path = files / f"{name}.jsonl"
        self.artifact_path = files / f"{name}.tunefarm"
        self._summary_path = files / f"{name}.tuning.json"
        self.tuning = _read(self._summary_path)

    @cached_property
    def tasks(self) -> tuple[TuningTask, ...]:
        """The model's tasks."""
        return extract_tasks(self._model, self._target)

    def tune(self, minutes: float, *, seed: int) -> None:
        """Tune until the minutes are spent, including those of earlier runs."""
        left_sec = 60.0 * minutes - self.tuning.wall_sec
        if left_sec < 60.0 * _LEAST_MINUTES:
            return
        before = replace(self.tuning)
        earlier = load_records(self.records_path) if self.records_path.exists() else []

        def note(event: TuneEvent) -> None:
            if isinstance(event, RoundFinished):  # a run that is killed goes on with what is left
                self._note(before, event.wall_sec, event.trials, event.failures)

        with LocalBuilder() as builder, LocalRunner(threads=self._threads) as runner:
            result = tune(
                self.tasks,
                budget=Budget(wall_sec=left_sec),
                measure_option=MeasureOption(builder=builder, runner=runner),
                seed=seed,
                records=earlier,
                log_path=self.records_path,
                on_event=note,
            )
        self.tuning.tasks = {
            task.workload_key: TaskFacts(
                workload_key=task.workload_key,
                name=task.name,
                weight=task.weight,
                flops=task.flops,
                dtype=task.dtype,
                moved_bytes=task.moved_bytes,
            )
            for task in result.tasks
        }
        self._note(before, result.wall_sec, result.trials, result.failures)
        if result.stop_reason == "interrupted":
            raise KeyboardInterrupt

    def compile(self) -> Artifact:
        """Compile with the best records, check and write the artifact."""
        records = load_records(self.records_path) if self.records_path.exists() else []
        return compile(
            self._model, self._target, output=self.artifact_path, history=History(records), baseline=False
        )

    def task_facts(self) -> dict[str, TaskFacts]:
        """Return the model's tasks as they are today, by workload."""
        return {
            key: self.tuning.tasks.get(key)
            or TaskFacts(
                workload_key=key,
                name=task.workload.name,
                weight=task.weight,
                flops=task.workload.flops,
                dtype=kernel_dtype(args),
                moved_bytes=kernel_bytes(args),
            )
            for task in self.tasks
            for key, args in [(task.workload.key, [spec.to_json() for spec in task.workload.args])]
        }

    def report_kernels(self) -> list[dict[str, Any]]:
        """Return the entries of the kernels in the artifact's report."""
        with zipfile.ZipFile(self.artifact_path) as artifact:
            kernels: list[dict[str, Any]] = json.loads(artifact.read("report.json"))["kernels"]
        return kernels

    def _note(self, before: Tuning, wall_sec: float, trials: int, failures: int) -> None:
        self.tuning.wall_sec = before.wall_sec + wall_sec
        self.tuning.trials = before.trials + trials
        self.tuning.failures = before.failures + failures
        part = self._summary_path.with_suffix(".part")
        part.write_text(json.dumps(asdict(self.tuning)), encoding="utf-8")
        part.replace(self._summary_path)


def _read(path: Path) -> Tuning:
    if not path.exists():
        return Tuning()
    data: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return Tuning(**{**data, "tasks": {key: TaskFacts(**facts) for key, facts in data["tasks"].items()}})
