"""Schemas of the history of devices."""

from __future__ import annotations

from pydantic import Field

from tunefarm_api.schemas.base import Output
from tunefarm_app.devices.history import Span
from tunefarm_db.values import CalibrationOutcome, DeviceState


class DeviceInterval(Output):
    """A device's use, temperature, load and clock in one interval."""

    at: float = Field(description="Start of the interval, Unix seconds.")
    sec: float = Field(description="Length in seconds; for the current interval, the time so far.")
    work_sec: float = Field(description="Seconds that steps of jobs held the device.")
    calibration_sec: float = Field(description="Seconds that calibrations held the device.")
    measured_sec: float = Field(
        description="Seconds of measuring within `work_sec`, spread evenly over each lease."
    )
    beats: int = Field(description="Number of heartbeats.")
    load: float | None = Field(description="Mean load of the machine; null if not reported.")
    temperature_celsius: float | None = Field(
        description="Highest temperature of the GPU, or of the machine's hottest sensor."
    )
    clock_mhz: float | None = Field(description="Mean clock.")


class DeviceIntervals(Output):
    """A device's last hour, day, week or month."""

    span: Span = Field(description="Period of the intervals.")
    width_sec: int = Field(description="Length of an interval in seconds; each starts at a multiple of it.")
    items: list[DeviceInterval] = Field(description="All intervals, oldest first, including empty ones.")


class DeviceTotals(Output):
    """Totals of a device, counted as trials end and kept when older history is deleted."""

    measured_sec: float = Field(description="Seconds of measuring trials.")
    trials: int = Field(description="Number of trials, of any outcome.")
    outcomes: dict[str, int] = Field(description="Number of trials by outcome.")


class DeviceCalibration(Output):
    """A calibration and its outcome."""

    id: str = Field(description="Identifier.")
    created_at: float = Field(description="End time, Unix seconds.")
    outcome: CalibrationOutcome = Field(
        description="`clean`; `drift`: correct, but too slow or too fast; `wrong`: an incorrect result; `broken`: it "
        "did not complete."
    )
    reason: str = Field(description="Reason if it is not clean.")
    key: str | None = Field(description="Times of one key are comparable.")
    time_sec: float | None = Field(description="Time of the kernel in seconds; null if it did not run.")
    reference_sec: float | None = Field(description="Reference time in seconds.")
    limit_sec: float | None = Field(description="Longest time without drift, in seconds.")
    all_cores_sec: float | None = Field(
        description="Time on all cores at once, in seconds; null for a single core."
    )
    all_cores_reference_sec: float | None = Field(description="Reference time in seconds.")


class DeviceChange(Output):
    """A change of a device's state, or an order of a person."""

    id: str = Field(description="Identifier.")
    created_at: float = Field(description="Time of the change, Unix seconds.")
    event: str = Field(
        description="Event: `join`, `ready`, `unready`, `silent`, `doubt` (trouble; it will be calibrated), `clean` or "
        "`fail` (result of a calibration or measurement), `drain`, `quarantine`, `release`, `remove`."
    )
    state: DeviceState = Field(description="New state. Never `leased`: see the intervals.")
    reason: str = Field(description="Why.")


class DeviceRecord(Output):
    """A summary of a record that the device measured; `/v1/records` has the whole record."""

    id: str = Field(description="The record's identifier.")
    workload_key: str = Field(description="Content hash of the computation.")
    name: str | None = Field(description="Name of the kernel; null if its job is unknown.")
    job_id: str | None = Field(description="Job that measured the record.")
    position: int | None = Field(description="Index of the kernel's task in the job.")
    outcome: str = Field(description="`ok`, or the class of failure.")
    cost_sec: float | None = Field(description="Median seconds per call; null unless the outcome is ok.")
    confirmed: bool = Field(
        description="Whether it was confirmed: measured again, in turn with the task's other best configs."
    )
    message: str = Field(description="Error message, if it failed.")
    measured_at: float = Field(description="Time of measurement, Unix seconds of the worker's clock.")
