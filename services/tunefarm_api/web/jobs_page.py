"""The list of jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse

from tunefarm_api.auth import needs
from tunefarm_api.dependencies import ServicesDep
from tunefarm_api.web.job_view import Left, Speedup, measured_speedup, share_done, speedup_so_far, time_left
from tunefarm_api.web.rendering import page
from tunefarm_app.waiting import why_waiting
from tunefarm_db.job_state import OPEN_STATES, JobState
from tunefarm_db.repositories.overview import JobOrder, ListedJob
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import Job

router = APIRouter(include_in_schema=False)

PAGE_SIZE = 25
_MOST_PAGES = 100_000

GROUPS = {"open": OPEN_STATES, "ended": frozenset(JobState) - OPEN_STATES}
"""What one can filter by beside single states."""

ORDERS = {
    JobOrder.NEWEST: "Newest first",
    JobOrder.OLDEST: "Oldest first",
    JobOrder.CHANGED: "Last changed",
    JobOrder.MODEL: "Model",
    JobOrder.TRIALS: "Most trials",
    JobOrder.LATENCY: "Lowest latency",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLine:
    """One line of the list."""

    job: Job
    model_name: str
    waiting: str | None
    share: float | None
    left: Left | None
    speedup: Speedup | None

    @property
    def device(self) -> str | None:
        device = self.job.progress.get("device")
        return device if isinstance(device, str) and not self.job.state.is_finished else None


@router.get("/", dependencies=[needs("read")])
def home() -> RedirectResponse:
    return RedirectResponse("/jobs", 303)


@router.get("/jobs", dependencies=[needs("read")])
def jobs_page(
    request: Request,
    services: ServicesDep,
    state: Annotated[str, Query(max_length=20)] = "",
    model: Annotated[str, Query(max_length=200)] = "",
    pool: Annotated[str, Query(max_length=200)] = "",
    order: JobOrder = JobOrder.NEWEST,
    number: Annotated[int, Query(alias="page", ge=1, le=_MOST_PAGES)] = 1,
) -> HTMLResponse:
    states = GROUPS.get(state) or frozenset(one for one in JobState if one == state)
    with services.uow.read() as repos:
        found, total = repos.overview.jobs(
            states=states,
            model_text=model.strip(),
            device_key=pool or None,
            order=order,
            limit=PAGE_SIZE,
            offset=(number - 1) * PAGE_SIZE,
        )
        lines = _lines(repos, found)
        pools = repos.overview.pools()
    asked = {"state": state, "model": model.strip(), "pool": pool, "order": order.value}
    return page(
        "jobs.html",
        request,
        lines=lines,
        total=total,
        asked=asked,
        filtered=bool(state or model.strip() or pool),
        number=number,
        pages=max(-(-total // PAGE_SIZE), 1),
        first=(number - 1) * PAGE_SIZE + 1,
        states=[*GROUPS, *JobState],
        orders=ORDERS,
        pools=pools,
        url_of=lambda shown: _url({**asked, "page": str(shown)}),
    )


def _lines(repos: Repositories, found: tuple[ListedJob, ...]) -> list[JobLine]:
    ids = [one.job.id for one in found]
    steps = repos.steps.open_of(ids)
    reports = repos.overview.reports(ids)
    now = repos.now()
    return [
        JobLine(
            job=one.job,
            model_name=one.model_name,
            waiting=why_waiting(one.job, steps.get(one.job.id), now),
            share=share_done(one.job),
            left=time_left(one.job),
            speedup=measured_speedup(reports.get(one.job.id))
            if one.job.state.is_finished
            else speedup_so_far(repos.jobs.tasks(one.job.id)),
        )
        for one in found
    ]


def _url(asked: dict[str, str]) -> str:
    defaults = {"order": JobOrder.NEWEST.value, "page": "1"}
    query = urlencode({name: value for name, value in asked.items() if value != defaults.get(name, "")})
    return f"/jobs?{query}" if query else "/jobs"
