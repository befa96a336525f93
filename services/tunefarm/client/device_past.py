"""What a device did: what the server answers, and how to ask. `client.devices` has these methods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from tunefarm.client.http.paging import get_page
from tunefarm.client.http.transport import Transport, segment
from tunefarm.client.results.fields import Fields
from tunefarm.client.results.jobs import Page


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceInterval:
    """What a device did in a stretch of time, and how it was.

    Attributes:
        at: When it begins, Unix seconds.
        sec: How long it is; the one that still runs is as long as it has lasted.
        work_sec: How long steps of jobs held the device.
        calibration_sec: How long it was held to be calibrated.
        measured_sec: How long trials ran on it, of `work_sec`.
        beats: How often its agent was heard of.
        load: The machine's load, on average; None where nobody told.
        temperature_celsius: The hottest that it was.
        clock_mhz: Its clock, on average.
    """

    at: float
    sec: float
    work_sec: float
    calibration_sec: float
    measured_sec: float
    beats: int
    load: float | None
    temperature_celsius: float | None
    clock_mhz: float | None
    raw: Mapping[str, Any] = field(repr=False)

    @property
    def used(self) -> float:
        """The share of it that the device was leased."""
        return min((self.work_sec + self.calibration_sec) / self.sec, 1.0) if self.sec > 0 else 0.0

    @classmethod
    def read(cls, data: object) -> Self:
        f = Fields(data, "interval")
        return cls(
            at=f.number("at"),
            sec=f.number("sec"),
            work_sec=f.number("work_sec", 0.0),
            calibration_sec=f.number("calibration_sec", 0.0),
            measured_sec=f.number("measured_sec", 0.0),
            beats=f.integer("beats", 0),
            load=f.optional_number("load"),
            temperature_celsius=f.optional_number("temperature_celsius"),
            clock_mhz=f.optional_number("clock_mhz"),
            raw=f.data,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTotals:
    """What a device ever measured: trials, by how they ended, and the seconds that they took."""

    measured_sec: float
    trials: int
    outcomes: Mapping[str, int]
    raw: Mapping[str, Any] = field(repr=False)

    @classmethod
    def read(cls, data: object) -> Self:
        f = Fields(data, "totals")
        outcomes = Fields(f.mapping("outcomes"), "outcomes")
        return cls(
            measured_sec=f.number("measured_sec"),
            trials=f.integer("trials"),
            outcomes={name: outcomes.integer(name) for name in outcomes.data},
            raw=f.data,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCalibration:
    """How a calibration went.

    Attributes:
        outcome: ``clean``, ``drift``, ``wrong`` or ``broken``.
        time_sec: What the kernel took; None where it did not run.
        reference_sec: What that is held against.
        limit_sec: What it may take.
    """

    id: str
    created_at: float
    outcome: str
    reason: str
    time_sec: float | None
    reference_sec: float | None
    limit_sec: float | None
    all_cores_sec: float | None
    raw: Mapping[str, Any] = field(repr=False)

    @classmethod
    def read(cls, data: object) -> Self:
        f = Fields(data, "calibration")
        return cls(
            id=f.text("id"),
            created_at=f.number("created_at"),
            outcome=f.text("outcome"),
            reason=f.text("reason", ""),
            time_sec=f.optional_number("time_sec"),
            reference_sec=f.optional_number("reference_sec"),
            limit_sec=f.optional_number("limit_sec"),
            all_cores_sec=f.optional_number("all_cores_sec"),
            raw=f.data,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceChange:
    """A change of a device's state, or an order that a person gave: what happened, the state that it led to, and why."""

    id: str
    created_at: float
    event: str
    state: str
    reason: str
    raw: Mapping[str, Any] = field(repr=False)

    @classmethod
    def read(cls, data: object) -> Self:
        f = Fields(data, "change")
        return cls(
            id=f.text("id"),
            created_at=f.number("created_at"),
            event=f.text("event"),
            state=f.text("state"),
            reason=f.text("reason", ""),
            raw=f.data,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRecord:
    """A record, as far as it tells what a device did.

    Attributes:
        name: The kernel's; None where its job is not known.
        position: The kernel's place among the tasks of the job.
    """

    id: str
    workload_key: str
    name: str | None
    job_id: str | None
    position: int | None
    outcome: str
    cost_sec: float | None
    message: str
    measured_at: float
    raw: Mapping[str, Any] = field(repr=False)

    @classmethod
    def read(cls, data: object) -> Self:
        f = Fields(data, "record")
        return cls(
            id=f.text("id"),
            workload_key=f.text("workload_key"),
            name=f.optional_text("name"),
            job_id=f.optional_text("job_id"),
            position=None if f.data.get("position") is None else f.integer("position"),
            outcome=f.text("outcome"),
            cost_sec=f.optional_number("cost_sec"),
            message=f.text("message", ""),
            measured_at=f.number("measured_at", 0.0),
            raw=f.data,
        )


class AsyncDevicePast:
    """What devices did."""

    _transport: Transport

    async def intervals(self, device_id: str, *, span: str = "day") -> tuple[DeviceInterval, ...]:
        """Return the device's use, temperature, load and clock over time, oldest first.

        Args:
            device_id: The device.
            span: How far back: ``hour``, ``day``, ``week`` or ``month``, in 60 to 97 intervals.
        """
        path = f"devices/{segment(device_id)}/intervals"
        found = Fields(await self._transport.get(path, {"span": span}), "list")
        return tuple(DeviceInterval.read(one) for one in found.items("items"))

    async def totals(self, device_id: str) -> DeviceTotals:
        """Return what the device ever measured."""
        return DeviceTotals.read(await self._transport.get(f"devices/{segment(device_id)}/totals"))

    async def calibrations(
        self, device_id: str, *, limit: int = 50, cursor: str | None = None
    ) -> Page[DeviceCalibration]:
        """Return the device's calibrations, newest first."""
        return await self._past(device_id, "calibrations", limit, cursor, DeviceCalibration.read)

    async def changes(
        self, device_id: str, *, limit: int = 50, cursor: str | None = None
    ) -> Page[DeviceChange]:
        """Return the changes of the device's state, newest first; checks that it passed are left out."""
        return await self._past(device_id, "changes", limit, cursor, DeviceChange.read)

    async def records(
        self, device_id: str, *, limit: int = 50, cursor: str | None = None
    ) -> Page[DeviceRecord]:
        """Return what was measured on the device, newest first."""
        return await self._past(device_id, "records", limit, cursor, DeviceRecord.read)

    async def _past(self, device_id: str, what: str, limit: int, cursor: str | None, read: Any) -> Page[Any]:
        query = {"limit": limit, "cursor": cursor}
        return await get_page(self._transport, f"devices/{segment(device_id)}/{what}", query, read)
