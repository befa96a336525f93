"""Build answers from several values of the database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from tunefarm_api.schemas.base import Page
from tunefarm_api.schemas.job import Job
from tunefarm_api.schemas.model import Model
from tunefarm_api.schemas.record import Record
from tunefarm_app.jobs.progress import eta_sec
from tunefarm_app.leases.device_turns import import_wait, why_waiting, without_wait
from tunefarm_app.report.networks import networks_of
from tunefarm_app.report.numbers import speedups_of
from tunefarm_app.runtime.composition import Services
from tunefarm_db import values
from tunefarm_db.unit_of_work import Repositories


def job_out(services: Services, job: values.Job) -> Job:
    """Return the job with its progress."""
    with services.uow.read() as repos:
        return _jobs(repos, [job])[0]


def job_page_out(repos: Repositories, page: values.Page[values.Job]) -> Page[Job]:
    """Return a page of jobs with their progress; a few queries for all of them."""
    return Page[Job](items=_jobs(repos, page.items), next_cursor=page.next_cursor)


def model_out(repos: Repositories, model: values.Model) -> Model:
    """Return the model, and why its import waits."""
    waiting = import_wait(repos, model.id) if model.state is values.ModelState.IMPORTING else None
    return Model.model_validate({**asdict(model), "waiting": waiting})


def record_page_out(repos: Repositories, page: values.Page[values.Record]) -> Page[Record]:
    """Return a page of records with the names and the arguments of their kernels; one query for all of them."""
    known = repos.searches.known([(record.workload_key, record.toolchain) for record in page.items])
    records = []
    for record in page.items:
        workload = known.get((record.workload_key, record.toolchain))
        kernel = {} if workload is None else {"kernel": workload.name, "args": workload.args}
        records.append(Record.model_validate(asdict(record) | kernel))
    return Page[Record](items=records, next_cursor=page.next_cursor)


def _jobs(repos: Repositories, jobs: Sequence[values.Job]) -> list[Job]:
    ids = [job.id for job in jobs]
    counts = repos.jobs.count_tasks(ids)
    steps = repos.steps.open_of(ids)
    drafts = repos.drafts.of(ids)
    networks = repos.network_timings.of_jobs(ids)
    names = repos.models.names([job.model_id for job in jobs])
    now = repos.now()
    return [
        _job(
            job,
            names.get(job.model_id, ""),
            why_waiting(job, steps.get(job.id), now),
            drafts.get(job.id),
            networks.get(job.id, []),
            counts.get(job.id, values.TaskCounts()),
        )
        for job in jobs
    ]


def _job(
    job: values.Job,
    model_name: str,
    waiting: str | None,
    draft: values.Draft | None,
    networks: Sequence[values.NetworkTiming],
    counts: values.TaskCounts,
) -> Job:
    fields = {
        **asdict(job),
        "model_name": model_name,
        "waiting": waiting,
        "draft": None if draft is None else asdict(draft),
        "networks": networks_of(networks),
        "eta_sec": eta_sec(job),
        "speedups": speedups_of(job),
    }
    fields["progress"] = {
        "phase": job.state.value,
        **without_wait(job.progress),
        "tasks_total": counts.kernels + counts.alternatives,
        "tasks_with_record": counts.kernels_measured + counts.alternatives_measured,
        "alternatives_total": counts.alternatives,
        "alternatives_with_record": counts.alternatives_measured,
        "trials": job.trials,
        "failures": job.failures,
        "best_latency_sec": job.best_latency_sec,
        "tuned_sec": job.tuned_sec,
        "budget": job.budget,
    }
    return Job.model_validate(fields)
