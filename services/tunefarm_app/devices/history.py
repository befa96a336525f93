"""What a device did: its use and vitals over a span, and how long that is kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import structlog

from tunefarm_app.runtime.composition import Services
from tunefarm_db.repositories.devices.devices import is_calibration
from tunefarm_db.repositories.devices.slots import parts
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import Device, DeviceInterval

log = structlog.stdlib.get_logger(__name__)

_FINE_FOR_SEC = 26 * 3600.0
"""Slots of a minute are kept for the day that charts show by the quarter of an hour, and a little longer."""
_AT_ONCE = 1000
_DEVICES_AT_ONCE = 100


class Span(StrEnum):
    """How far back a chart goes."""

    HOUR = "hour"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"

    @property
    def sec(self) -> int:
        return {Span.HOUR: 3600, Span.DAY: 86_400, Span.WEEK: 7 * 86_400, Span.MONTH: 30 * 86_400}[self]

    @property
    def width_sec(self) -> int:
        """How long each of its intervals is: there are 60 to 96."""
        return {Span.HOUR: 60, Span.DAY: 900, Span.WEEK: 7200, Span.MONTH: 28_800}[self]


def intervals_of(repos: Repositories, device: Device, span: Span) -> list[DeviceInterval]:
    """Return what the device did in each interval of the span, oldest first; the last one is still running.

    A lease counts from when it was given until it was given back, or ran out; the one that runs, until now.
    """
    now = repos.now()
    since = int((now - span.sec) // span.width_sec) * span.width_sec
    intervals = repos.device_slots.intervals(device.id, since=since, until=now, width_sec=span.width_sec)
    return [_with_lease(interval, device, now) for interval in intervals]


def _with_lease(interval: DeviceInterval, device: Device, now: float) -> DeviceInterval:
    if device.lease_owner is None or device.leased_at is None or device.lease_until is None:
        return interval
    end = min(now, device.lease_until, interval.at + interval.sec)
    sec = sum(part for _, part in parts(max(device.leased_at, interval.at), end, 3600))
    if is_calibration(device.lease_owner):
        return replace(interval, calibration_sec=interval.calibration_sec + sec)
    return replace(interval, work_sec=interval.work_sec + sec)


def thin_device_history(services: Services) -> int:
    """Make wide slots of narrow ones that are a day old, and forget what is older than the settings say; return how much went."""
    age_sec = services.settings.keep_device_history_days * 86_400.0
    after = ""
    deleted = 0
    while True:
        with services.uow.read() as repos:
            device_ids = repos.device_slots.devices(after=after, limit=_DEVICES_AT_ONCE)
        if not device_ids:
            break
        for device_id in device_ids:
            with services.uow.write() as repos:
                repos.device_slots.fold(device_id, _FINE_FOR_SEC)
                deleted += repos.device_slots.forget(device_id, age_sec)
        after = device_ids[-1]
    deleted += _forget_events(services, age_sec)
    if deleted:
        log.info("history of devices not kept any longer", rows=deleted)
    return deleted


def _forget_events(services: Services, age_sec: float) -> int:
    """Forget changes and calibrations that are older, in parts: on SQLite, nobody else writes during one."""
    deleted = 0
    while True:
        with services.uow.write() as repos:
            batch = repos.device_history.forget(age_sec, limit=_AT_ONCE)
        deleted += batch
        if batch < _AT_ONCE:  # of neither is there more
            return deleted


@dataclass(frozen=True, slots=True, kw_only=True)
class Vitals:
    """None where nobody told.

    Attributes:
        load: The machine's, as how many processes want a core.
        temperature_celsius: The GPU's, where the device is one; else the machine's hottest.
        clock_mhz: The GPU's or the CPU's.
    """

    load: float | None
    temperature_celsius: float | None
    clock_mhz: float | None


def vitals_of(info: Mapping[str, Any]) -> Vitals:
    """Return what a device's `info` says."""
    status = info.get("agent")
    agent: Mapping[str, Any] = status if isinstance(status, Mapping) else {}
    loads, gpus = agent.get("load"), agent.get("gpus")
    gpu = gpus[0] if isinstance(gpus, list) and gpus and isinstance(gpus[0], Mapping) else {}
    return Vitals(
        load=_number(loads[0], 1e6) if isinstance(loads, list) and loads else None,
        temperature_celsius=_first(gpu, agent, "temperature_celsius", 1e4),
        clock_mhz=_first(gpu, agent, "clock_mhz", 1e6),
    )


def _first(gpu: Mapping[str, Any], agent: Mapping[str, Any], name: str, most: float) -> float | None:
    of_gpu = _number(gpu.get(name), most)
    return _number(agent.get(name), most) if of_gpu is None else of_gpu


def _number(value: object, most: float) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if abs(value) <= most else None  # no nan either; a whole number may have any size
