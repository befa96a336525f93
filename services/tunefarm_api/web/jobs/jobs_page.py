"""The list of jobs."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse

from tunefarm_api.auth import needs
from tunefarm_api.dependencies import ServicesDep
from tunefarm_api.paths import UPLOADS
from tunefarm_api.web.jobs.job_line import job_lines
from tunefarm_api.web.rendering import page
from tunefarm_db.repositories.selection import JobOrder
from tunefarm_db.states.job import OPEN_STATES, JobState
from tunefarm_db.values import UP_STATES, DeviceState
from tunefarm_text.job_terms import plain_tag

router = APIRouter(include_in_schema=False)

PAGE_SIZE = 25
_MOST_PAGES = 100_000
_MOST_DEVICES = 500

GROUPS = {"open": OPEN_STATES, "ended": frozenset(JobState) - OPEN_STATES}
"""What one can filter by beside single states."""

ORDERS = {
    JobOrder.NEWEST: "Newest first",
    JobOrder.OLDEST: "Oldest first",
    JobOrder.CHANGED: "Last changed",
    JobOrder.MODEL: "Model",
    JobOrder.STATE: "State",
    JobOrder.TRIALS: "Most trials",
    JobOrder.LATENCY: "Lowest latency",
    JobOrder.SPEEDUP: "Speed-up over untuned",
    JobOrder.RUNTIME: "Speed-up over the fastest runtime",
}


@router.get("/", dependencies=[needs("read")])
def home() -> RedirectResponse:
    """Lead to the list of jobs, which is the first page."""
    return RedirectResponse("/jobs", 303)


@router.get("/jobs", dependencies=[needs("read")])
def jobs_page(
    request: Request,
    services: ServicesDep,
    state: Annotated[str, Query(max_length=20)] = "",
    model: Annotated[str, Query(max_length=200)] = "",
    pool: Annotated[str, Query(max_length=200)] = "",
    text: Annotated[str, Query(max_length=200)] = "",
    tag: Annotated[str, Query(max_length=200)] = "",
    order: JobOrder = JobOrder.NEWEST,
    number: Annotated[int, Query(alias="page", ge=1, le=_MOST_PAGES)] = 1,
) -> HTMLResponse:
    """The list of jobs."""
    states = GROUPS.get(state) or frozenset(job_state for job_state in JobState if job_state == state)
    with services.uow.read() as repos:
        jobs, total = repos.overview.jobs(
            states=states,
            model_text=model.strip(),
            device_key=pool or None,
            text=text.strip(),
            tags=[plain_tag(tag)] if tag.strip() else (),
            order=order,
            limit=PAGE_SIZE,
            offset=(number - 1) * PAGE_SIZE,
        )
        lines = job_lines(repos, jobs)
        pools = repos.overview.pools()
        tags = repos.overview.tags()
        devices = () if jobs else repos.devices.list(limit=_MOST_DEVICES).items
        has_models = not jobs and bool(repos.models.list(limit=1).items)
    filters = {
        "text": text.strip(),
        "tag": plain_tag(tag),
        "state": state,
        "model": model.strip(),
        "pool": pool,
        "order": order.value,
    }
    return page(
        "jobs.html",
        request,
        lines=lines,
        total=total,
        asked=filters,
        filtered=any(value for name, value in filters.items() if name != "order"),
        number=number,
        pages=max(-(-total // PAGE_SIZE), 1),
        first=(number - 1) * PAGE_SIZE + 1,
        states=[*GROUPS, *JobState],
        orders=ORDERS,
        pools=pools,
        tags=tags,
        has_models=has_models,
        devices_up=sum(device.state in UP_STATES for device in devices),
        devices_checked=sum(device.state is DeviceState.CHECKING for device in devices),
        max_bytes=services.settings.max_upload_bytes,
        upload_url=UPLOADS,
        url_of=lambda shown: _url({**filters, "page": str(shown)}),
    )


def _url(filters: dict[str, str]) -> str:
    defaults = {"order": JobOrder.NEWEST.value, "page": "1"}
    query = urlencode({name: value for name, value in filters.items() if value != defaults.get(name, "")})
    return f"/jobs?{query}" if query else "/jobs"
