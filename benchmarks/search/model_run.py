"""Run `tune` once over a whole model, and record when each task had which best kernel, and where the seconds went."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.search.clock import Clock, Timed
from benchmarks.search.keeping import NotingBuilder, TaskwiseKeepingRunner, kernel_name
from benchmarks.search.split import split_of

from tunefarm_tuning import Budget, pick_best, tune
from tunefarm_tuning.cost_model.xgb import XGBCostModel
from tunefarm_tuning.measure.builder.local import LocalBuilder
from tunefarm_tuning.measure.interfaces import MeasureOption
from tunefarm_tuning.measure.runner.local import LocalRunner
from tunefarm_tuning.records.record import TuningRecord
from tunefarm_tuning.search import progress as task_progress
from tunefarm_tuning.search.events import BestConfirmed, RoundFinished, TuneEvent
from tunefarm_tuning.workload.task import TuningTask


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """The settings of a run.

    Attributes:
        cores: Threads of a kernel.
        records: What is on record before it starts.
        goal_sec: The run ends early once the model's latency, as it sees it, is as low as that.
    """

    tasks: Sequence[TuningTask]
    minutes: float
    seed: int
    tuner: str
    cores: int
    records: Sequence[TuningRecord] = ()
    goal_sec: float | None = None


def run_model(plan: RunPlan, *, kernels: Path, log_path: Path) -> dict[str, Any]:
    """Tune a model as a user would, on this machine.

    Args:
        plan: What to run.
        kernels: Folder for every kernel that was the best so far of its task when a round ended.
        log_path: Where the records go; a log that is there is replaced.

    Returns:
        ``wall_sec``, ``stop_reason``, ``num_trials``, ``num_failures``; ``tasks``; ``incumbents``: ``{"sec", "trials", "workload",
        "kernel", "cost_sec"}`` for each new best of a task, those that were on record at the end of the first round;
        ``seen``: ``[seconds, trials, latency_sec or None]`` as `tune` told it; ``split_sec``, ``clock``.
    """
    kernels.mkdir(parents=True, exist_ok=True)
    log_path.unlink(missing_ok=True)
    clock = Clock()
    with (
        LocalBuilder() as builder,
        LocalRunner(threads=plan.cores) as runner,
        tempfile.TemporaryDirectory(prefix="tunefarm-bench-") as folder,
        _timed_tuners(clock),
    ):
        noting = NotingBuilder(builder, clock)
        keeping = TaskwiseKeepingRunner(runner, clock, noting, Path(folder))
        watch = _Watch(plan, Path(folder), kernels)
        result = tune(
            plan.tasks,
            budget=Budget(wall_sec=60.0 * plan.minutes),
            measure_option=MeasureOption(builder=noting, runner=keeping),  # type: ignore[arg-type]
            tuner=plan.tuner,
            seed=plan.seed,
            records=plan.records,
            on_event=watch.see,
            log_path=log_path,
        )
    return {
        "wall_sec": result.wall_sec,
        "stop_reason": result.stop_reason,
        "num_trials": result.trials,
        "num_failures": result.failures,
        "latency_sec": result.best_latency_sec,
        "tasks": [
            {
                "name": task.name,
                "workload": task.workload_key,
                "weight": task.weight,
                "best_sec": task.best_cost_sec,
                "trials": task.trials,
                "spent_sec": task.spent_sec,
                "failed": task.failed,
            }
            for task in result.tasks
        ],
        "known": sorted(watch.known),
        "incumbents": watch.incumbents,
        "seen": watch.seen,
        "split_sec": split_of(clock.sec, result.wall_sec),
        "clock": dict(clock.sec),
    }


class _Watch:
    """Listens to a run."""

    def __init__(self, plan: RunPlan, folder: Path, kernels: Path) -> None:
        self._plan = plan
        self._folder = folder
        self._kernels = kernels
        self._names: dict[tuple[str, float], str] = {}  # of kernels, by workload and cost
        self._best: dict[str, str] = {}
        self.incumbents: list[dict[str, Any]] = []
        self.seen: list[list[float | None]] = []
        self.known: dict[str, tuple[str, float]] = {}
        for record in pick_best(plan.records):
            if record.cost_sec is not None:
                name = kernel_name(record.workload_key, record.config)
                self._names[record.workload_key, record.cost_sec] = name
                self.known[record.workload_key] = (name, record.cost_sec)

    def see(self, event: TuneEvent) -> None:
        if not isinstance(event, RoundFinished | BestConfirmed):
            return
        trials = event.trials if isinstance(event, RoundFinished) else int(self.seen[-1][1] or 0)
        if not self.seen:
            for workload, (name, cost_sec) in self.known.items():
                self._name_best(workload, name, cost_sec, sec=event.wall_sec, trials=0)
        workload = self._plan.tasks[event.task].workload.key
        for outcome in event.outcomes:
            if outcome.cost_sec is not None:
                self._names[workload, outcome.cost_sec] = kernel_name(workload, outcome.config)
        best_sec = event.best_cost_sec
        name = self._names.get((workload, best_sec)) if best_sec is not None else None
        if name is not None and best_sec is not None:
            self._name_best(workload, name, best_sec, sec=event.wall_sec, trials=trials)
        self.seen.append([event.wall_sec, trials, event.best_latency_sec])
        goal_sec, latency_sec = self._plan.goal_sec, event.best_latency_sec
        if goal_sec is not None and latency_sec is not None and latency_sec <= goal_sec:
            raise KeyboardInterrupt  # as a user would who has seen enough

    def _name_best(self, workload: str, name: str, cost_sec: float, *, sec: float, trials: int) -> None:
        if self._best.get(workload) == name:
            return
        self._best[workload] = name
        if not (self._kernels / name).exists() and (self._folder / name).exists():
            shutil.copyfile(self._folder / name, self._kernels / name)
        self.incumbents.append(
            {"sec": sec, "trials": trials, "workload": workload, "kernel": name, "cost_sec": cost_sec}
        )


@contextmanager
def _timed_tuners(clock: Clock) -> Iterator[None]:
    """Time the tuners that `tune` makes, and their fits, which are inside of `ask`."""
    make, fit = task_progress.make_tuner, XGBCostModel.fit
    parts = {"ask": "ask", "tell": "tell", "load_history": "tell"}

    def make_timed(*args: Any, **kwargs: Any) -> Any:
        with clock.of("tell"):
            tuner = make(*args, **kwargs)
        return Timed(tuner, clock, parts)

    task_progress.make_tuner = make_timed
    XGBCostModel.fit = clock.timed("fit", fit)  # type: ignore[method-assign]
    try:
        yield
    finally:
        task_progress.make_tuner = make
        XGBCostModel.fit = fit  # type: ignore[method-assign]
