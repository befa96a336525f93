"""Measure the artifact of an ended job again, on a device of its pool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from tunefarm_app.access.quotas import check_measurement, check_own
from tunefarm_app.jobs.artifacts import artifact_of, artifact_path
from tunefarm_app.leases.device_turns import FOR_A_WORKER, without_device
from tunefarm_app.report.measurements import measured_beside, measurements_of, to_measure_beside
from tunefarm_app.report.sections import ReportMeasurement
from tunefarm_app.runtime.composition import Services
from tunefarm_db.acting import acting
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import AuditAction, Job, Json, Step, StepKind, StepState
from tunefarm_tuning.measure.baselines.runtimes import parse_baselines

log = structlog.stdlib.get_logger(__name__)

_OPEN = (StepState.READY, StepState.LEASED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measuring:
    """The measurements of a job's artifact, and whether another one is under way.

    Attributes:
        items: The measurements, oldest first.
        state: ``"idle"``, ``"waiting"`` (for a worker or a device), ``"measuring"``, or ``"failed"``: the last one that was
            asked for.
        asked_at: When that was asked for, in Unix seconds; None if nobody did.
        error: Why it failed, or what it waits to repeat after.
        waiting: What it waits for; None unless it waits.
    """

    items: list[ReportMeasurement]
    state: str
    asked_at: float | None
    error: Json | None
    waiting: str | None


def measure_again(services: Services, job_id: str, *, baselines: Sequence[str] = ()) -> Measuring:
    """Ask for a measurement of a job's artifact. If one is under way, it is that one.

    Args:
        services: The process's services.
        job_id: The job.
        baselines: Other runtimes to time beside it from now on, with those of the job and of earlier measurements; see `compile`.

    Raises:
        InvalidInputError: ``unknown-baseline``.
        NotFoundError: ``job-not-found``, ``model-deleted``; ``artifact-not-kept`` if retention deleted the artifact.
        ConflictError: ``no-artifact`` if the job has none.
        QuotaError: ``quota-own-jobs``, ``quota-open-jobs``.
    """
    asked = parse_baselines(baselines)
    with services.uow.write() as repos:
        job = repos.jobs.get(job_id, lock=True)
        check_own(repos, job)
        artifact = artifact_of(repos, job)
        repos.models.get(job.model_id)
        artifact_path(services, artifact)
        if set(asked) - set(measured_beside(job, artifact)):
            repos.artifacts.set_report(job.id, to_measure_beside(artifact, asked))
        step = _newest_step(repos, job_id)
        is_new = step is None or step.state not in _OPEN
        if step is None or is_new:
            check_measurement(repos)
            # It belongs to no job: that has ended.
            step = repos.steps.add(
                StepKind.MEASURE,
                subject_id=job.id,
                model_id=job.model_id,
                round=repos.steps.next_round(StepKind.MEASURE, job.id),
                asked_by=acting().owner,
            )
            repos.steps.mark_sent([step.id])
            repos.events.add(job.id, "measure", {"device_key": job.device_key})
            repos.audit.note(AuditAction.JOB_MEASURED, job.id)
    if is_new:
        log.info("measurement asked for", job_id=job_id)
        services.dispatcher.send(step.id, step.kind)
    with services.uow.read() as repos:
        return measuring_of(repos, job_id)


def measuring_of(repos: Repositories, job_id: str) -> Measuring:
    """Return the measurements of a job's artifact, and the state of the last one that was asked for.

    Raises:
        NotFoundError: ``job-not-found``.
    """
    job = repos.jobs.get(job_id)
    step = _newest_step(repos, job.id)
    states = {
        StepState.READY: "waiting",
        StepState.LEASED: "measuring",
        StepState.FAILED: "failed",
    }
    return Measuring(
        items=measurements_of(repos.artifacts.for_job(job.id)),
        state="idle" if step is None else states.get(step.state, "idle"),
        asked_at=None if step is None else step.created_at,
        error=None if step is None or step.state is StepState.DONE else step.error,
        waiting=_why_waiting(repos, job, step),
    )


def _why_waiting(repos: Repositories, job: Job, step: Step | None) -> str | None:
    if step is None or step.state is not StepState.READY:
        return None
    if step.error is not None and step.not_before > repos.now():
        return f"waiting to retry after an error: {step.error.get('message', '')}"
    return without_device(job.device_key, repos.devices.counts(job.device_key)) or FOR_A_WORKER


def _newest_step(repos: Repositories, job_id: str) -> Step | None:
    return repos.steps.find(StepKind.MEASURE, job_id, repos.steps.next_round(StepKind.MEASURE, job_id) - 1)
