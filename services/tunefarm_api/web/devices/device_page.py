"""The page of one device."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, JSONResponse

from tunefarm_api.auth import needs
from tunefarm_api.dependencies import ServicesDep
from tunefarm_api.web.devices.device_view import (
    agent_facts,
    calibration_chart,
    credential_facts,
    facts_of,
    interval_chart,
    peak_facts,
    use_of,
    versions_of,
)
from tunefarm_api.web.devices.devices_page import device_lines
from tunefarm_api.web.rendering import page
from tunefarm_app.devices.credentials import credentials_of
from tunefarm_app.devices.history import Span, intervals_of
from tunefarm_app.devices.holders import NOBODY, holders_of
from tunefarm_app.devices.peak import peaks_of
from tunefarm_app.report.words import OUTCOMES

router = APIRouter(include_in_schema=False)

_SHOWN = 15
_MOST_CALIBRATIONS = 20_000
"""More than a quarter of a year of them, one every ten minutes."""

_OK = "ok"
_Span = Annotated[Span, Query()]


@router.get("/devices/{device_id}", dependencies=[needs("read")])
def device_page(
    device_id: str,
    request: Request,
    services: ServicesDep,
    span: _Span = Span.DAY,
    measured: Annotated[str | None, Query(max_length=100)] = None,
    changes: Annotated[str | None, Query(max_length=100)] = None,
) -> HTMLResponse:
    """A device's page."""
    with services.uow.read() as repos:
        device = repos.devices.get(device_id)
        holder = holders_of(repos, [device]).get(device_id, NOBODY)
        peak = peaks_of(repos, [device]).get(device_id)
        credential = credentials_of(repos, [device.name]).get(device.name)
        intervals = intervals_of(repos, device, span)
        measured_sec, outcomes = repos.counters.of_device(device_id)
        calibrations = repos.device_history.calibrations(device_id, limit=_SHOWN)
        history = repos.device_history.changes(device_id, cursor=changes, limit=_SHOWN)
        records = repos.device_history.measured(device_id, cursor=measured, limit=_SHOWN)
    (line,) = device_lines([device], {}, {device_id: measured_sec})
    trials = sum(outcomes.values())
    ordered = sorted(outcomes.items(), key=lambda item: (item[0] != _OK, -item[1], item[0]))
    return page(
        "device.html",
        request,
        device=device,
        line=line,
        holder=holder,
        span=span,
        spans=list(Span),
        intervals=list(reversed(intervals)),
        use=use_of(intervals, device.created_at),
        trials=trials,
        failed=trials - outcomes.get(_OK, 0),
        outcomes=[(outcome, count, count / trials) for outcome, count in ordered],
        meanings=OUTCOMES,
        calibrations=calibrations.items,
        drift=services.settings.calibration_drift,
        calibrates=services.settings.calibrate_every_sec > 0 or bool(calibrations.items),
        history=history,
        records=records,
        measured=measured,
        changes=changes,
        facts=[
            *facts_of(device),
            *peak_facts(peak),
            *agent_facts(device),
            *credential_facts(credential),
        ],
        versions=versions_of(device),
        kept_days=services.settings.keep_device_history_days,
    )


@router.get("/devices/{device_id}/intervals.json", dependencies=[needs("read")])
def device_intervals(device_id: str, services: ServicesDep, span: _Span = Span.DAY) -> JSONResponse:
    """Return the chart of a device's use over time, for the page's script."""
    with services.uow.read() as repos:
        intervals = intervals_of(repos, repos.devices.get(device_id), span)
    return JSONResponse(interval_chart(span, intervals), headers={"Cache-Control": "no-store"})


@router.get("/devices/{device_id}/calibrations.json", dependencies=[needs("read")])
def device_calibrations(device_id: str, services: ServicesDep) -> JSONResponse:
    """Return the chart of a device's calibration times, for the page's script."""
    with services.uow.read() as repos:
        repos.devices.get(device_id)
        times = repos.device_history.calibration_times(device_id, most=_MOST_CALIBRATIONS)
    drawn = calibration_chart(times, services.settings.calibration_drift)
    return JSONResponse(drawn, headers={"Cache-Control": "no-store"})
