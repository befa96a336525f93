"""Devices, their peaks and their history, as the client returns them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tunefarm.client.results.reading import Answer
from tunefarm.client.results.shown import Shown


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePeak(Answer):
    """Peak of a device: the best of each figure over all measurements.

    Attributes:
        threads: Number of cores of "all cores".
        measured_at: Time of the last measurement, Unix seconds.
        flops_per_sec: Floating-point operations by element type: on one core, on all cores.
        memory_bytes_per_sec: Bandwidth for data larger than the caches: on one core, on all cores; None if not
            measured.
        missing: Reason for a missing figure; empty if all are present.
    """

    threads: int
    measured_at: float = 0.0
    flops_per_sec: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    memory_bytes_per_sec: tuple[float, float] | None = None
    missing: str = ""

    @classmethod
    def _members(cls, data: Mapping[str, Any]) -> Mapping[str, Any]:
        rates, bandwidth = data.get("flops_per_sec"), data.get("bandwidth")
        largest = bandwidth[-1] if isinstance(bandwidth, list) and bandwidth else None
        return {
            **data,
            "flops_per_sec": {dtype: _rate(rate) for dtype, rate in rates.items()}
            if isinstance(rates, dict)
            else rates,
            "memory_bytes_per_sec": _rate(largest.get("bytes_per_sec"))
            if isinstance(largest, dict)
            else largest,
        }


def _rate(data: object) -> object:
    """Return a rate on one core and on all cores; anything else unchanged, for the reader to refuse."""
    return [data.get("one_core"), data.get("all_cores")] if isinstance(data, dict) else data


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Device(Shown, Answer):
    """A machine of the farm.

    Attributes:
        state: ``offline``, ``checking`` (being calibrated), ``online``, ``leased`` (online and working), ``draining``
            or ``quarantined``.
        reason: Reason of the state.
        lease_owner: Holder of the lease; None if free.
        job_id: Job that holds the device; None if none, as during calibration.
        state_since: Start of the state, Unix seconds; leases do not change it. None if unknown.
        leased_at: Start of the newest lease, Unix seconds.
        lease_until: End of the lease unless renewed, Unix seconds.
        work: Purpose of the lease: ``tune``, ``confirm``, ``compile`` or ``calibrate``; None if free.
        calibration_sec: Time of the last clean calibration; None before the first.
        peak: Measured peak; None if never measured.
        temperature_celsius: Last reported temperature of the GPU, else of the machine's hottest sensor; None if not
            reported.
        credential_until: End of its credential's validity, Unix seconds; None if it has none, or one without an end.
        sandbox: What confines sessions on the device, in words; empty if its agent does not say.
    """

    id: str
    name: str = ""
    device_key: str = ""
    device_model: str = ""
    state: str
    reason: str = ""
    last_seen_at: float = 0.0
    lease_owner: str | None = None
    job_id: str | None = None
    state_since: float | None = None
    leased_at: float | None = None
    lease_until: float | None = None
    work: str | None = None
    calibration_sec: float | None = None
    peak: DevicePeak | None = None
    owner: str | None = None
    temperature_celsius: float | None = None
    sandbox: str = ""
    credential_until: float | None = None

    def summary(self) -> Mapping[str, str]:
        """Return the device's row in a notebook: column name to text."""
        return {
            "": self.id,
            "name": self.name,
            "pool": self.device_key,
            "model": self.device_model,
            "state": self.state,
            "reason": self.reason,
            "job": self.job_id or "",
        }

    @classmethod
    def _members(cls, data: Mapping[str, Any]) -> Mapping[str, Any]:
        calibration = data.get("calibration") or {}
        return {
            **data,
            "calibration_sec": calibration.get("time_sec") if isinstance(calibration, dict) else calibration,
            "temperature_celsius": _temperature(data),
            "sandbox": _sandbox(data),
            "credential_until": _credential_until(data),
        }


def _agent(device: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what the device's agent reported; nothing if that is no object."""
    info = device.get("info")
    agent = info.get("agent") if isinstance(info, dict) else None
    return agent if isinstance(agent, dict) else {}


def _credential_until(device: Mapping[str, Any]) -> object:
    credential = device.get("credential")
    return credential.get("expires_at") if isinstance(credential, dict) else None


def _sandbox(device: Mapping[str, Any]) -> str:
    """Return what the agent reported; empty if the report is no text."""
    text = _agent(device).get("sandbox")
    return text[:200] if isinstance(text, str) else ""


def _temperature(device: Mapping[str, Any]) -> float | None:
    """Return the temperature that the agent reported; None if the report is no number."""
    agent = _agent(device)
    gpus = agent.get("gpus")
    chip = gpus[0] if isinstance(gpus, list) and gpus else agent
    value = chip.get("temperature_celsius") if isinstance(chip, dict) else None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class EnrolmentToken(Answer):
    """A token with which one machine can become a device, once. The server keeps no copy of it.

    Attributes:
        expires_at: Expiry time, Unix seconds.
        name: Device that may use the token; None for any new device.
        device_key: Pool that the device may join; None for any.
    """

    id: str
    token: str = field(repr=False)
    expires_at: float = 0.0
    name: str | None = None
    device_key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgedRecords(Answer):
    """What a purge of a device's records deleted.

    Attributes:
        records: How many records.
        measured_by: The jobs that measured them.
        used_by: The jobs whose artifacts were compiled with them.
    """

    records: int
    measured_by: tuple[str, ...] = ()
    used_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceInterval(Answer):
    """A device's use, temperature, load and clock in one interval.

    Attributes:
        at: Start of the interval, Unix seconds.
        sec: Length in seconds; for the current interval, the time so far.
        work_sec: Seconds that steps of jobs held the device.
        calibration_sec: Seconds that calibrations held the device.
        measured_sec: Seconds of measuring within `work_sec`.
        beats: Number of heartbeats.
        load: Mean load of the machine; None if not reported.
        temperature_celsius: Highest temperature.
        clock_mhz: Mean clock.
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

    @property
    def used(self) -> float:
        """Share of the interval that the device was leased."""
        return min((self.work_sec + self.calibration_sec) / self.sec, 1.0) if self.sec > 0 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTotals(Answer):
    """Totals of a device: trials by outcome, and their seconds."""

    measured_sec: float
    trials: int
    outcomes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCalibration(Answer):
    """A calibration and its outcome.

    Attributes:
        outcome: ``clean``, ``drift``, ``wrong`` or ``broken``.
        time_sec: Time of the kernel; None if it did not run.
        reference_sec: Reference time in seconds.
        limit_sec: Longest time without drift.
    """

    id: str
    created_at: float
    outcome: str
    reason: str = ""
    time_sec: float | None = None
    reference_sec: float | None = None
    limit_sec: float | None = None
    all_cores_sec: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceChange(Answer):
    """A change of a device's state or an order of a person: event, new state and reason."""

    id: str
    created_at: float
    event: str
    state: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRecord(Answer):
    """A summary of a record that the device measured.

    Attributes:
        name: Name of the kernel; None if its job is unknown.
        position: Index of the kernel's task in the job.
    """

    id: str
    workload_key: str
    name: str | None = None
    job_id: str | None = None
    position: int | None = None
    outcome: str
    cost_sec: float | None = None
    message: str = ""
    measured_at: float = 0.0
