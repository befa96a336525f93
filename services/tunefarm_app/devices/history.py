"""History of devices: use and vitals over a span of time, and how long they are kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import structlog

from tunefarm_app.devices.agent_info import agent_of, first_gpu, load_of, number
from tunefarm_app.runtime.composition import Services
from tunefarm_db.repositories.devices.devices import is_calibration
from tunefarm_db.repositories.devices.slots import parts
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import Device, DeviceInterval

log = structlog.stdlib.get_logger(__name__)

_FINE_FOR_SEC = 26 * 3600.0
"""Minute slots are kept a little longer than a day: the chart of a day shows quarters of an hour."""
_AT_ONCE = 1000
_DEVICES_AT_ONCE = 100


class Span(StrEnum):
    """Period of a chart."""

    HOUR = "hour"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"

    @property
    def sec(self) -> int:
        return {Span.HOUR: 3600, Span.DAY: 86_400, Span.WEEK: 7 * 86_400, Span.MONTH: 30 * 86_400}[self]

    @property
    def width_sec(self) -> int:
        """Length of its intervals: 60 to 96 of them make a chart."""
        return {Span.HOUR: 60, Span.DAY: 900, Span.WEEK: 7200, Span.MONTH: 28_800}[self]


def intervals_of(repos: Repositories, device: Device, span: Span) -> list[DeviceInterval]:
    """Return the intervals of the span, oldest first; the last one is still running.

    A lease counts until it was released or expired; a running one counts until now.
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
    """Merge minute slots older than a day, and delete history older than the settings say; return how many rows."""
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
        log.info("history of devices deleted", rows=deleted)
    return deleted


def _forget_events(services: Services, age_sec: float) -> int:
    """Delete older changes and calibrations in batches: on SQLite, nobody else can write during a batch."""
    deleted = 0
    while True:
        with services.uow.write() as repos:
            batch = repos.device_history.forget(age_sec, limit=_AT_ONCE)
        deleted += batch
        if batch < _AT_ONCE:  # there are no more of either
            return deleted


@dataclass(frozen=True, slots=True, kw_only=True)
class Vitals:
    """Load, temperature and clock of a device; None where unknown.

    Attributes:
        load: The machine's load average.
        temperature_celsius: The GPU's if the device is one, else the machine's hottest.
        clock_mhz: The GPU's or the CPU's.
    """

    load: float | None
    temperature_celsius: float | None
    clock_mhz: float | None


def vitals_of(info: Mapping[str, Any]) -> Vitals:
    """Read the vitals in a device's `info`, in which its agent may have sent anything."""
    agent = agent_of(info)
    gpu = first_gpu(agent)

    def vital(name: str, most: float) -> float | None:
        of_gpu = number(gpu.get(name), most)
        return number(agent.get(name), most) if of_gpu is None else of_gpu

    return Vitals(
        load=load_of(agent, 1e6),
        temperature_celsius=vital("temperature_celsius", 1e4),
        clock_mhz=vital("clock_mhz", 1e6),
    )
