"""The values that a device's page shows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tunefarm_app.devices.agent_info import Info, agent_of, first_gpu, gpus_of, mapping, sessions_of, whole
from tunefarm_app.devices.credentials import Credential
from tunefarm_app.devices.history import Span
from tunefarm_app.storage.rows import throttle_of
from tunefarm_db.values import CalibrationOutcome, Device, DeviceInterval
from tunefarm_text import quantities
from tunefarm_tuning.measure.peak import Peak, Rate

MOST_POINTS = 400
_LONGEST = 200
_OUR_VERSION = "tunefarm"

Fact = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """How much of a span a device was used, as shares of the time that it has been known.

    Attributes:
        work: Steps of jobs held it.
        measured: Trials ran on it: part of `work`.
        calibration: It was being calibrated.
        known_sec: How much of the span it has been known.
    """

    work: float
    measured: float
    calibration: float
    known_sec: float

    @property
    def leased(self) -> float:
        """The share of time that the device was leased."""
        return min(self.work + self.calibration, 1.0)


def use_of(intervals: Iterable[DeviceInterval], created_at: float) -> Use:
    """Return the use over all of the intervals; what lies before the device was first registered is left out."""
    work = measured = calibration = known = 0.0
    for interval in intervals:
        known += max(interval.at + interval.sec - max(interval.at, created_at), 0.0)
        work += interval.work_sec
        measured += interval.measured_sec
        calibration += interval.calibration_sec
    total_sec = max(known, 1e-9)
    return Use(
        work=min(work / total_sec, 1.0),
        measured=min(measured / total_sec, 1.0),
        calibration=min(calibration / total_sec, 1.0),
        known_sec=known,
    )


def interval_chart(span: Span, intervals: Sequence[DeviceInterval]) -> dict[str, Any]:
    """Return what the page's script draws: shares in per cent, GHz, °C; a column per quantity."""

    def share(sec: float, of: DeviceInterval) -> float:
        return round(min(sec / of.sec, 1.0) * 100.0, 2) if of.sec > 0.5 else 0.0

    return {
        "span": span.value,
        "width_sec": span.width_sec,
        "at": [interval.at for interval in intervals],
        "work": [share(interval.work_sec, interval) for interval in intervals],
        "calibration": [share(interval.calibration_sec, interval) for interval in intervals],
        "measured": [share(interval.measured_sec, interval) for interval in intervals],
        "load": [_rounded(interval.load, 2) for interval in intervals],
        "temperature": [_rounded(interval.temperature_celsius, 1) for interval in intervals],
        "clock": [
            None if interval.clock_mhz is None else round(interval.clock_mhz / 1000, 3)
            for interval in intervals
        ],
    }


def calibration_chart(
    times: Sequence[tuple[float, str, float | None, float | None]], drift: float
) -> dict[str, Any]:
    """Return what the page's script draws of calibrations, oldest first, in milliseconds.

    If there are too many, it keeps those that failed, the newest ones first, and of every stretch the calibration that is
    farthest from its reference.

    Args:
        times: When (Unix seconds), outcome, time and reference (seconds).
        drift: By what factor a time may be off.
    """
    shown = _telling(times)
    return {
        "at": [at for at, _, _, _ in shown],
        "ms": [_ms(time_sec) for _, _, time_sec, _ in shown],
        "reference": [_ms(reference_sec) for _, _, _, reference_sec in shown],
        "most": [_ms(reference_sec, drift) for _, _, _, reference_sec in shown],
        "least": [_ms(reference_sec, 1.0 / drift) for _, _, _, reference_sec in shown],
        "outcome": [outcome for _, outcome, _, _ in shown],
        "runs": len(times),
    }


def facts_of(device: Device) -> list[Fact]:
    """Return what is known of the machine: what an agent says is shown as it is, if it is a text or a number at all."""
    info = device.info
    memory = whole(info.get("memory_bytes"))
    facts = [
        ("Processor", _text(info.get("cpu"))),
        ("GPU", ", ".join(_text(gpu.get("name")) for gpu in gpus_of(info)[:16] if gpu.get("name"))),
        ("Cores", _text(info.get("cores"))),
        ("Threads of a kernel", _text(device.target.get("num-cores") or info.get("cores"))),
        ("Memory", "" if memory is None else quantities.size(memory)),
        ("System", _text(info.get("system"))),
        ("Host", _text(info.get("hostname"))),
        ("Target", _target(device.target)),
        ("Device model", device.device_model),
        ("Connected through", "the gateway" if device.by_gateway else ""),
    ]
    return [(name, text) for name, text in facts if text]


