"""``/v1/jobs``: create, list, change and cancel jobs."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Response

from tunefarm_api.dependencies import ServicesDep, operation
from tunefarm_api.schemas.base import Limit, Page, cursor_of
from tunefarm_api.schemas.job import CheckedJob, Job, JobChange, JobCheck, JobCreate
from tunefarm_api.views import job_out, job_page_out
from tunefarm_app.jobs.change import JobChange as Change
from tunefarm_app.jobs.change import change_job
from tunefarm_app.jobs.control import cancel_job, pause_job, resume_job, retry_job
from tunefarm_app.jobs.submit import JobRequest, submit_job
from tunefarm_app.jobs.terms import JobTerms, check_terms
from tunefarm_db.states.job import JobState
from tunefarm_tuning.search.budget import Budget

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])


@router.post(
    "",
    status_code=201,
    **operation(
        "write",
        "Start a job",
        404,
        409,
        410,
        answers={
            200: {"model": Job, "description": "A former request with this idempotency key made this job."}
        },
    ),
)
def create_job(
    body: JobCreate,
    response: Response,
    services: ServicesDep,
    idempotency_key: Annotated[
        str | None,
        Header(
            alias="Idempotency-Key",
            description="Requests with equal keys make one job. With another body, a used key is a conflict.",
        ),
    ] = None,
) -> Job:
    """Tunes a model on the devices of a pool, within a budget; then compiles, checks and packs the result.

    Everything that can be known to be wrong is said at once: a `201` is a job that has been queued.
    """
    request = JobRequest(model_id=body.model_id, **_terms(body))
    submitted = submit_job(services, request, idempotency_key=idempotency_key)
    if not submitted.created:
        response.status_code = 200
    response.headers["Location"] = f"/v1/jobs/{submitted.job.id}"
    return job_out(services, submitted.job)


@router.post("/check", **operation("write", "Check what a job would be asked for", 409))
def check_job(body: JobCheck, services: ServicesDep) -> CheckedJob:
    """Says everything that can be known to be wrong before there is a model: nothing need be uploaded in vain.

    Makes nothing. A job may be refused all the same later, for by then the devices can be others.
    """
    settled = check_terms(services, JobTerms(**_terms(body)))
    return CheckedJob(
        device_key=settled.device_key, target=settled.target.to_json(), target_key=settled.target.key
    )


@router.get("", **operation("read", "List jobs"))
def list_jobs(
    services: ServicesDep,
    state: Annotated[JobState | None, Query(description="Only jobs in this state.")] = None,
    model_id: Annotated[str | None, Query(max_length=100, description="Only jobs of this model.")] = None,
    limit: Limit = 50,
    cursor: Annotated[str | None, cursor_of("job")] = None,
) -> Page[Job]:
    """Newest first."""
    with services.uow.read() as repos:
        return job_page_out(
            repos, repos.jobs.list(state=state, model_id=model_id, cursor=cursor, limit=limit)
        )


@router.get("/{job_id}", **operation("read", "Look at a job", 404))
def get_job(job_id: str, services: ServicesDep) -> Job:
    with services.uow.read() as repos:
        job = repos.jobs.get(job_id)
    return job_out(services, job)


@router.patch("/{job_id}", **operation("write", "Change a job", 404, 409))
def change(job_id: str, body: JobChange, services: ServicesDep) -> Job:
    """Changes what is named of a job that has not ended. What is left out stays as it is.

    A budget counts from the end of the present round on. If it is spent by then, the search ends. If a limit has ended
    the search and is raised, the search goes on, as long as the job is not compiled; if a budget can change nothing any
    more, the answer is the problem `search-ended`.
    """
    named = None if body.budget is None else body.budget.model_dump(exclude_unset=True)
    return job_out(services, change_job(services, job_id, Change(priority=body.priority, budget=named)))


@router.post("/{job_id}/retry", **operation("write", "Retry a failed job", 404, 409, 410))
def retry(job_id: str, services: ServicesDep) -> Job:
    """It goes on with the step that failed; nothing that was done is done again. A job that goes on stays as it is."""
    return job_out(services, retry_job(services, job_id))


@router.post("/{job_id}/cancel", **operation("write", "Stop a job", 404))
def stop_job(job_id: str, services: ServicesDep) -> Job:
    """What was measured stays. Stopping a job that has ended changes nothing."""
    return job_out(services, cancel_job(services, job_id))


@router.post("/{job_id}/pause", **operation("write", "Pause a job", 404, 409))
def pause(job_id: str, services: ServicesDep) -> Job:
    """Its running step ends within seconds, and is done again when the job is resumed. What was measured stays.

    A paused job spends nothing of its budget and holds no device. Pausing it again changes nothing.
    """
    return job_out(services, pause_job(services, job_id))


@router.post("/{job_id}/resume", **operation("write", "Resume a paused job", 404, 409))
def resume(job_id: str, services: ServicesDep) -> Job:
    """It goes on where it was paused. Resuming a job that is not paused, and has not ended, changes nothing."""
    return job_out(services, resume_job(services, job_id))


def _terms(body: JobCheck) -> dict[str, Any]:
    terms = body.model_dump(exclude={"budget", "options", "model_id"})
    return {**terms, **body.options.model_dump(), "budget": Budget(**body.budget.model_dump())}
