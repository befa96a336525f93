"""``/v1/jobs``: create, list, change and cancel jobs."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Response

from tunefarm_api.dependencies import JobId, ServicesDep, operation
from tunefarm_api.schemas.base import Limit, Page, cursor_of
from tunefarm_api.schemas.job import CheckedJob, Job, JobChange, JobCheck, JobCreate
from tunefarm_api.views import job_out, job_page_out
from tunefarm_app.jobs.again import run_again
from tunefarm_app.jobs.change import JobChange as Change
from tunefarm_app.jobs.change import change_job
from tunefarm_app.jobs.control import cancel_job, finish_job, pause_job, resume_job, retry_job
from tunefarm_app.jobs.submit import JobRequest, compile_now, submit_job
from tunefarm_app.jobs.terms import JobTerms, check_terms
from tunefarm_app.jobs.whole_budget import JobBudget
from tunefarm_app.models.labels import check_note, check_tag, check_tags
from tunefarm_app.report.comparison import JobComparison, compare_jobs
from tunefarm_db.repositories.selection import JobFilters, JobOrder
from tunefarm_db.states.job import JobState

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
            200: {
                "model": Job,
                "description": "An earlier request with this idempotency key created the job.",
            }
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
            description="Requests with equal keys create one job. Reusing a key with a different body is a conflict.",
        ),
    ] = None,
) -> Job:
    """Tunes a model on the devices of a pool within a budget, then compiles, checks and packs the result.

    With `options.search` false, it compiles at once, with the best records on file; kernels without a record stay untuned.

    All detectable errors are reported at once: a `201` means that the job is queued.
    """
    with services.uow.read() as repos:
        model_id = repos.references.find("model", body.model_id)
        samples = [repos.references.find("samples", text) for text in body.samples]
    request = JobRequest(model_id=model_id, samples=samples, tags=body.tags, note=body.note, **terms_of(body))
    submitted = submit_job(services, request, idempotency_key=idempotency_key)
    if not submitted.created:
        response.status_code = 200
    response.headers["Location"] = f"/v1/jobs/{submitted.job.id}"
    return job_out(services, submitted.job)


@router.post("/check", **operation("write", "Check the terms of a job", 409))
def check_job(body: JobCheck, services: ServicesDep) -> CheckedJob:
    """Reports all errors that can be detected before the upload of a model.

    Creates nothing. The job can still be refused later, if the devices have changed.
    """
    settled = check_terms(services, JobTerms(**terms_of(body)))
    check_tags(body.tags)
    check_note(body.note)
    return CheckedJob(
        device_key=settled.device_key,
        target=settled.target.to_json(),
        target_key=settled.target_key,
    )


@router.get("", **operation("read", "List jobs"))
def list_jobs(
    services: ServicesDep,
    state: Annotated[JobState | None, Query(description="Only jobs in this state.")] = None,
    model_id: Annotated[
        str | None,
        Query(
            max_length=250,
            description="Only jobs of this model: its id or a part of it, name, or `name@version`.",
        ),
    ] = None,
    device_key: Annotated[str | None, Query(max_length=200, description="Only jobs on this pool.")] = None,
    sweep_id: Annotated[
        str | None, Query(max_length=40, description="Only jobs of this sweep: its id, or a part of it.")
    ] = None,
    tag: Annotated[
        list[str] | None,
        Query(max_length=20, description="Only jobs with this tag; given several times, with all of them."),
    ] = None,
    text: Annotated[
        str,
        Query(
            max_length=200,
            description="Only jobs with this text in their id, model's name, tags, note, target or pool, in any case.",
        ),
    ] = "",
    order: Annotated[
        JobOrder,
        Query(
            description="`latency`, `speedup` (over untuned) and `runtime` (over the fastest other runtime that was timed) have the "
            "best first, and jobs without a measured artifact last."
        ),
    ] = JobOrder.NEWEST,
    limit: Limit = 50,
    cursor: Annotated[str | None, cursor_of("job")] = None,
) -> Page[Job]:
    """Newest first, unless another `order` is given. A job that moves in the order between two requests may be in both parts, or in none."""
    filters = JobFilters(
        state=state,
        device_key=device_key,
        tags=[check_tag(name) for name in tag or ()],
        text=text.strip(),
    )
    with services.uow.read() as repos:
        if model_id is not None:
            filters["model_id"] = repos.references.find("model", model_id)
        if sweep_id is not None:
            filters["sweep_id"] = repos.references.find("sweep", sweep_id)
        return job_page_out(repos, repos.jobs.list(order=order, cursor=cursor, limit=limit, **filters))


@router.get("/compare", **operation("read", "Compare jobs", 404))
def compare(
    services: ServicesDep,
    job: Annotated[
        list[str],
        Query(
            min_length=1,
            max_length=20,
            description="A job: its id, a part of it, or the name of its model; two to six of them.",
        ),
    ],
) -> JobComparison:
    """Their results, their curves over the seconds of search, and their kernels, side by side."""
    with services.uow.read() as repos:
        return compare_jobs(repos, [repos.references.find("job", text) for text in job])


@router.get("/{job_id}", **operation("read", "Get a job", 404))
def get_job(job_id: JobId, services: ServicesDep) -> Job:
    """Includes the progress, and the estimated time left (`eta_sec`)."""
    with services.uow.read() as repos:
        job = repos.jobs.get(job_id)
    return job_out(services, job)


@router.patch("/{job_id}", **operation("write", "Change a job", 404, 409))
def change(job_id: JobId, body: JobChange, services: ServicesDep) -> Job:
    """Changes the given members of a job that has not ended. Omitted members stay.

    A new budget applies after the current round. If it is spent by then, the search ends. If a limit has ended the
    search, raising it continues the search, unless compiling has begun; then the response is the problem
    `search-ended`. Tags and note can be changed at any time, also of a job that has ended.
    """
    named = None if body.budget is None else body.budget.model_dump(exclude_unset=True)
    changed = Change(priority=body.priority, budget=named, tags=body.tags, note=body.note)
    return job_out(services, change_job(services, job_id, changed))


@router.post("/{job_id}/retry", **operation("write", "Retry a failed job", 404, 409, 410))
def retry(job_id: JobId, services: ServicesDep) -> Job:
    """Repeats only the failed step; completed work stays. A running job does not change."""
    return job_out(services, retry_job(services, job_id))


@router.post("/{job_id}/cancel", **operation("write", "Cancel a job", 404))
def stop_job(job_id: JobId, services: ServicesDep) -> Job:
    """Its records stay. If the job has ended, this cancels a running measurement of its artifact."""
    return job_out(services, cancel_job(services, job_id))


@router.post("/{job_id}/finish", **operation("write", "Finish a job now", 404))
def finish(job_id: JobId, services: ServicesDep) -> Job:
    """Ends the search and compiles the best so far. A running round is dropped, a paused job resumed.

    Finishing a job that compiles, or has ended, has no effect.
    """
    return job_out(services, finish_job(services, job_id))


@router.post(
    "/{job_id}/compile",
    status_code=201,
    **operation(
        "write",
        "Compile what a job has so far",
        404,
        409,
        410,
        answers={200: {"model": Job, "description": "Such a job is running already; it is returned."}},
    ),
)
def compile_so_far(job_id: JobId, response: Response, services: ServicesDep) -> Job:
    """Starts a job without a search, on the same model and terms, and returns it; its artifact is the requested one.

    The first job continues. On a device that they share, it waits while the artifact is compared and timed. It may be in any
    state: before its first round the artifact is untuned, and a cancelled job's records are taken, too.
    """
    submitted = compile_now(services, job_id)
    if not submitted.created:
        response.status_code = 200
    response.headers["Location"] = f"/v1/jobs/{submitted.job.id}"
    return job_out(services, submitted.job)


@router.post(
    "/{job_id}/again",
    status_code=201,
    **operation(
        "write",
        "Run a job again",
        404,
        409,
        410,
        answers={
            200: {
                "model": Job,
                "description": "No job was started: the returned job runs on these terms, or has an artifact of the present compiler.",
            }
        },
    ),
)
def run_job_again(
    job_id: JobId,
    response: Response,
    services: ServicesDep,
    only_if_changed: Annotated[
        bool,
        Query(
            description="Whether to start none if the newest artifact of these terms was made by the versions of TVM and tunefarm that "
            "the farm has, as far as this server knows them."
        ),
    ] = False,
) -> Job:
    """Starts a job with the model, terms, samples, tags and note of one that has ended, for schedules and after upgrades.

    Configs that the same compiler measured count as tried; records of another compiler only train the cost model. While a job on these terms is under
    way, no other is started.
    """
    submitted = run_again(services, job_id, if_changed=only_if_changed)
    if not submitted.created:
        response.status_code = 200
    response.headers["Location"] = f"/v1/jobs/{submitted.job.id}"
    return job_out(services, submitted.job)


@router.post("/{job_id}/pause", **operation("write", "Pause a job", 404, 409))
def pause(job_id: JobId, services: ServicesDep) -> Job:
    """Its running step ends within seconds and is repeated after the job is resumed. Its records stay.

    A paused job spends no budget and holds no device. Pausing it again has no effect.
    """
    return job_out(services, pause_job(services, job_id))


@router.post("/{job_id}/resume", **operation("write", "Resume a paused job", 404, 409))
def resume(job_id: JobId, services: ServicesDep) -> Job:
    """The job continues where it was paused. Resuming a job that is neither paused nor ended has no effect."""
    return job_out(services, resume_job(services, job_id))


def terms_of(body: JobCheck) -> dict[str, Any]:
    """Return the terms that a request names, as the use cases take them."""
    terms = body.model_dump(exclude={"budget", "options", "model_id", "samples", "tags", "note"})
    budget = None if body.budget is None else JobBudget(**body.budget.model_dump())
    return {**terms, **body.options.model_dump(), "budget": budget}
