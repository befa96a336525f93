"""``/v1/devices/{id}/...``: the history of a device."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Depends, Query

from tunefarm_api.auth import needs
from tunefarm_api.dependencies import DeviceId, ServicesDep, refuse_unknown_parameters
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
    prefix="/v1/devices/{device_id}",
    tags=["devices"],
    dependencies=[needs("read"), Depends(refuse_unknown_parameters)],
    responses=problems(404),
)


@router.get("/intervals", summary="Get a device's use, temperature, load and clock over time")
def device_intervals(
    device_id: DeviceId,
    services: ServicesDep,
    span: Annotated[Span, Query(description="Period of the intervals.")] = Span.DAY,
) -> DeviceIntervals:
    """Returns sixty minutes, or about ninety intervals of 15 minutes, two hours or eight hours.

    A device counts as used while it is leased: until the lease is released or, if its holder died, until it expires.
    History older than `TUNEFARM_KEEP_DEVICE_HISTORY_DAYS` is deleted.
    """
    with services.uow.read() as repos:
        items = intervals_of(repos, repos.devices.get(device_id), span)
    return DeviceIntervals(
        span=span, width_sec=span.width_sec, items=[DeviceInterval.model_validate(entry) for entry in items]
    )


@router.get("/totals", summary="Get a device's totals")
def device_totals(device_id: DeviceId, services: ServicesDep) -> DeviceTotals:
    """Counts trials, except confirmations and trials that had no device."""
    with services.uow.read() as repos:
        repos.devices.get(device_id)
        measured_sec, outcomes = repos.counters.of_device(device_id)
    return DeviceTotals(measured_sec=measured_sec, trials=sum(outcomes.values()), outcomes=outcomes)


@router.get("/calibrations", summary="List a device's calibrations")
def device_calibrations(
    device_id: DeviceId,
    services: ServicesDep,
    limit: Limit = 50,
    cursor: Annotated[str | None, cursor_of("cal")] = None,
) -> Page[DeviceCalibration]:
    """Newest first, including failed ones."""
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


@router.get("/changes", summary="List a device's state changes")
def device_changes(
    device_id: DeviceId,
    services: ServicesDep,
    limit: Limit = 50,
    cursor: Annotated[str | None, cursor_of("dch")] = None,
) -> Page[DeviceChange]:
    """Newest first. A regular calibration that passed is not a change."""
    with services.uow.read() as repos:
        repos.devices.get(device_id)
        page = repos.device_history.changes(device_id, cursor=cursor, limit=limit)
    return Page[DeviceChange].model_validate(page)


@router.get("/records", summary="List a device's records")
def device_records(
    device_id: DeviceId,
    services: ServicesDep,
    limit: Limit = 50,
    cursor: Annotated[str | None, cursor_of("rec")] = None,
) -> Page[DeviceRecord]:
    """Newest first, including failed trials."""
    with services.uow.read() as repos:
        repos.devices.get(device_id)
        page = repos.device_history.measured(device_id, cursor=cursor, limit=limit)
    return Page[DeviceRecord].model_validate(page)
