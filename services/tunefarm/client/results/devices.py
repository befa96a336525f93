"""Devices, their peaks and their history, as the client returns them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tunefarm.client.results.reading import Answer
from tunefarm.client.results.shown import Shown


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePeak(Answer):
    """What a device can do at its best: of each figure, the best that was ever measured.

    Attributes:
        threads: How many cores "all cores" are.
        measured_at: When it was measured last, Unix seconds.
        flops_per_sec: Floating-point operations by element type: on one core, on all cores.
        memory_bytes_per_sec: Of data that fit into no cache: on one core, on all cores; None where that was not measured.
        missing: Why a figure is not there; empty where all are.
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
    """Return a rate on one core and on all cores; what is no rate as it is, for the reader to refuse."""
    return [data.get("one_core"), data.get("all_cores")] if isinstance(data, dict) else data


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Device(Shown, Answer):
    """A machine of the farm.

    Attributes:
        state: ``offline``, ``checking`` (it is being calibrated), ``online``, ``leased`` (online, and at work),
            ``draining`` or ``quarantined``.
        reason: Why it is in its state.
        lease_owner: Who holds it; None while it is free.
        job_id: The job that it is at work for; None where there is none, as while it is calibrated.
        state_since: Since when, Unix seconds; None where that is not known. Being leased is no state of its own here.
        leased_at: When its newest lease began.
        lease_until: When it ends unless it is renewed.
        work: What it is held for: ``tune``, ``confirm``, ``compile``, ``calibrate``; None while it is free.
        calibration_sec: What the calibration kernel took when it last ran clean; None before the first time.
        peak: What it can do at its best; None where that was never measured.
        temperature_celsius: As its agent told last: the GPU's, else the machine's hottest; None where the system does not tell.
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
    temperature_celsius: float | None = None

    def summary(self) -> Mapping[str, str]:
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
        }


def _temperature(device: Mapping[str, Any]) -> float | None:
    """Return the temperature that the agent told; an agent may tell anything."""
    info = device.get("info")
    agent = info.get("agent") if isinstance(info, dict) else None
    if not isinstance(agent, dict):
        return None
    gpus = agent.get("gpus")
    chip = gpus[0] if isinstance(gpus, list) and gpus else agent
    value = chip.get("temperature_celsius") if isinstance(chip, dict) else None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class EnrolmentToken(Answer):
    """A token that lets one machine become a device, once. The server keeps no copy of it.

    Attributes:
        expires_at: Until when it is good, Unix seconds.
        name: The device that may use it; None for any new one.
        device_key: The pool that the device may join; None for any.
    """

    id: str
    token: str = field(repr=False)
    expires_at: float = 0.0
    name: str | None = None
    device_key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceInterval(Answer):
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
    work_sec: float = 0.0
    calibration_sec: float = 0.0
    measured_sec: float = 0.0
    beats: int = 0
    load: float | None = None
    temperature_celsius: float | None = None
    clock_mhz: float | None = None

    @property
    def used(self) -> float:
        """The share of it that the device was leased."""
        return min((self.work_sec + self.calibration_sec) / self.sec, 1.0) if self.sec > 0 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTotals(Answer):
    """What a device ever measured: trials, by how they ended, and the seconds that they took."""

    measured_sec: float
    trials: int
    outcomes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCalibration(Answer):
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
    reason: str = ""
    time_sec: float | None = None
    reference_sec: float | None = None
    limit_sec: float | None = None
    all_cores_sec: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceChange(Answer):
    """A change of a device's state, or an order that a person gave: what happened, the state that it led to, and why."""

    id: str
    created_at: float
    event: str
    state: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRecord(Answer):
    """A record, as far as it tells what a device did.

    Attributes:
        name: The kernel's; None where its job is not known.
        position: The kernel's place among the tasks of the job.
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
