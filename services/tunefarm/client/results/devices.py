"""What the server answers about devices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from tunefarm.client.results.fields import Fields
from tunefarm.client.results.peaks import DevicePeak
from tunefarm.client.results.shown import Shown


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Device(Shown):
    """A machine of the farm.

    Attributes:
        state: ``offline``, ``checking`` (it is being calibrated), ``online``, ``leased`` (online, and at work),
            ``draining`` or ``quarantined``.
        reason: Why it is in its state.
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
    name: str
    device_key: str
    device_model: str
    state: str
    reason: str
    last_seen_at: float
    lease_owner: str | None
    job_id: str | None
    state_since: float | None
    leased_at: float | None
    lease_until: float | None
    work: str | None
    calibration_sec: float | None
    peak: DevicePeak | None
    temperature_celsius: float | None
    raw: Mapping[str, Any] = field(repr=False)

    @classmethod
    def read(cls, data: object) -> Self:
        f = Fields(data, "device")
        return cls(
            id=f.text("id"),
            name=f.text("name", ""),
            device_key=f.text("device_key", ""),
            device_model=f.text("device_model", ""),
            state=f.text("state"),
            reason=f.text("reason", ""),
            last_seen_at=f.number("last_seen_at", 0.0),
            lease_owner=f.optional_text("lease_owner"),
            job_id=f.optional_text("job_id"),
            state_since=f.optional_number("state_since"),
            leased_at=f.optional_number("leased_at"),
            lease_until=f.optional_number("lease_until"),
            work=f.optional_text("work"),
            calibration_sec=Fields(f.data.get("calibration") or {}, "calibration").optional_number(
                "time_sec"
            ),
            peak=DevicePeak.read(f.data.get("peak")),
            temperature_celsius=_temperature(f.data),
            raw=f.data,
        )


def _temperature(device: Mapping[str, Any]) -> float | None:
    """Return what an agent said; it may say anything."""
    info = device.get("info")
    agent = info.get("agent") if isinstance(info, dict) else None
    if not isinstance(agent, dict):
        return None
    gpus = agent.get("gpus")
    chip = gpus[0] if isinstance(gpus, list) and gpus else agent
    value = chip.get("temperature_celsius") if isinstance(chip, dict) else None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class EnrolmentToken:
    """A token that lets one machine become a device, once. The server does not know it any more."""

    id: str
    token: str = field(repr=False)
    expires_at: float
    name: str | None
    device_key: str | None
    raw: Mapping[str, Any] = field(repr=False)

    @classmethod
    def read(cls, data: object) -> Self:
        f = Fields(data, "enrolment token")
        return cls(
            id=f.text("id"),
            token=f.text("token"),
            expires_at=f.number("expires_at", 0.0),
            name=f.optional_text("name"),
            device_key=f.optional_text("device_key"),
            raw=f.data,
        )
