"""The page of one task of a job: its trials, their outcomes, and the best schedule."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request
from fastapi.responses import HTMLResponse, JSONResponse

from tunefarm_api.auth import needs
from tunefarm_api.dependencies import ServicesDep
from tunefarm_api.web.charts.scatter import histogram, scatter
from tunefarm_api.web.jobs.failures import group_failures
from tunefarm_api.web.jobs.schedule import schedule_lines
from tunefarm_api.web.jobs.source_page import NAMES as SOURCE_NAMES
from tunefarm_api.web.jobs.source_page import source_kinds
from tunefarm_api.web.jobs.task_view import task_lines
from tunefarm_api.web.rendering import page
from tunefarm_app.records.kernel_sources import job_task, winner_of
from tunefarm_app.records.rooflines import job_rooflines
from tunefarm_app.report.evidence import Evidence
from tunefarm_app.report.libraries import libraries_ahead
from tunefarm_app.report.words import OUTCOMES

router = APIRouter(include_in_schema=False)

_Position = Annotated[int, Path(ge=0, lt=1 << 31)]


@router.get("/jobs/{job_id}/tasks/{position}", dependencies=[needs("read")])
def task_page(job_id: str, position: _Position, request: Request, services: ServicesDep) -> HTMLResponse:
    """The page of one of a job's kernels."""
    with services.uow.read() as repos:
        job = repos.jobs.get(job_id)
        model = repos.models.get(job.model_id, deleted=True)
        tasks = repos.jobs.tasks(job_id)
        task = job_task(repos, job_id, position)
        artifact = repos.artifacts.for_job(job_id)
        winner = winner_of(repos, job, task, artifact)
        model_tasks = repos.models.tasks(job.model_id)
        report = None if artifact is None else artifact.report
        lines = task_lines(tasks, model_tasks, report, job_rooflines(repos, job, tasks, model_tasks, report))
        ends = repos.searches.ends(job_id, position)
        failed = repos.searches.failures(job_id, position)
        fastest = repos.searches.fastest(job_id, position)
        record = None
        if fastest is not None and fastest.record_id is not None:
            record = repos.searches.record(fastest.record_id)
        space = repos.spaces.get(task.workload_key, target_key=job.target_key, toolchain=task.toolchain)
    return page(
        "task.html",
        request,
        job=job,
        model=model,
        line=next(line for line in lines if line.task.position == position),
        histogram=histogram(ends),
        meanings=OUTCOMES,
        ahead=[
            entry.sentence
            for entry in libraries_ahead(Evidence(manifest={}, report=report or {}).alternatives())
            if entry.workload_key == task.workload_key
        ],
        failures=group_failures(failed, sum(outcome != "ok" for outcome, _ in ends)),
        winner=winner,
        source_kinds=source_kinds(str(job.target.get("kind"))),
        source_names=SOURCE_NAMES,
        fastest=fastest,
        record=record,
        knobs=[] if record is None else schedule_lines(record.config, space, record.space_key),
        before=position - 1 if position else None,
        after=position + 1 if position + 1 < len(tasks) else None,
    )


@router.get("/jobs/{job_id}/tasks/{position}/trials.json", dependencies=[needs("read")])
def task_trials(job_id: str, position: _Position, services: ServicesDep) -> JSONResponse:
    """Return the chart of a kernel's trials, for the page's script."""
    with services.uow.read() as repos:
        repos.jobs.get(job_id)
        job_task(repos, job_id, position)
        ends = repos.searches.ends(job_id, position)
    return JSONResponse(scatter(ends))
