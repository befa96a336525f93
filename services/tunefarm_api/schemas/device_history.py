"""Schemas of the history of devices."""

from __future__ import annotations

from pydantic import Field

from tunefarm_api.schemas.base import Output
from tunefarm_app.devices.history import Span
from tunefarm_db.values import CalibrationOutcome, DeviceState


class DeviceInterval(Output):
    """What a device did in a stretch of time, and how it was."""

    at: float = Field(description="When it begins, Unix seconds.")
    sec: float = Field(description="How long it is; the one that still runs is as long as it has lasted.")
    work_sec: float = Field(description="How long steps of jobs held the device.")
    calibration_sec: float = Field(description="How long it was held to be calibrated.")
    measured_sec: float = Field(
        description="How long trials ran on it, of the time that steps held it; spread evenly over each lease."
    )
    beats: int = Field(description="How often its agent was heard of.")
    load: float | None = Field(description="The machine's load, on average; null where nobody told.")
    temperature_celsius: float | None = Field(
        description="The hottest that it was: the GPU, or the machine's hottest sensor."
    )
    clock_mhz: float | None = Field(description="Its clock, on average.")


class DeviceIntervals(Output):
    """A device's last hour, day, week or month."""

    span: Span = Field(description="How far back they go.")
    width_sec: int = Field(description="How long each is; they begin at multiples of it.")
    items: list[DeviceInterval] = Field(description="All of them, oldest first; also those without news.")


class DeviceTotals(Output):
    """What a device ever did. Counted as it happens, so that it is not lost with what is thinned out."""

    measured_sec: float = Field(description="Seconds of measuring trials.")
    trials: int = Field(description="Trials on it, of any outcome.")
    outcomes: dict[str, int] = Field(description="How many of them ended how.")


class DeviceCalibration(Output):
    """How a calibration went."""

    id: str = Field(description="Its identity.")
    created_at: float = Field(description="When it ended, Unix seconds.")
    outcome: CalibrationOutcome = Field(
        description="`clean`; `drift`: right, and not as fast as it should be (or faster); `wrong`: a wrong answer; "
        "`broken`: it did not come to its end."
    )
    reason: str = Field(description="Why it is not clean.")
    key: str | None = Field(description="Times under one key can be compared.")
    time_sec: float | None = Field(description="What the kernel took; null where it did not run.")
    reference_sec: float | None = Field(description="What that is held against.")
    limit_sec: float | None = Field(description="What it may take: more is drift.")
    all_cores_sec: float | None = Field(
        description="The same on all cores at once; null where it has one alone."
    )
    all_cores_reference_sec: float | None = Field(description="What that is held against.")


class DeviceChange(Output):
    """A change of a device's state, or an order that a person gave."""

    id: str = Field(description="Its identity.")
    created_at: float = Field(description="When it was, Unix seconds.")
    event: str = Field(
        description="What happened: `join`, `ready`, `unready`, `silent`, `doubt` (it is to be calibrated after trouble), "
        "`clean` and `fail` (what a calibration, or measuring, said), `drain`, `quarantine`, `release`, `remove`."
    )
    state: DeviceState = Field(description="The state that it led to. `leased` is none: see the intervals.")
    reason: str = Field(description="Why.")


class DeviceRecord(Output):
    """A record, as far as it tells what a device did; all of it is at `/v1/records`."""

    id: str = Field(description="The record's identity.")
    workload_key: str = Field(description="Content hash of the computation.")
    name: str | None = Field(description="The kernel's name; null where its job is not known.")
    job_id: str | None = Field(description="The job that measured it.")
    position: int | None = Field(description="The kernel's place among the job's tasks.")
    outcome: str = Field(description="`ok`, or the class of failure.")
    cost_sec: float | None = Field(description="Median seconds per call; null unless ok.")
    confirmed: bool = Field(
        description="Whether it was measured again, side by side with the task's other best."
    )
    message: str = Field(description="What went wrong, where something did.")
    measured_at: float = Field(description="When it was measured, Unix seconds of the worker.")
