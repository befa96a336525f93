"""Run a tuner of tunefarm on one task, as `tune` does: rounds of eight, with this machine's builder and runner.

A *side* names who searches and how: ``random``, ``ga``, ``xgb``; ``xgb-no-prior`` is without the model shipped with the
wheel, ``xgb+history`` is told the records of other tasks first.
"""

from __future__ import annotations

import inspect
import re
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.search.clock import Clock, KeepingRunner, Timed, TimedBuilder
from benchmarks.search.split import split_of

from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.cost_model.xgb import XGBCostModel
from tunefarm_tuning.measure.builder.local import LocalBuilder
from tunefarm_tuning.measure.interfaces import Builder, MeasureOption
from tunefarm_tuning.measure.runner.local import LocalRunner
from tunefarm_tuning.records.record import TuningRecord
from tunefarm_tuning.records.transfer import TaskHistory
from tunefarm_tuning.search.round import run_round
from tunefarm_tuning.search.trial_outcome import TrialOutcome
from tunefarm_tuning.target.toolchain import toolchain_key
from tunefarm_tuning.tuner import make_tuner
from tunefarm_tuning.workload.task import TuningTask

ROUND_SIZE = 8  # tune's default
_SIDE = re.compile(r"(?P<tuner>\w+)(?P<no_prior>-no-prior)?(?P<history>\+history)?")


def tuner_options(side: str) -> tuple[str, dict[str, Any], bool]:
    """Return a side's tuner, its options for `make_tuner`, and whether it is given a history."""
    match = _SIDE.fullmatch(side)
    if match is None:
        raise SystemExit(f"no such side: {side}")
    options: dict[str, Any] = {}
    if match["no_prior"]:
        if "use_prior" not in inspect.signature(make_tuner).parameters:
            raise SystemExit("this tunefarm's tuners have no prior to do without")
        options["use_prior"] = False
    return match["tuner"], options, bool(match["history"])


def run_ours(
    task: TuningTask,
    side: str,
    *,
    trials: int,
    seed: int,
    kernels: Path,
    stem: str,
    earlier: Sequence[tuple[TuningTask, Sequence[TuningRecord]]] = (),
) -> tuple[dict[str, Any], list[TuningRecord]]:
    """Tune a task.

    The clock runs from before the builder and the runner exist: starting their children is part of it (``start_sec`` is
    when the config space was there). Reading the history is not: a farm has it at hand.

    Args:
        task: What to tune.
        side: Who searches.
        trials: At most.
        seed: Of all chance.
        kernels: Folder for every kernel that was the best so far when it was measured.
        stem: How their names begin.
        earlier: Records of other tasks, for the sides that are told a history.

    Returns:
        The figures, shaped as those of `run_stock`, and the records of the trials.
    """
    kernels.mkdir(parents=True, exist_ok=True)
    tuner_name, options, wants_history = tuner_options(side)
    clock = Clock()
    undo = XGBCostModel.fit
    XGBCostModel.fit = clock.timed("fit", undo)  # type: ignore[method-assign]  # inside of `ask`, out of a proxy's reach
    began = time.monotonic()
    try:
        with (
            LocalBuilder() as builder,
            LocalRunner(threads=1) as runner,
            tempfile.TemporaryDirectory(prefix="tunefarm-bench-") as folder,
        ):
            timed_builder = TimedBuilder(builder, clock)
            keeping = KeepingRunner(runner, clock, Path(folder))
            option = MeasureOption(builder=timed_builder, runner=keeping)  # type: ignore[arg-type]
            space = timed_builder.config_space(task)
            tuner = make_tuner(tuner_name, task, space, seed=seed, **options)
            start_sec = time.monotonic() - began
            if wants_history:
                histories = _histories(builder, task, earlier)
                began = time.monotonic() - start_sec  # collecting them is the benchmark's work
                tuner.load_history(histories)
            timed_tuner = Timed(tuner, clock, {"ask": "ask", "tell": "tell"})
            search = _Search(task, keeping, kernels, stem, began)
            while len(search.outcomes) < trials:
                n = min(ROUND_SIZE, trials - len(search.outcomes))
                results = run_round(timed_tuner, task, n, option, best_sec=search.best_sec)  # type: ignore[arg-type]
                search.take([outcome for outcome in results if outcome.is_trial])
                if not results:
                    break
            wall_sec = time.monotonic() - began
            tuner.close()
            device = runner.device
    finally:
        XGBCostModel.fit = undo  # type: ignore[method-assign]
    toolchain = toolchain_key()
    return {
        "wall_sec": wall_sec,
        "start_sec": start_sec,
        "trials": search.trials,
        "incumbents": search.incumbents,
        "failures": [o.message[:200] for o in search.outcomes if o.outcome is not Outcome.OK],
        "built": timed_builder.built,
        "split_sec": split_of(clock.sec, wall_sec),
        "clock": dict(clock.sec),
    }, [o.to_record(task, device, tuner=tuner_name, toolchain=toolchain) for o in search.outcomes]


class _Search:
    """The trials of a run as they come, a round at a time."""

    def __init__(
        self, task: TuningTask, keeping: KeepingRunner, kernels: Path, stem: str, began: float
    ) -> None:
        self._task = task
        self._keeping = keeping
        self._kernels = kernels
        self._stem = stem
        self._began = began
        self.outcomes: list[TrialOutcome] = []
        self.trials: list[list[float | None]] = []
        self.incumbents: list[dict[str, Any]] = []
        self.best_sec: float | None = None

    def take(self, outcomes: Sequence[TrialOutcome]) -> None:
        sec = time.monotonic() - self._began
        for outcome in outcomes:
            self.outcomes.append(outcome)
            cost = outcome.cost_sec
            self.trials.append([sec, cost])
            copy = self._keeping.kernel_of(cost)
            if cost is not None and copy is not None and (self.best_sec is None or cost < self.best_sec):
                self.best_sec = cost
                kernel = f"{self._stem}-{len(self.trials)}.so"
                shutil.copyfile(copy, self._kernels / kernel)
                self.incumbents.append(
                    {"sec": sec, "trials": len(self.trials), "cost_sec": cost, "kernel": kernel}
                )


def _histories(
    builder: Builder, task: TuningTask, earlier: Sequence[tuple[TuningTask, Sequence[TuningRecord]]]
) -> list[TaskHistory]:
    from tunefarm_tuning.records.transfer import choose_histories

    known = [
        TaskHistory(space=builder.config_space(other), records=tuple(records))
        for other, records in earlier
        if other.workload.key != task.workload.key and records
    ]
    return list(choose_histories(builder.config_space(task), task.workload.key, known))
