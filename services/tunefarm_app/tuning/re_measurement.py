"""Whose winner is in doubt when a job's search ends, and where the job goes on from there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tunefarm_app.jobs.phases import enter_compiling
from tunefarm_app.leases.step_context import StepContext
from tunefarm_app.storage.rows import engine_record
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import DeviceLease, Job, JobTask, StepKind
from tunefarm_tuning.search.budget import Budget
from tunefarm_tuning.search.contenders import MAX_CONFIRMATIONS, confirming_sec, contenders
from tunefarm_tuning.space.config import Config

_RECORDS_EACH = 16
"""Fastest records looked at: the few best configs, some of which several jobs may have measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """A task whose winner is in doubt.

    Attributes:
        position: Of the task.
        configs: To be measured again, fastest first; points of the space that the task's row names.
        share_sec: What the task's best takes of the model's latency.
        expected_sec: How long measuring them may take.
    """

    position: int
    configs: Sequence[Config]
    share_sec: float
    expected_sec: float


def find_doubts(
    context: StepContext, repos: Repositories, job: Job, rows: Sequence[JobTask], device: DeviceLease
) -> list[Doubt]:
    """Return the job's tasks whose winner is in doubt, those that matter most to the model first.

    Of a task that had no round the winner is another job's, who saw to it; one that was confirmed often enough, or was
    made by another compiler, is left alone.
    """
    toolchain = context.engine.toolchain
    open_rows = [
        row
        for row in rows
        if row.space_key is not None and row.confirmations < MAX_CONFIRMATIONS and row.toolchain == toolchain
    ]
    held = repos.records.contending(
        [row.workload_key for row in open_rows],
        target_key=job.target_key,
        device_model=device.device.device_model,
        toolchain=toolchain,
        limit=_RECORDS_EACH,
    )
    found: list[Doubt] = []
    for row in open_rows:
        known = held.get(row.workload_key, ())
        records = [engine_record(record) for record in known if record.space_key == row.space_key]
        configs = contenders(records)
        if configs:
            best_sec = min(record.cost_sec for record in records if record.cost_sec is not None)
            found.append(
                Doubt(
                    position=row.position,
                    configs=configs,
                    share_sec=row.weight * best_sec,
                    expected_sec=confirming_sec(records, len(configs)),
                )
            )
    return sorted(found, key=lambda doubt: (-doubt.share_sec, doubt.position))


def first_that_fits(doubts: Sequence[Doubt], job: Job) -> Doubt | None:
    """Return the doubt to be settled next; None where there is none that the time budget has room for."""
    wall_sec = Budget.from_json(job.budget).wall_sec
    for doubt in doubts:
        if wall_sec is None or job.tuned_sec + doubt.expected_sec <= wall_sec:
            return doubt
    return None


def confirm_or_compile(
    context: StepContext,
    repos: Repositories,
    job: Job,
    doubts: Sequence[Doubt],
    *,
    stop_reason: str,
) -> None:
    """Plan what follows the search: a confirmation where a winner is in doubt and there is time for it, else the compiler.

    Args:
        context: The step at hand.
        repos: The transaction that ends it.
        job: The job, as of now.
        doubts: What `find_doubts` says now.
        stop_reason: Why the search ended.
    """
    if first_that_fits(doubts, job) is None:
        enter_compiling(context, repos, job, stop_reason=stop_reason)
        return
    if job.stop_reason is None:
        job = repos.jobs.update(job.id, stop_reason=stop_reason, progress={"phase": "confirming"})
        repos.events.add(
            job.id, "phase", {"phase": "confirming", "stop_reason": stop_reason, "tasks": len(doubts)}
        )
    context.plan(repos, StepKind.CONFIRM, job, round=repos.steps.next_round(StepKind.CONFIRM, job.id))
