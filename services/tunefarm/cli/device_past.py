"""One device in a terminal: who it is, how it does, what it did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tunefarm.cli.base.output import Output
from tunefarm_text import quantities

if TYPE_CHECKING:
    from tunefarm.client import (
        Device,
        DeviceCalibration,
        DeviceChange,
        DeviceInterval,
        DevicePeak,
        DeviceRecord,
        DeviceTotals,
        Page,
    )

_BARS = " ▁▂▃▄▅▆▇█"
_VERSIONS_SHOWN = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePast:
    """A device with what it did."""

    device: Device
    intervals: Sequence[DeviceInterval]
    totals: DeviceTotals
    calibrations: Page[DeviceCalibration]
    changes: Page[DeviceChange]
    records: Page[DeviceRecord]

    def to_json(self) -> dict[str, Any]:
        lists = ("intervals", "calibrations", "changes", "records")
        return {
            "device": self.device.raw,
            "totals": self.totals.raw,
            **{name: [one.raw for one in getattr(self, name)] for name in lists},
        }

    def show(self, out: Output, span: str) -> None:
        device = self.device
        out.text(
            f"{device.name}  {device.state}{f': {device.reason}' if device.reason else ''}", style="bold"
        )
        for name, text in self._facts(span):
            if text:
                label = f"{name}:" if name else ""
                out.text(f"{label:<14} {text}")
        out.table(
            ("calibrated", "outcome", ">took", ">should take", ">at most", "reason"),
            (
                (
                    quantities.local_time(one.created_at),
                    one.outcome,
                    quantities.latency(one.time_sec),
                    quantities.latency(one.reference_sec),
                    quantities.latency(one.limit_sec),
                    one.reason,
                )
                for one in self.calibrations
            ),
        )
        out.table(
            ("measured", "kernel", "job", "outcome", ">time per call"),
            (
                (
                    quantities.local_time(one.measured_at),
                    one.name or one.workload_key,
                    one.job_id or quantities.NONE,
                    one.outcome,
                    quantities.latency(one.cost_sec),
                )
                for one in self.records
            ),
        )
        out.table(
            ("changed", "state", "reason"),
            (
                (quantities.local_time(one.created_at), one.state, one.reason or one.event)
                for one in self.changes
            ),
        )

    def _facts(self, span: str) -> list[tuple[str, str]]:
        device, intervals = self.device, self.intervals
        info = device.raw.get("info")
        told = info.get("versions") if isinstance(info, dict) else None
        versions = list(told.items())[:_VERSIONS_SHOWN] if isinstance(told, dict) else []
        temperatures = [one.temperature_celsius for one in intervals if one.temperature_celsius is not None]
        hottest = f"{quantities.temperature(max(temperatures))} at most" if temperatures else ""
        outcomes = ", ".join(f"{count:,} {outcome}" for outcome, count in self.totals.outcomes.items())
        return [
            ("id", device.id),
            ("pool", f"{device.device_key}, {device.device_model}"),
            ("state since", quantities.local_time(device.state_since)),
            ("at work", self._lease()),
            ("last seen", quantities.local_time(device.last_seen_at)),
            *_peak(device.peak),
            ("versions", ", ".join(f"{name} {version}" for name, version in versions)),
            (f"use, {span}", self._use()),
            ("", "".join(_bar(one.used) for one in intervals)),
            ("temperature", hottest),
            ("measured", f"{self.totals.trials:,} trials in {quantities.duration(self.totals.measured_sec)}"),
            ("outcomes", outcomes),
        ]

    def _lease(self) -> str:
        device = self.device
        if device.work is None:
            return ""
        what = f"{device.work} step of {device.job_id}" if device.job_id else device.work
        return f"{what}, since {quantities.local_time(device.leased_at)}, good until {quantities.local_time(device.lease_until)}"

    def _use(self) -> str:
        whole = sum(one.sec for one in self.intervals) or 1.0

        def share(sec: float) -> str:
            return f"{min(sec / whole, 1.0) * 100.0:.0f} %"

        work = sum(one.work_sec for one in self.intervals)
        calibration = sum(one.calibration_sec for one in self.intervals)
        measured = sum(one.measured_sec for one in self.intervals)
        return (
            f"leased {share(work + calibration)}: jobs {share(work)} (measuring {share(measured)}), "
            f"calibrating {share(calibration)}"
        )


def _peak(peak: DevicePeak | None) -> list[tuple[str, str]]:
    """Return what it can do at its best, and why not more is known of that."""
    if peak is None:
        return []
    rates = [(f"peak, {dtype}", rates, "FLOP/s") for dtype, rates in peak.flops_per_sec.items()]
    if peak.memory_bytes_per_sec is not None:
        rates.append(("memory", peak.memory_bytes_per_sec, "B/s"))
    told = [
        (name, f"{quantities.rate(one, unit)} on one core, {quantities.rate(every, unit)} on {peak.threads}")
        for name, (one, every), unit in rates
    ]
    return [*told, ("no peak", peak.missing)]


def _bar(share: float) -> str:
    return _BARS[min(round(share * (len(_BARS) - 1)), len(_BARS) - 1)] if share > 0.005 else "·"
