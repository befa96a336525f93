"""Run a job once more on the same terms: when somebody asks, or, by a schedule, when the compiler has changed since.

Earlier trials of the same kernels count as tried, so a job with an unchanged compiler goes on where the first one ended. With another
TVM, records of the old one only teach: the search begins anew.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import structlog

from tunefarm_app.jobs.submit import JobRequest, SubmittedJob, add_job
from tunefarm_app.jobs.whole_budget import JobBudget
from tunefarm_app.models.samples import sample_ids
from tunefarm_app.runtime.composition import Services
from tunefarm_app.storage.job_options import (
    baselines_of,
    max_error_of,
    own_wall_sec,
    precision_of,
    searches,
    wants_other_shapes,
)
from tunefarm_db.states.job import JobState
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import Job, StepKind
from tunefarm_tuning.core.errors import ConflictError
from tunefarm_tuning.target.toolchain import tvm_version, versions

log = structlog.stdlib.get_logger(__name__)

_TVM = "apache-tvm"
COMPILERS = (_TVM, "tunefarm")
"""The packages whose versions decide what a job finds: the compiler, and its search spaces and graph passes."""


def run_again(services: Services, job_id: str, *, if_changed: bool = False) -> SubmittedJob:
    """Start a job with the model, terms, samples, tags and note of one that has ended.

    While such a job is under way, it is returned, and no other is made: a schedule may come round before it has ended.

    Args:
        services: The process's services.
        job_id: The job, which must have ended.
        if_changed: Only if the newest artifact of these terms was made by other versions of `COMPILERS` than the farm has, as far as
            this process can know them, or if there is none; otherwise the job with that artifact is returned.

    Raises:
        NotFoundError: ``job-not-found``, ``model-deleted``, ``samples-not-found``.
        ConflictError: ``not-finished``; and as `submit_job`.
        InvalidInputError: As `submit_job`.
    """
    with services.uow.write() as repos:
        first = first_of(repos.jobs.get(job_id))
        repos.jobs.get(first, lock=True)  # so that no other process starts a run of these terms meanwhile
        job = repos.jobs.get(job_id)
        if not job.state.is_finished:
            raise ConflictError(
                f"the job {job.state.clause}: it can run again when it has ended", code="not-finished"
            )
        same = [other for other in _jobs_of_model(repos, job.model_id) if first_of(other) == first]
        under_way = next((other for other in same if not other.state.is_finished), None)
        if under_way is not None:
            return SubmittedJob(job=under_way, created=False)
        newest = next((other for other in same if other.state is JobState.SUCCEEDED), None)
        if if_changed and newest is not None and _is_current(repos, newest):
            return SubmittedJob(job=newest, created=False)
        added, step_id = add_job(services, repos, _request_of(job, first))
    log.info("job submitted", job_id=added.id, model_id=added.model_id, again=first)
    services.dispatcher.send(step_id, StepKind.EXTRACT)
    return SubmittedJob(job=added, created=True)


def first_of(job: Job) -> str:
    """Return the id of the job whose terms a job has: its own, unless it runs an earlier one again."""
    return str(job.options.get("again") or job.id)


def _jobs_of_model(repos: Repositories, model_id: str) -> list[Job]:
    """Return all jobs of a model, newest first."""
    jobs: list[Job] = []
    cursor: str | None = None
    while True:
        part = repos.jobs.list(model_id=model_id, cursor=cursor, limit=500)
        jobs += part.items
        if part.next_cursor is None:
            return jobs
        cursor = part.next_cursor


def _is_current(repos: Repositories, job: Job) -> bool:
    """Return whether a job's artifact was made by the farm's present compilers; what nobody knows here is no difference."""
    artifact = repos.artifacts.for_job(job.id)
    made_with = artifact.manifest.get("versions") if artifact is not None else None
    if not isinstance(made_with, dict):
        return False
    return all(made_with.get(name) == version for name, version in _present(repos).items())


def _present(repos: Repositories) -> dict[str, str]:
    """Return the versions of `COMPILERS` that the farm has, as far as they are known here.

    A server's image has no TVM: its version is that with which workers extracted the newest job's kernels.
    """
    present = versions()
    if _TVM not in present:
        toolchain = repos.jobs.newest_toolchain()
        version = tvm_version(toolchain) if toolchain is not None else None
        present |= {_TVM: version} if version is not None else {}
    return {name: present[name] for name in COMPILERS if name in present}


def _request_of(job: Job, first: str) -> JobRequest:
    limits: dict[str, Any] = {field.name: job.budget.get(field.name) for field in fields(JobBudget)}
    limits["wall_sec"] = own_wall_sec(job)
    round_size = job.options.get("round_size")
    return JobRequest(
        model_id=job.model_id,
        budget=JobBudget(**limits) if searches(job) else None,
        search=searches(job),
        target=job.target,
        device_key=job.device_key,
        tuner=job.tuner,
        seed=job.seed,
        round_size=round_size if isinstance(round_size, int) else None,
        priority=job.priority,
        precision=precision_of(job).value,
        max_error=max_error_of(job),
        other_shapes=wants_other_shapes(job),
        baselines=baselines_of(job),
        samples=sample_ids(job.options),
        again=first,
        tags=job.tags,
        note=job.note,
    )
