"""The buttons of a job's page; each is a form that leads back to the page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from starlette.concurrency import run_in_threadpool

from tunefarm_api.auth import needs
from tunefarm_api.dependencies import ServicesDep
from tunefarm_api.routes.job_details import (
    download_artifact,
    download_envelope,
    get_report,
    get_report_page,
)
from tunefarm_api.web.forms import Form, FormDep, labels_of, number_of, refused_labels, whole_number_of
from tunefarm_api.web.jobs.job_form import baselines_in
from tunefarm_app.jobs.change import JobChange, change_job
from tunefarm_app.jobs.control import cancel_job, finish_job, pause_job, resume_job, retry_job
from tunefarm_app.jobs.measure_again import measure_again
from tunefarm_app.jobs.submit import compile_now
from tunefarm_app.report.document import JobReport
from tunefarm_app.runtime.composition import Services
from tunefarm_app.storage.job_options import own_wall_sec
from tunefarm_tuning.core.errors import InvalidInputError

router = APIRouter(include_in_schema=False)

_COMMANDS: dict[str, Callable[[Services, str], object]] = {
    "pause": pause_job,
    "resume": resume_job,
    "finish": finish_job,
    "cancel": cancel_job,
    "retry": retry_job,
}


@router.post("/jobs/{job_id}/extend", dependencies=[needs("write")])
async def extend(job_id: str, form: FormDep, services: ServicesDep) -> Response:
    """Adds to the limits that the job has."""
    await run_in_threadpool(_extend, services, job_id, form)
    return _back(job_id)


@router.post("/jobs/{job_id}/compile", dependencies=[needs("write")])
def compile_so_far(job_id: str, services: ServicesDep) -> Response:
    """Compile what is on record so far, and show the job that does so."""
    return _back(compile_now(services, job_id).job.id)


@router.post("/jobs/{job_id}/measure", dependencies=[needs("write")])
async def measure(job_id: str, form: FormDep, services: ServicesDep) -> Response:
    """Measure the artifact again, beside the runtimes that the form names."""
    await run_in_threadpool(measure_again, services, job_id, baselines=baselines_in(form))
    return _back(job_id)


@router.post("/jobs/{job_id}/labels", dependencies=[needs("write")])
async def label(job_id: str, request: Request, form: FormDep, services: ServicesDep) -> Response:
    """Sets the tags and the note; what is refused is shown again, as it was filled in."""
    try:
        tags, note = labels_of(form)
        await run_in_threadpool(change_job, services, job_id, JobChange(tags=tags, note=note))
    except InvalidInputError as error:
        return refused_labels(request, "/jobs", job_id, form, error)
    return _back(job_id)


@router.get("/jobs/{job_id}/labels", dependencies=[needs("read")])
def labels_address(job_id: str) -> Response:
    """Lead from the address of a form that was refused to the job."""
    return _back(job_id)


@router.post("/jobs/{job_id}/{command}", dependencies=[needs("write")])
def command_job(job_id: str, command: str, services: ServicesDep) -> Response:
    """Cancel, finish, pause, resume or retry a job."""
    if command not in _COMMANDS:
        raise InvalidInputError("there is no such command", code="invalid-request")
    _COMMANDS[command](services, job_id)
    return _back(job_id)


@router.get("/jobs/{job_id}/artifact", dependencies=[needs("read")])
def artifact(request: Request, job_id: str, services: ServicesDep, so_far: bool = False) -> Response:
    """Send a job's artifact, or the one so far."""
    return download_artifact(request, job_id, services, so_far, request.headers.get("if-none-match"))


@router.get("/jobs/{job_id}/artifact.intoto.jsonl", dependencies=[needs("read")])
def envelope(job_id: str, services: ServicesDep, so_far: bool = False) -> Response:
    """Send the signed statement about a job's artifact, or about the one so far."""
    return download_envelope(job_id, services, so_far)


@router.get("/jobs/{job_id}/report", dependencies=[needs("read")])
def report_page(job_id: str, services: ServicesDep) -> Response:
    """Show a job's report."""
    return get_report_page(job_id, services)


@router.get("/jobs/{job_id}/report.json", dependencies=[needs("read")])
def report_json(job_id: str, services: ServicesDep) -> JobReport:
    """Send a job's report as JSON."""
    return get_report(job_id, services)


def _extend(services: Services, job_id: str, form: Form) -> None:
    with services.uow.read() as repos:
        job = repos.jobs.get(job_id)
    before = {**job.budget, "wall_sec": own_wall_sec(job)}
    more: dict[str, Any] = {}
    if minutes := number_of(form, "minutes"):
        limits = [limit for limit in ("job_sec", "wall_sec") if before.get(limit)]
        more |= {limit: (before.get(limit) or 0.0) + 60.0 * minutes for limit in limits or ["wall_sec"]}
    if trials := whole_number_of(form, "trials"):
        more["trials"] = (before.get("trials") or 0) + trials
    if not more:
        raise InvalidInputError("enter minutes or trials to add", code="invalid-budget")
    change_job(services, job_id, JobChange(priority=None, budget=more))


def _back(job_id: str) -> Response:
    return RedirectResponse(f"/jobs/{job_id}", 303)
