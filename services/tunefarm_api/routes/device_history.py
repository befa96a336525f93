"""``/v1/devices/{id}/...``: the history of a device."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Query

from tunefarm_api.auth import needs
from tunefarm_api.dependencies import ServicesDep
from tunefarm_api.errors.problems import problems
from tunefarm_api.schemas.base import Limit, Page, cursor_of
from tunefarm_api.schemas.device_history import (
    DeviceCalibration,
    DeviceChange,
    DeviceInterval,
    DeviceIntervals,
    DeviceRecord,
    DeviceTotals,
)
from tunefarm_app.devices.history import Span, intervals_of

router = APIRouter(
    prefix="/v1/devices/{device_id}", tags=["devices"], dependencies=[needs("read")], responses=problems(404)
)


@router.get("/intervals", summary="Look at a device's use, temperature, load and clock over time")
def device_intervals(
    device_id: str,
    services: ServicesDep,
    span: Annotated[Span, Query(description="How far back they go.")] = Span.DAY,
) -> DeviceIntervals:
    """Sixty minutes, or some ninety quarters of an hour, two hours, or eight hours each.

    A device is used while somebody holds a lease of it: from when it was given until it was given back, or, where its holder
    died, until it ran out. Of what is older than `TUNEFARM_KEEP_DEVICE_HISTORY_DAYS`, nothing is known.
    """
    with services.uow.read() as repos:
        items = intervals_of(repos, repos.devices.get(device_id), span)
    return DeviceIntervals(
        span=span, width_sec=span.width_sec, items=[DeviceInterval.model_validate(entry) for entry in items]
    )


@router.get("/totals", summary="Count what a device ever measured")
def device_totals(device_id: str, services: ServicesDep) -> DeviceTotals:
    """Trials, and not confirmations. Trials that found no device are nobody's."""
    with services.uow.read() as repos:
        repos.devices.get(device_id)
        measured_sec, outcomes = repos.counters.of_device(device_id)
    return DeviceTotals(measured_sec=measured_sec, trials=sum(outcomes.values()), outcomes=outcomes)


@router.get("/calibrations", summary="List a device's calibrations")
def device_calibrations(
    device_id: str,
    services: ServicesDep,
    limit: Limit = 50,
    cursor: Annotated[str | None, cursor_of("cal")] = None,
) -> Page[DeviceCalibration]:
    """Newest first, those that failed included."""
    with services.uow.read() as repos:
        repos.devices.get(device_id)
        page = repos.device_history.calibrations(device_id, cursor=cursor, limit=limit)
    drift = services.settings.calibration_drift
    items = [
        DeviceCalibration(
            **asdict(calibration),
            limit_sec=None if calibration.reference_sec is None else calibration.reference_sec * drift,
        )
        for calibration in page.items
    ]
    return Page(items=items, next_cursor=page.next_cursor)


@router.get("/changes", summary="List the changes of a device's state")
def device_changes(
    device_id: str,
    services: ServicesDep,
    limit: Limit = 50,
    cursor: Annotated[str | None, cursor_of("dch")] = None,
) -> Page[DeviceChange]:
    """Newest first. A calibration that was due, and that it passed, is no change."""
    with services.uow.read() as repos:
        repos.devices.get(device_id)
        page = repos.device_history.changes(device_id, cursor=cursor, limit=limit)
    return Page[DeviceChange].model_validate(page)


@router.get("/records", summary="List what was measured on a device")
def device_records(
    device_id: str,
    services: ServicesDep,
    limit: Limit = 50,
    cursor: Annotated[str | None, cursor_of("rec")] = None,
) -> Page[DeviceRecord]:
    """Newest first, failures of candidates included."""
    with services.uow.read() as repos:
        repos.devices.get(device_id)
        page = repos.device_history.measured(device_id, cursor=cursor, limit=limit)
    return Page[DeviceRecord].model_validate(page)
