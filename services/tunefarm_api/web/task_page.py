"""One kernel of a job: its trials, how they ended, and the schedule that won."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request
from fastapi.responses import HTMLResponse, JSONResponse

from tunefarm_api.auth import needs
from tunefarm_api.dependencies import ServicesDep
from tunefarm_api.web.rendering import page
from tunefarm_api.web.scatter import histogram, scatter
from tunefarm_api.web.schedule import schedule_lines
from tunefarm_api.web.task_view import task_lines
from tunefarm_app.job_report.words import OUTCOMES
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import JobTask
from tunefarm_tuning.errors import NotFoundError

router = APIRouter(include_in_schema=False)

_Position = Annotated[int, Path(ge=0, lt=1 << 31)]


@router.get("/jobs/{job_id}/tasks/{position}", dependencies=[needs("read")])
def task_page(job_id: str, position: _Position, request: Request, services: ServicesDep) -> HTMLResponse:
    with services.uow.read() as repos:
        job = repos.jobs.get(job_id)
        model = repos.models.get(job.model_id, deleted=True)
        tasks = repos.jobs.tasks(job_id)
        task = _one(tasks, position)
        lines = task_lines(tasks, repos.models.tasks(job.model_id))
        ends = repos.searches.ends(job_id, position)
        messages = repos.searches.messages(job_id, position)
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
        messages=messages,
        fastest=fastest,
        record=record,
        knobs=[] if record is None else schedule_lines(record.config, space, record.space_key),
        before=position - 1 if position else None,
        after=position + 1 if position + 1 < len(tasks) else None,
    )


@router.get("/jobs/{job_id}/tasks/{position}/trials.json", dependencies=[needs("read")])
def task_trials(job_id: str, position: _Position, services: ServicesDep) -> JSONResponse:
    with services.uow.read() as repos:
        _task(repos, job_id, position)
        ends = repos.searches.ends(job_id, position)
    return JSONResponse(scatter(ends))


def _task(repos: Repositories, job_id: str, position: int) -> JobTask:
    repos.jobs.get(job_id)
    return _one(repos.jobs.tasks(job_id), position)


def _one(tasks: tuple[JobTask, ...], position: int) -> JobTask:
    if position >= len(tasks):
        raise NotFoundError("the job has no such task", code="task-not-found", position=position)
    return tasks[position]
