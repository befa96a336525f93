"""What is on record that a task's tuner can learn from, whatever job measured it."""

from __future__ import annotations

from tunefarm_app.leases.step_context import StepContext
from tunefarm_app.tuning.record_cache import KEPT
from tunefarm_db.values import DeviceLease, JobTask
from tunefarm_tuning.records.transfer import TaskHistory, choose_histories
from tunefarm_tuning.space.config_space import ConfigSpace
from tunefarm_tuning.workload.task import TuningTask


def like_histories(
    context: StepContext, row: JobTask, task: TuningTask, space: ConfigSpace, device: DeviceLease
) -> tuple[TaskHistory, ...]:
    """Return what to load into the task's tuner: the same workload elsewhere, and like workloads here."""
    with context.services.uow.read() as repos:
        outlines = repos.transfer.outlines(
            row.workload_key,
            target_key=task.target.key,
            device_model=device.device.device_model,
            toolchain=row.toolchain,
            family=space.family,
            extents=space.extents,
        )
        known = [
            TaskHistory(space=like, records=KEPT.records(repos, outline.record_ids))
            for outline in outlines
            if (like := KEPT.space(repos, outline)) is not None
        ]
    return choose_histories(space, row.workload_key, known)
