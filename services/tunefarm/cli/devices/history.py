"""``tunefarm device show``: one device, its lease, its usage and its measurements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tunefarm.cli.base.commands import command
from tunefarm.cli.base.connect import Server
from tunefarm.cli.base.output import Output
from tunefarm.cli.base.references import find_device
from tunefarm.cli.devices.group import DeviceName, app
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
_NEARLY_ALL = 0.98


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceHistory:
    """A device with its history."""

    device: Device
    intervals: Sequence[DeviceInterval]
    totals: DeviceTotals
    calibrations: Page[DeviceCalibration]
    changes: Page[DeviceChange]
    records: Page[DeviceRecord]

    def to_json(self) -> dict[str, Any]:
        """Return the server's answers as JSON."""
        lists = ("intervals", "calibrations", "changes", "records")
        return {
            "device": self.device.raw,
            "totals": self.totals.raw,
            **{name: [entry.raw for entry in getattr(self, name)] for name in lists},
        }

    def show(self, out: Output, span: str) -> None:
        """Print the device; `span` is the period of its intervals."""
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
                    quantities.local_time(calibration.created_at),
                    calibration.outcome,
                    quantities.latency(calibration.time_sec),
                    quantities.latency(calibration.reference_sec),
                    quantities.latency(calibration.limit_sec),
                    calibration.reason,
                )
                for calibration in self.calibrations
            ),
        )
        out.table(
            ("measured", "kernel", "job", "outcome", ">time per call"),
            (
                (
                    quantities.local_time(record.measured_at),
                    record.name or record.workload_key,
                    record.job_id or quantities.NONE,
                    record.outcome,
                    quantities.latency(record.cost_sec),
                )
                for record in self.records
            ),
        )
        out.table(
            ("changed", "state", "reason"),
            (
                (quantities.local_time(change.created_at), change.state, change.reason or change.event)
                for change in self.changes
            ),
        )

    def _facts(self, span: str) -> list[tuple[str, str]]:
        device, intervals = self.device, self.intervals
        info = device.raw.get("info")
        reported = info.get("versions") if isinstance(info, dict) else None
        versions = list(reported.items())[:_VERSIONS_SHOWN] if isinstance(reported, dict) else []
        temperatures = [
            interval.temperature_celsius for interval in intervals if interval.temperature_celsius is not None
        ]
        hottest = f"{quantities.temperature(max(temperatures))} at most" if temperatures else ""
        outcomes = ", ".join(f"{count:,} {outcome}" for outcome, count in self.totals.outcomes.items())
        return [
            ("id", device.id),
            ("pool", f"{device.device_key}, {device.device_model}"),
            ("state since", quantities.local_time(device.state_since)),
            ("at work", self._lease()),
            ("last seen", quantities.local_time(device.last_seen_at)),
            ("sandbox", device.sandbox),
            ("credential", self._credential()),
            *_peak(device.peak),
            ("versions", ", ".join(f"{name} {version}" for name, version in versions)),
            (f"use, {span}", self._use(span)),
            ("", "".join(_bar(interval.used) for interval in intervals)),
            ("temperature", hottest),
            ("measured", f"{self.totals.trials:,} trials in {quantities.duration(self.totals.measured_sec)}"),
            ("outcomes", outcomes),
        ]

    def _lease(self) -> str:
        device = self.device
        if device.work is None:
            return ""
        work = f"{device.work} step of {device.job_id}" if device.job_id else device.work
        return (
            f"{work}, since {quantities.local_time(device.leased_at)}, valid until "
            f"{quantities.local_time(device.lease_until)}"
        )

    def _credential(self) -> str:
        until = self.device.credential_until
        return "" if until is None else f"valid until {quantities.local_time(until)}"

    def _use(self, span: str) -> str:
        """Return the use as shares of the time that the device has been known, as its page has them."""
        joined_at = float(self.device.raw.get("created_at") or 0.0)
        span_sec = sum(interval.sec for interval in self.intervals)
        known_sec = sum(
            max(interval.at + interval.sec - max(interval.at, joined_at), 0.0) for interval in self.intervals
        )

        def share(sec: float) -> str:
            return quantities.percent(min(sec / max(known_sec, 1e-9), 1.0))

        work = sum(interval.work_sec for interval in self.intervals)
        calibration = sum(interval.calibration_sec for interval in self.intervals)
        measured = sum(interval.measured_sec for interval in self.intervals)
        of = (
            f"the {quantities.duration(known_sec)} since it joined"
            if known_sec < _NEARLY_ALL * span_sec
            else f"the last {span}"
        )
        return (
            f"leased {share(work + calibration)} of {of}: jobs {share(work)} (measuring {share(measured)}), "
            f"calibrating {share(calibration)}"
        )


@command(app, "show")
def show_device(
    out: Output,
    server: Server,
    name: DeviceName,
    span: Annotated[str, typer.Option("--span", help="Period of the use: hour, day, week or month.")] = "day",
) -> None:
    """Show a device: state, lease, use, calibrations, temperature and number of trials."""
    with server.connect() as client:
        device = find_device(client, name)
        history = DeviceHistory(
            device=device,
            intervals=client.devices.intervals(device.id, span=span),
            totals=client.devices.totals(device.id),
            calibrations=client.devices.calibrations(device.id, limit=10),
            changes=client.devices.changes(device.id, limit=10),
            records=client.devices.records(device.id, limit=10),
        )
    if out.json:
        out.data(history.to_json())
    else:
        history.show(out, span)


def _peak(peak: DevicePeak | None) -> list[tuple[str, str]]:
    """Return the device's peak as text, and why some figures are missing."""
    if peak is None:
        return []
    rates = [(f"peak, {dtype}", rates, "FLOP/s") for dtype, rates in peak.flops_per_sec.items()]
    if peak.memory_bytes_per_sec is not None:
        rates.append(("memory", peak.memory_bytes_per_sec, "B/s"))
    facts = [
        (
            name,
            f"{quantities.rate(one_core, unit)} on one core, {quantities.rate(all_cores, unit)} on {peak.threads}",
        )
        for name, (one_core, all_cores), unit in rates
    ]
    return [*facts, ("no peak", peak.missing)]


def _bar(share: float) -> str:
    return _BARS[min(round(share * (len(_BARS) - 1)), len(_BARS) - 1)] if share > 0.005 else "·"
