"""What a device did: its use and vitals over a span, and how long that is kept."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

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
    found = repos.device_slots.intervals(device.id, since=since, until=now, width_sec=span.width_sec)
    return [_with_lease(one, device, now) for one in found]


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
    gone = 0
    while True:
        with services.uow.read() as repos:
            device_ids = repos.device_slots.devices(after=after, limit=_DEVICES_AT_ONCE)
        if not device_ids:
            break
        for device_id in device_ids:
            with services.uow.write() as repos:
                repos.device_slots.fold(device_id, _FINE_FOR_SEC)
                gone += repos.device_slots.forget(device_id, age_sec)
        after = device_ids[-1]
    gone += _forget_events(services, age_sec)
    if gone:
        log.info("history of devices not kept any longer", rows=gone)
    return gone


def _forget_events(services: Services, age_sec: float) -> int:
    """Forget changes and calibrations that are older, in parts: on SQLite, nobody else writes during one."""
    gone = 0
    while True:
        with services.uow.write() as repos:
            went = repos.device_history.forget(age_sec, limit=_AT_ONCE)
        gone += went
        if went < _AT_ONCE:  # of neither is there more
            return gone