def versions_of(device: Device) -> list[Fact]:
    """Return the versions of the agent, and of what it measures with."""
    versions = mapping(device.info.get("versions"))
    texts = [(str(name)[:_LONGEST], _text(version)) for name, version in versions.items()]
    agent = _text(versions.get(_OUR_VERSION))
    others = sorted((name, text) for name, text in texts if text and name != _OUR_VERSION)[:40]
    return [*([("agent (tunefarm)", agent)] if agent else []), *others]


def credential_facts(credential: Credential | None) -> list[Fact]:
    """Return the dates of the device's credential."""
    if credential is None:
        return []
    ends = credential.expires_at is not None
    end = (
        f"{quantities.local_time(credential.expires_at)}; its agent replaces it before" if ends else "no end"
    )
    return [
        ("Credential", credential.key_id),
        ("Credential since", quantities.local_time(credential.created_at)),
        ("Credential until", end),
    ]


def agent_facts(device: Device) -> list[Fact]:
    """Return how the agent does."""
    agent = agent_of(device.info)
    facts = [
        ("RPC server", _text(agent.get("state"))),
        ("Restarts of the RPC server", _text(agent.get("rpc_restarts"))),
        ("Sandbox of its sessions", _text(agent.get("sandbox"))),
        ("Its sessions run as", sessions_of(device.info)[0]),
        ("Clock limited by", ", ".join(throttle_of(device.info))),
        *_gpu_facts(first_gpu(agent)),
    ]
    return [(name, text) for name, text in facts if text]


def _gpu_facts(gpu: Info) -> list[Fact]:
    power, limit = _text(gpu.get("power_watts")), _text(gpu.get("power_limit_watts"))
    throttle, processes = gpu.get("throttle"), gpu.get("processes")
    return [
        ("GPU's power", f"{power} W{f' of {limit} W' if limit else ''}" if power else ""),
        (
            "GPU's clock limited by",
            ", ".join(map(_text, throttle[:16])) if isinstance(throttle, list) else "",
        ),
        (
            "Processes on the GPU",
            ", ".join(map(_process, processes[:16])) if isinstance(processes, list) else "",
        ),
        ("GPU partitioned (MIG)", "yes" if gpu.get("mig") is True else ""),
    ]


def _process(report: object) -> str:
    process = mapping(report)
    return f"{_text(process.get('name')) or 'a process'} (pid {_text(process.get('pid')) or '?'})"


def _telling(
    times: Sequence[tuple[float, str, float | None, float | None]],
) -> list[tuple[float, str, float | None, float | None]]:
    if len(times) <= MOST_POINTS:
        return list(times)
    failed = [index for index, calibration in enumerate(times) if calibration[1] != CalibrationOutcome.CLEAN]
    chosen = set(failed[-MOST_POINTS // 2 :])
    stretches = MOST_POINTS - len(chosen) - 1
    farthest: dict[int, int] = {}
    for index, calibration in enumerate(times):
        stretch = index * stretches // len(times)
        if stretch not in farthest or _off(calibration) > _off(times[farthest[stretch]]):
            farthest[stretch] = index
    chosen |= {*farthest.values(), len(times) - 1}
    return [times[index] for index in sorted(chosen)]


def _off(calibration: tuple[float, str, float | None, float | None]) -> float:
    _, _, time_sec, reference_sec = calibration
    return abs(math.log(time_sec / reference_sec)) if time_sec and reference_sec else -1.0


def _ms(sec: float | None, factor: float = 1.0) -> float | None:
    return None if sec is None else sec * factor * 1e3


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


def _target(target: Mapping[str, Any]) -> str:
    options = " ".join(
        f"-{name}={value}" for name, value in sorted(target.items()) if name != "kind" and _text(value)
    )
    return f"{target.get('kind', '')} {options}".strip()[: 4 * _LONGEST]


def _text(value: object) -> str:
    fine = isinstance(value, str | int | float) and not isinstance(value, bool)
    return str(value)[:_LONGEST] if fine else ""


def peak_facts(peak: Peak | None) -> list[tuple[str, str]]:
    """Return what a device can do at its best, as names and texts; nothing where it was never measured."""
    if peak is None:
        return []
    facts = [
        (f"Peak, {dtype}", _rate_text(rate, "FLOP/s", peak.threads))
        for dtype, rate in peak.flops_per_sec.items()
    ]
    if peak.bandwidth:
        facts.append(("Memory bandwidth", _rate_text(peak.bandwidth[-1].bytes_per_sec, "B/s", peak.threads)))
    if peak.missing:
        facts.append(("No peak", peak.missing))
    return facts


def _rate_text(rate: Rate, unit: str, threads: int) -> str:
    one_core = f"{quantities.rate(rate.one_core, unit)} on one core"
    return one_core if threads == 1 else f"{one_core}, {quantities.rate(rate.all_cores, unit)} on {threads:,}"
