"""Values of devices: leases, peaks, calibrations and history."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from tunefarm_db.states.device import UP_STATES, DeviceState
from tunefarm_db.values.base import Json


@dataclass(frozen=True, slots=True)
class PoolCounts:
    """How many devices of a pool are in each state; states without devices are left out."""

    by_state: Mapping[DeviceState, int]

    @property
    def total(self) -> int:
        return sum(self.by_state.values())

    @property
    def up(self) -> int:
        return sum(count for state, count in self.by_state.items() if state in UP_STATES)

    @property
    def free(self) -> int:
        return self.by_state.get(DeviceState.ONLINE, 0)

    def __str__(self) -> str:
        """Return the text for people: ``"0 of 3 online (1 draining, 2 offline)"``."""
        down = ", ".join(
            f"{count} {state}" for state, count in sorted(self.by_state.items()) if state not in UP_STATES
        )
        return f"{self.up} of {self.total} online" + (f" ({down})" if down else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One machine of a pool.

    Attributes:
        device_key: The pool. Devices of a pool are interchangeable.
        target: The target of its hardware (`Target.to_json`).
        device_model: Groups devices whose timings can be compared.
        rpc_key: Its agent's key, under which the gateway knows it; of this device alone.
        by_gateway: Whether its agent dials the farm's gateway: else no worker reaches it.
        reason: Why it is in its state; empty while online.
        ready: Whether its agent says that it can be measured on.
        held: Whether a person quarantined it: no calibration releases it.
        calibration: The last clean run of the calibration kernel, as `Calibration.to_json`; None if there was none.
        calibrate_at: When it is to be calibrated (again).
        fence: The fence of its newest lease.
        state_since: Start of its state; leases do not change it. None if unknown.
        leased_at: When its newest lease began; None if it has none.
    """

    id: str
    name: str
    device_key: str
    target: Json
    info: Json
    device_model: str
    rpc_key: str
    state: DeviceState
    reason: str
    ready: bool
    held: bool
    calibration: Json | None
    calibrate_at: float | None
    last_seen_at: float
    lease_owner: str | None
    lease_until: float | None
    fence: int
    created_at: float
    state_since: float | None = None
    leased_at: float | None = None
    by_gateway: bool = False
    owner: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceLease:
    """An exclusive, time-bounded hold of a device."""

    device: Device
    owner: str
    fence: int
    lease_until: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePeak:
    """The highest rates that were measured on a device.

    Attributes:
        key: `Peak.key`: the kernels and the hardware that it was measured with.
        peak: `Peak.to_json`.
        measured_at: Time of the last measurement, failed ones included, by the database's clock.
    """

    device_id: str
    device_name: str
    device_key: str
    device_model: str
    key: str
    peak: Json
    measured_at: float


class CalibrationOutcome(StrEnum):
    """Outcome of a calibration."""

    CLEAN = "clean"
    DRIFT = "drift"  # the result is right, but the time is too long or too short
    WRONG = "wrong"  # the result is wrong
    BROKEN = "broken"  # the kernel did not finish


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCalibration:
    """Result of a calibration. Times are None if the kernel did not run.

    Attributes:
        reason: Why it is not clean.
        key: Times under one key can be compared.
        time_sec: Time of the kernel on one core.
        reference_sec: The reference of `time_sec`.
        all_cores_sec: Time of the kernel on all cores at once; None if there is only one core.
        all_cores_reference_sec: The reference of `all_cores_sec`.
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
    """A stored `NewCalibration`."""

    id: str
    device_id: str
    created_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceChange:
    """A change of a device's state, or a person's command.

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
    """Use and vitals of a device in an interval of time.

    Attributes:
        at: When it begins, Unix seconds.
        sec: Its length; for the running interval, its length until now.
        work_sec: How long a step of a job held the device.
        calibration_sec: How long calibrations held the device.
        measured_sec: How long trials ran on it: part of `work_sec`.
        beats: Number of heartbeats of its agent.
        load: Its mean load; None if unknown.
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
    """The fields of a record for a device's history.

    Attributes:
        name: The kernel's.
        job_id: The job that measured it; with `position`, the kernel's place in it. None if the job is not known.
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
