"""The measurements of an artifact: that of its compile, and those that people asked for later."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tunefarm_app.report.evidence import Evidence, ratios_in
from tunefarm_app.report.parts import ReportMeasurement
from tunefarm_db.values import Artifact, Device, Json
from tunefarm_tuning.core.latency import Latency, is_quiet

_KEY = "measurements"
_NETWORKS = ("tuned", "untuned", "onnxruntime", "torch_compile")
_NONSENSE = (KeyError, TypeError, ValueError, AttributeError)


def with_measurement(
    artifact: Artifact, latency: Mapping[str, Any], device: Device, *, measured_at: float
) -> Json:
    """Return the artifact's report with another measurement: the latest quiet one becomes its latency; if none is, the latest.

    Args:
        artifact: The artifact.
        latency: What was measured, as the report's ``latency``.
        device: The device.
        measured_at: When, in Unix seconds.
    """
    taken: Json = {
        "measured_at": measured_at,
        "device": device.name,
        "device_model": device.device_model,
        "at_compile": False,
        "quiet": _is_quiet(latency),
        "latency": dict(latency),
    }
    measurements = [*_stored(artifact), taken]
    shown = measurements[_shown(measurements)]["latency"]
    report: Json = {**artifact.report, _KEY: measurements, "latency": shown}
    if shapes := report.get("shapes"):
        report["shapes"] = [{**shapes[0], "latency": shown}, *shapes[1:]]
    return report


def measurements_of(artifact: Artifact | None) -> list[ReportMeasurement]:
    """Return the measurements of an artifact, oldest first; none if its compile measured nothing, or it cannot be read."""
    stored = [] if artifact is None else _stored(artifact)
    shown = _shown(stored) if stored else None
    try:
        return [
            ReportMeasurement(
                **{name: value for name, value in taken.items() if name != "latency"},
                shown=number == shown,
                seconds={
                    name: float(taken["latency"][name]["median_sec"])
                    for name in _NETWORKS
                    if taken["latency"].get(name)
                },
                ratios=ratios_in(taken["latency"]),
            )
            for number, taken in enumerate(stored)
        ]
    except _NONSENSE:
        return []


def _stored(artifact: Artifact) -> list[Json]:
    """Return the measurements as they are stored; if nobody has measured again yet, that of the compile."""
    known = artifact.report.get(_KEY)
    if isinstance(known, list):
        return list(known)
    latency = artifact.report.get("latency")
    if not isinstance(latency, Mapping) or not latency.get("tuned"):
        return []
    device = Evidence(artifact.manifest, artifact.report).device()
    first: Json = {
        "measured_at": artifact.created_at,
        "device": device.name if device else None,
        "device_model": device.device_model if device else None,
        "at_compile": True,
        "quiet": _is_quiet(latency),
        "latency": dict(latency),
    }
    return [first]


def _is_quiet(latency: Mapping[str, Any]) -> bool:
    try:
        return is_quiet(Latency.from_json(latency[name]) for name in _NETWORKS if latency.get(name))
    except _NONSENSE:
        return False


def _shown(measurements: list[Json]) -> int:
    quiet = [number for number, taken in enumerate(measurements) if taken.get("quiet")]
    return quiet[-1] if quiet else len(measurements) - 1
