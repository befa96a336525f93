"""Transitions of jobs and models that several use cases share: to the next phase, to failure, to cancellation."""

from __future__ import annotations

from contextlib import suppress

from tunefarm_app.leases.step_context import StepContext
from tunefarm_db.states.job import JobState
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import Job, Json, ModelState, Step, StepKind
from tunefarm_tuning.core.errors import CancelledError, NotFoundError
from tunefarm_tuning.workload import revisions


def begin_compiling(repos: Repositories, job: Job, *, stop_reason: str | None) -> Step:
    """Move the job on to the compiler. Return the compile step, which the caller, or else the reconciler, sends."""
    repos.jobs.move(job.id, JobState.COMPILING, stop_reason=stop_reason, progress={"phase": "compiling"})
    if job.state is not JobState.TUNING:  # it has not taken turns yet
        repos.jobs.catch_up(job.id)
    repos.events.add(job.id, "phase", {"phase": "compiling", "stop_reason": stop_reason})
    return repos.steps.add_next(StepKind.COMPILE, job)


def fail_subject(repos: Repositories, step: Step, error: Json, *, final: bool = False) -> None:
    """Fail the step's model, kernel source, samples or job with `error`, unless it has ended.

    A job whose winners cannot be confirmed does not fail: it is compiled with the records that it has. A job that runs
    other rounds continues with them, unless the error is `final`.

    Args:
        repos: The repositories of a write transaction.
        step: The step that failed.
        error: The error, as `TunefarmError.to_json` writes it.
        final: Another try would end the same way.
    """
    if step.kind is StepKind.IMPORT:
        model = repos.models.get(step.model_id, deleted=True)
        if model.state is ModelState.IMPORTING:
            repos.models.set_failed(model.id, error, revision=revisions.IMPORTER)
        return
    if step.kind is StepKind.SOURCE:
        repos.sources.set_failed(step.subject_id, error)
        return
    if step.kind is StepKind.SAMPLES:
        with suppress(NotFoundError):  # they were deleted meanwhile
            repos.samples.set_failed(step.subject_id, error)
        return
    if step.kind is StepKind.MEASURE:
        repos.events.add(step.subject_id, "unmeasured", {"error": error})  # its artifact stays as it is
        return
    if step.kind is StepKind.DRAFT:
        # Its search goes on.
        repos.events.add(step.subject_id, "undrafted", {"number": step.round, "error": error})
        return
    job = repos.jobs.get(step.subject_id, lock=True)
    if step.kind is StepKind.CONFIRM and job.state is JobState.TUNING:
        # The records must not be lost because their confirmation failed.
        repos.events.add(job.id, "unconfirmed", {"error": error})
        begin_compiling(repos, job, stop_reason=job.stop_reason)
    elif step.kind is StepKind.TUNE and not final and repos.steps.open_ids(job.id):
        # The track ends; the event has its name from when tracks were called lanes.
        repos.events.add(job.id, "lane-lost", {"round": step.round, "error": error})
    elif not job.state.is_finished:
        job = repos.jobs.move(job.id, JobState.FAILED, error=error, progress={"phase": "failed"})
        repos.steps.cancel_open(
            job_id=job.id, skip_locked=True
        )  # a worker that runs such a step sees that the job has failed
        repos.events.add(job.id, "finished", {"state": job.state.value, "error": error})


def cancel(repos: Repositories, job_id: str) -> tuple[Job, bool]:
    """End the job and all its steps now, also one that a worker runs, and an open measurement of its artifact.

    A finished job stays as it is. The worker cannot write any more, and stops within a second or two.

    Returns:
        The job, and whether it or a measurement was cancelled.
    """
    repos.steps.cancel_open(job_id=job_id)  # before the job's row: workers lock in this order too
    others = repos.steps.cancel_open(subject_id=job_id)  # a measurement belongs to no job
    job = repos.jobs.request_cancel(job_id)
    cancels_measurement = any(step.kind is StepKind.MEASURE for step in others)
    if cancels_measurement:
        repos.events.add(job.id, "unmeasured", {"error": CancelledError("it was cancelled").to_json()})
    cancels_job = not job.state.is_finished
    if cancels_job:
        job = repos.jobs.move(job.id, JobState.CANCELLED, progress={"phase": "cancelled"})
        repos.events.add(job.id, "finished", {"state": job.state.value})
    return job, cancels_job or cancels_measurement


def enter_tuning(context: StepContext, repos: Repositories, job: Job, *, tasks: int) -> None:
    """Move the job on to tuning, and plan its first round."""
    repos.jobs.move(
        job.id, JobState.TUNING, started_tuning_at=repos.now(), progress={"phase": "tuning", "tasks": tasks}
    )
    repos.jobs.catch_up(job.id)
    repos.events.add(job.id, "phase", {"phase": "tuning", "tasks": tasks})
    # Round 0, and not the next one: that it was planned before must be refused.
    first = repos.steps.add(StepKind.TUNE, subject_id=job.id, model_id=job.model_id, job_id=job.id)
    context.follow_with(repos, first)


def enter_compiling(context: StepContext, repos: Repositories, job: Job, *, stop_reason: str) -> None:
    """Move the job on to the compiler."""
    context.follow_with(repos, begin_compiling(repos, job, stop_reason=stop_reason))
