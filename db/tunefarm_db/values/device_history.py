"""What the repositories hand out of what devices did."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tunefarm_db.values.devices import DeviceState


class CalibrationOutcome(StrEnum):
    """How a calibration ended."""

    CLEAN = "clean"
    DRIFT = "drift"  # right, and not as fast as it should be, or faster
    WRONG = "wrong"  # the answer was wrong
    BROKEN = "broken"  # it did not come to its end


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCalibration:
    """How a calibration went. Times are None where the kernel did not run.

    Attributes:
        reason: Why it is not clean.
        key: Times under one key can be compared.
        time_sec: What the kernel took, by itself.
        reference_sec: What that was held against.
        all_cores_sec: What it took on all cores at once; None where there is one alone.
        all_cores_reference_sec: What that was held against.
    """

    outcome: CalibrationOutcome
    reason: str = ""
    key: str | None = None
    time_sec: float | None = None
    reference_sec: float | None = None
    all_cores_sec: float | None = None
    all_cores_reference_sec: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration(NewCalibration):
    """The same, on record."""

    id: str
    device_id: str
    created_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceChange:
    """A change of a device's state, or what a person told it.

    Attributes:
        event: What happened, a `DeviceEvent`.
        state: The state that it led to; never ``leased``.
        reason: As the device had it then.
    """

    id: str
    device_id: str
    event: str
    state: DeviceState
    reason: str
    created_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceInterval:
    """What a device did in a stretch of time, and how it was.

    Attributes:
        at: When it begins, Unix seconds.
        sec: How long it is; the running one is as long as it has lasted.
        work_sec: How long a step of a job held the device.
        calibration_sec: How long it was held to be calibrated.
        measured_sec: How long trials ran on it: part of `work_sec`.
        beats: How often its agent was heard of.
        load: Its load, on average; None where nobody told.
        temperature_celsius: The hottest that it was.
        clock_mhz: Its clock, on average.
    """

    at: float
    sec: float
    work_sec: float = 0.0
    calibration_sec: float = 0.0
    measured_sec: float = 0.0
    beats: int = 0
    load: float | None = None
    temperature_celsius: float | None = None
    clock_mhz: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredHere:
    """A record, as far as it tells what a device did.

    Attributes:
        name: The kernel's.
        job_id: The job that measured it; with `position`, the kernel's place in it. None where the job is not known.
    """

    id: str
    workload_key: str
    name: str | None
    job_id: str | None
    position: int | None
    outcome: str
    cost_sec: float | None
    confirmed: bool
    message: str
    measured_at: float
