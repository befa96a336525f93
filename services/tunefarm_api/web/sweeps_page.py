"""The list of sweeps, and the page of one: a row for each of its jobs."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse

from tunefarm_api.auth import needs
from tunefarm_api.dependencies import ServicesDep
from tunefarm_api.routes.sweeps import get_sweep_report, get_sweep_report_page
from tunefarm_api.web.rendering import page
from tunefarm_app.jobs.sweeps import cancel_sweep
from tunefarm_app.report.sweeps import SweepReport, sweep_page, sweep_report
from tunefarm_text.job_terms import RUNTIMES

router = APIRouter(prefix="/sweeps", include_in_schema=False)

_SHOWN = 50


@router.get("", dependencies=[needs("read")])
def sweeps_page(
    request: Request, services: ServicesDep, after: Annotated[str | None, Query(max_length=40)] = None
) -> HTMLResponse:
    """The list of sweeps."""
    with services.uow.read() as repos:
        listed = sweep_page(repos, cursor=after, limit=_SHOWN)
    return page("sweeps.html", request, sweeps=listed.items, following=listed.next_cursor)


@router.get("/{sweep_id}", dependencies=[needs("read")])
def one_sweep(request: Request, sweep_id: str, services: ServicesDep) -> HTMLResponse:
    """A sweep."""
    with services.uow.read() as repos:
        sweep = sweep_report(repos, sweep_id)
    return page("sweep.html", request, sweep=sweep, runtimes=RUNTIMES)


@router.get("/{sweep_id}/report", dependencies=[needs("read")])
def report_page(sweep_id: str, services: ServicesDep) -> Response:
    """Show a sweep's report."""
    return get_sweep_report_page(sweep_id, services)


@router.get("/{sweep_id}/report.json", dependencies=[needs("read")])
def report_json(sweep_id: str, services: ServicesDep) -> SweepReport:
    """Send a sweep's report as JSON."""
    return get_sweep_report(sweep_id, services)


@router.post("/{sweep_id}/cancel", dependencies=[needs("write")])
def cancel(sweep_id: str, services: ServicesDep) -> Response:
    """Cancel all of its jobs."""
    cancel_sweep(services, sweep_id)
    return RedirectResponse(f"/sweeps/{sweep_id}", 303)
