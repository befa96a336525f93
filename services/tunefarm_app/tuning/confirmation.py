"""Confirmation: choose the tasks whose winners are measured again, and plan the step after the search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tunefarm_app.jobs.transitions import enter_compiling
from tunefarm_app.leases.step_context import StepContext
from tunefarm_app.storage.rows import engine_record
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import DeviceLease, Job, JobTask, StepKind
from tunefarm_tuning.search.budget import Budget
from tunefarm_tuning.search.confirmation import MAX_CONFIRMATIONS, configs_to_confirm, confirming_sec
from tunefarm_tuning.space.config import Config

_RECORDS_PER_TASK = 16
"""Number of fastest records that are read; several may be of one config, measured by several jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """A task whose winner is not clear.

    Attributes:
        position: Position of the task in the job.
        configs: To be measured again, fastest first; points of the space that the task's row names.
        share_sec: Share of the model's latency that the task's best kernel takes, in seconds.
        expected_sec: How long measuring them may take.
    """

    position: int
    configs: Sequence[Config]
    share_sec: float
    expected_sec: float


def due_confirmations(
    context: StepContext, repos: Repositories, job: Job, rows: Sequence[JobTask], device: DeviceLease
) -> list[Confirmation]:
    """Return the job's tasks whose winner is not clear, the most important for the model first.

    Left out are tasks that had no round (another job saw to their winners), that were confirmed often enough, or that
    another compiler made.
    """
    toolchain = context.engine.toolchain
    open_rows = [
        row
        for row in rows
        if row.space_key is not None and row.confirmations < MAX_CONFIRMATIONS and row.toolchain == toolchain
    ]
    fastest = repos.records.possible_winners(
        [row.workload_key for row in open_rows],
        target_key=job.target_key,
        device_model=device.device.device_model,
        toolchain=toolchain,
        limit=_RECORDS_PER_TASK,
    )
    due: list[Confirmation] = []
    for row in open_rows:
        of_workload = fastest.get(row.workload_key, ())
        records = [engine_record(record) for record in of_workload if record.space_key == row.space_key]
        configs = configs_to_confirm(records)
        if configs:
            best_sec = min(record.cost_sec for record in records if record.cost_sec is not None)
            due.append(
                Confirmation(
                    position=row.position,
                    configs=configs,
                    share_sec=row.weight * best_sec,
                    expected_sec=confirming_sec(records, len(configs)),
                )
            )
    return sorted(due, key=lambda confirmation: (-confirmation.share_sec, confirmation.position))


def first_that_fits(due: Sequence[Confirmation], job: Job) -> Confirmation | None:
    """Return the first confirmation that fits the time budget; None if none does."""
    wall_sec = Budget.from_json(job.budget).wall_sec
    for confirmation in due:
        if wall_sec is None or job.tuned_sec + confirmation.expected_sec <= wall_sec:
            return confirmation
    return None


def confirm_or_compile(
    context: StepContext, repos: Repositories, job: Job, due: Sequence[Confirmation], *, stop_reason: str
) -> None:
    """Plan the step after the search: a confirm step if a confirmation is due and fits the budget, else the compile."""
    if first_that_fits(due, job) is None:
        enter_compiling(context, repos, job, stop_reason=stop_reason)
        return
    if job.stop_reason is None:
        job = repos.jobs.update(job.id, stop_reason=stop_reason, progress={"phase": "confirming"})
        repos.events.add(
            job.id, "phase", {"phase": "confirming", "stop_reason": stop_reason, "tasks": len(due)}
        )
    context.follow_with(repos, repos.steps.add_next(StepKind.CONFIRM, job))
