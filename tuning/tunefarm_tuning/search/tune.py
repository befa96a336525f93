"""`tune`: the whole search over a model's tasks, in one process and without any service."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.measure.interfaces import MeasureOption
from tunefarm_tuning.records.log import RecordLog
from tunefarm_tuning.records.record import TuningRecord
from tunefarm_tuning.records.transfer import TaskHistory
from tunefarm_tuning.search.budget import Budget
from tunefarm_tuning.search.events import TuneEvent
from tunefarm_tuning.search.loop import TuneRun
from tunefarm_tuning.search.result import TuneResult
from tunefarm_tuning.target.toolchain import check_can_build
from tunefarm_tuning.tuner import DEFAULT_TUNER, check_tuner_name
from tunefarm_tuning.workload.task import TuningTask


def tune(
    tasks: Sequence[TuningTask],
    *,
    budget: Budget,
    measure_option: MeasureOption | None = None,
    tuner: str = DEFAULT_TUNER,
    seed: int = 0,
    round_size: int = 8,
    records: Iterable[TuningRecord] = (),
    histories: Sequence[TaskHistory] = (),
    on_event: Callable[[TuneEvent], None] | None = None,
    log_path: Path | str | None = None,
    confirm: bool = True,
) -> TuneResult:
    """Search for the fastest kernels of tasks until the budget is spent.

    Ctrl-C ends the run, which then returns its results so far. A task that cannot be tuned does not end the run.

    Args:
        tasks: The tasks to tune, as `extract_tasks` returns them.
        budget: Limits of the run, checked between rounds. The last rounds are sized to fit the remaining time at the
            current pace.
        measure_option: Builder and runner, which the caller closes; this machine by default.
        tuner: One of `tuner.TUNERS`.
        seed: Seed of all random choices. Real measurements are noisy, so equal seeds do not give equal runs.
        round_size: Number of candidates of a round.
        records: Earlier records. Those of the same workload, space, target, device model and toolchain count as tried,
            so a run can be resumed from its log. Tuners with a model learn from those of other devices.
        histories: Earlier records of any workloads, with their spaces: a task's tuner learns from similar ones.
        on_event: Called in this thread with each `TuneEvent`.
        log_path: File to append each record to, as JSON lines.
        confirm: Whether to measure the best configs of each task again, in turn, if its winner is not clear. It counts
            in the time budget, but not in the budget of trials.

    Raises:
        InvalidInputError: If the tuner is unknown, the log cannot be written, or no task can be tuned; if this machine
            builds and lacks CUDA's compiler for a task (no-cuda-compiler, cuda-compiler-unfit).
        DeviceLostError: If nothing could be measured because the device is away.
    """
    check_tuner_name(tuner)
    if round_size < 1:
        raise InvalidInputError(f"round_size must be at least 1, not {round_size}", code="bad-round-size")
    if measure_option is None:
        for target in {task.target for task in tasks}:
            check_can_build(target)
    with ExitStack() as stack:
        log = stack.enter_context(RecordLog(log_path)) if log_path is not None else None
        option = measure_option or stack.enter_context(_this_machine())
        run = TuneRun(
            tasks,
            option,
            tuner=tuner,
            seed=seed,
            earlier=list(records),
            histories=list(histories),
            confirm=confirm,
            on_event=on_event,
            log=log,
        )
        stack.callback(run.close)
        return run.until_spent(budget, round_size)


@contextmanager
def _this_machine() -> Iterator[MeasureOption]:
    from tunefarm_tuning.measure.builder.local import LocalBuilder
    from tunefarm_tuning.measure.runner.local import LocalRunner

    with LocalBuilder() as builder, LocalRunner() as runner:
        yield MeasureOption(builder=builder, runner=runner)
