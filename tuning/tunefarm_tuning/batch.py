"""Building and measuring one batch of candidates: after one another, or at the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field

from tunefarm_tuning.config import Config
from tunefarm_tuning.measure import (
    BuildInput,
    BuildResult,
    Failure,
    MeasureInput,
    MeasureOption,
    MeasureResult,
    Outcome,
)
from tunefarm_tuning.task import TuningTask


@dataclass(slots=True, kw_only=True)
class Batch:
    """What became of a batch; keys are the candidates' places in it.

    Attributes:
        builds: Of all candidates; of some where the batch was cancelled.
        fresh: The candidates that `is_new` said are new as applied.
        measured: Of the fresh ones that were built.
    """

    builds: dict[int, BuildResult] = field(default_factory=dict)
    fresh: list[int] = field(default_factory=list)
    measured: dict[int, MeasureResult] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """What to build and measure.

    Attributes:
        rival_sec: Best cost known of the task.
        is_new: Asked once for each build, in the order in which they end: whether it is worth measuring.
        is_cancelled: Asked between the parts.
    """

    task: TuningTask
    configs: Sequence[Config]
    option: MeasureOption
    rival_sec: float | None
    is_new: Callable[[BuildResult], bool]
    is_cancelled: Callable[[], bool]

    @property
    def inputs(self) -> list[BuildInput]:
        return [BuildInput(task=self.task, config=config) for config in self.configs]


def run_batch(plan: BatchPlan) -> Batch:
    """Build the candidates, and measure those that are new. Artifacts are deleted once measured.

    Where the runner's device is another machine, each candidate is measured as soon as it is built, while the others
    are being built. Otherwise all builds are over before the first is measured: they would disturb its timing.
    """
    return _one_after_another(plan) if plan.option.runner.shares_host else _overlapped(plan)


def _one_after_another(plan: BatchPlan) -> Batch:
    batch = Batch()
    with _deleting_artifacts(batch):
        batch.builds = dict(enumerate(plan.option.builder.build(plan.inputs)))
        if plan.is_cancelled():
            return batch
        batch.fresh = [i for i, build in batch.builds.items() if plan.is_new(build)]
        ready = {i: _input(plan, batch.builds[i], plan.rival_sec) for i in batch.fresh}
        inputs = {i: one for i, one in ready.items() if one is not None}
        if inputs:
            results = plan.option.runner.run(list(inputs.values()))
            batch.measured = dict(zip(inputs, results, strict=True))
    return batch


def _overlapped(plan: BatchPlan) -> Batch:
    batch = Batch()
    rival_sec = plan.rival_sec
    lost: Failure | None = None
    # Closing the stream stops what is still being built.
    with _deleting_artifacts(batch), closing(plan.option.builder.build_each(plan.inputs)) as stream:
        for i, build in stream:
            batch.builds[i] = build
            if plan.is_cancelled():
                return batch
            if not plan.is_new(build):
                continue
            batch.fresh.append(i)
            one = _input(plan, build, rival_sec)
            if one is None or build.artifact_path is None:
                continue
            (result,) = plan.option.runner.run([one])
            batch.measured[i] = result
            build.artifact_path.unlink(missing_ok=True)
            if result.cost_sec is not None and not result.truncated:
                rival_sec = min(result.cost_sec, rival_sec or result.cost_sec)
            if result.failure is not None and result.failure.outcome is Outcome.INFRASTRUCTURE_ERROR:
                lost = result.failure
                break
    if lost is not None:
        _give_up(plan, batch, lost)
    batch.fresh.sort()
    return batch


def _give_up(plan: BatchPlan, batch: Batch, lost: Failure) -> None:
    """Let the candidates that nobody got to fail as the device did: they may be tried again."""
    for i, config in enumerate(plan.configs):
        if i not in batch.builds:
            build = BuildResult(config=config, build_sec=0.0, failure=lost)
            batch.builds[i] = build
            if plan.is_new(build):
                batch.fresh.append(i)


def _input(plan: BatchPlan, build: BuildResult, rival_sec: float | None) -> MeasureInput | None:
    if build.artifact_path is None:
        return None
    return MeasureInput(task=plan.task, artifact_path=build.artifact_path, rival_sec=rival_sec)


@contextmanager
def _deleting_artifacts(batch: Batch) -> Iterator[None]:
    try:
        yield
    finally:
        for build in batch.builds.values():
            if build.artifact_path is not None:
                build.artifact_path.unlink(missing_ok=True)
