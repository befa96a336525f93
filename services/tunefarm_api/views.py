"""Answers that are put together from more than one value."""

from __future__ import annotations

from dataclasses import asdict

from tunefarm_api.schemas.base import Page
from tunefarm_api.schemas.job import Job
from tunefarm_app.composition import Services
from tunefarm_db import values
from tunefarm_db.unit_of_work import Repositories


def job_out(services: Services, job: values.Job) -> Job:
    """Return the job with its progress."""
    with services.uow.read() as repos:
        counts = repos.jobs.count_tasks([job.id])
    return _job(job, *counts.get(job.id, (0, 0)))


def job_page_out(repos: Repositories, page: values.Page[values.Job]) -> Page[Job]:
    """Return a page of jobs with their progress; one query for all of them."""
    counts = repos.jobs.count_tasks([job.id for job in page.items])
    return Page[Job](
        items=[_job(job, *counts.get(job.id, (0, 0))) for job in page.items], next_cursor=page.next_cursor
    )


def _job(job: values.Job, tasks_total: int, tasks_with_record: int) -> Job:
    fields = asdict(job)
    fields["progress"] = {
        "phase": job.state.value,
        **job.progress,
        "tasks_total": tasks_total,
        "tasks_with_record": tasks_with_record,
        "trials": job.trials,
        "failures": job.failures,
        "best_latency_sec": job.best_latency_sec,
        "tuned_sec": job.tuned_sec,
        "budget": job.budget,
    }
    return Job.model_validate(fields)
