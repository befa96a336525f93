"""The measurements of an artifact: that of its compile, and those that people asked for later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tunefarm_app.records.farm_facts import TIMED_ON, device_facts
from tunefarm_app.report.evidence import Evidence, noted_ratio, ratios_in
from tunefarm_app.report.sections import ReportMeasurement
from tunefarm_app.storage.job_options import baselines_of
from tunefarm_db.values import Artifact, Device, Job, Json
from tunefarm_text.job_terms import BASELINES, RUNTIMES
from tunefarm_tuning.core.latency import Latency, is_quiet

_KEY = "measurements"
_NETWORKS = {
    "tuned": "the artifact",
    "untuned": "the untuned network",
    **RUNTIMES,
}
_OF_THE_COMPILE = ("rejected", "alone", "onnxruntime_missing", "torch_compile_missing")
_NONSENSE = (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError)

KEPT = 20
"""How many of the newest measurements are kept, besides that of the compile and the shown one."""


def with_measurement(
    artifact: Artifact, latency: Mapping[str, Any], device: Device, *, measured_at: float
) -> Json:
    """Return the artifact's report with another measurement. If that is the one to show, it becomes the report's latency.

    The latest quiet one is shown; if none is quiet, the latest. One that timed fewer networks than the shown one is only listed:
    the speed-up over the others would be lost, or be that of two moments.

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
        "shown": False,
        **_in_short(latency),
    }
    stored = _stored(artifact)
    report: Json = dict(artifact.report)
    shown = next((earlier for earlier in stored if earlier.get("shown")), None)
    if shown is None or _comes_before(taken, shown):
        stored = [{**earlier, "shown": False} for earlier in stored]
        taken["shown"] = True
        report["latency"] = _with_the_compiles(latency, artifact.report.get("latency"))
        report[TIMED_ON] = device_facts(device)
        if shapes := report.get("shapes"):
            report["shapes"] = [{**shapes[0], "latency": report["latency"]}, *shapes[1:]]
    older, newest = stored[: 1 - KEPT], stored[1 - KEPT :]
    report[_KEY] = [
        *(earlier for earlier in older if earlier.get("at_compile") or earlier.get("shown")),
        *newest,
        taken,
    ]
    return report


def measurements_of(artifact: Artifact | None) -> list[ReportMeasurement]:
    """Return the measurements of an artifact, oldest first; none if its compile measured nothing, or it cannot be read."""
    try:
        return [
            ReportMeasurement(
                **{name: value for name, value in taken.items() if name != "latency"},
                seconds={
                    name: float(taken["latency"][name]["median_sec"])
                    for name in _NETWORKS
                    if taken["latency"].get(name)
                },
                ratios=ratios_in(taken["latency"]),
            )
            for taken in ([] if artifact is None else _stored(artifact))
        ]
    except _NONSENSE:
        return []


def which_is_shown(measurements: Sequence[ReportMeasurement]) -> str:
    """Return why the shown measurement is the one; an empty text if none is."""
    shown = next((taken for taken in measurements if taken.shown), None)
    if shown is None:
        return ""
    beside = [
        text
        for name, text in _NETWORKS.items()
        if name in shown.seconds and any(name not in taken.seconds for taken in measurements)
    ]
    which = (
        "the latest on a quiet device counts"
        if shown.quiet
        else "no measurement is known to be from a quiet device: the latest counts"
    )
    return f"among those that also timed {' and '.join(beside)}, {which}" if beside else which


_BESIDE = "measured_beside"
"""The member of an artifact's report with the runtimes that measurements were asked to time."""


def measured_beside(job: Job, artifact: Artifact) -> tuple[str, ...]:
    """Return the other runtimes that a measurement of a job's artifact times: the job's, and those of earlier measurements."""
    return tuple(dict.fromkeys((*baselines_of(job), *(artifact.report.get(_BESIDE) or ()))))


def to_measure_beside(artifact: Artifact, names: Sequence[str]) -> Json:
    """Return the artifact's report, with runtimes that measurements time from now on."""
    known = artifact.report.get(_BESIDE) or ()
    return {**artifact.report, _BESIDE: list(dict.fromkeys((*known, *names)))}


def timed_beside(measurements: Sequence[ReportMeasurement]) -> list[str]:
    """Return the names of the runtimes that were asked for and timed in any of the measurements, besides ONNX Runtime."""
    return [
        name
        for name in BASELINES
        if name != "onnxruntime" and any(name in taken.seconds for taken in measurements)
    ]


def _stored(artifact: Artifact) -> list[Json]:
    """Return the measurements as they are stored; if nobody has measured again yet, that of the compile."""
    known = artifact.report.get(_KEY)
    if isinstance(known, list):
        return list(known)
    latency = artifact.report.get("latency")
    if not isinstance(latency, Mapping) or not latency.get("tuned"):
        return []
    device = Evidence(artifact.manifest, artifact.report).device()
    try:
        of_the_compile: Json = {
            "measured_at": artifact.created_at,
            "device": device.name if device else None,
            "device_model": device.device_model if device else None,
            "at_compile": True,
            "shown": True,
            **_in_short(latency),
        }
    except _NONSENSE:
        return []
    return [of_the_compile]


def _in_short(latency: Mapping[str, Any]) -> Json:
    """Return medians, ratios, and whether the device was quiet: the samples are kept of the shown measurement alone."""
    ratios = {name: noted_ratio(ratio) for name, ratio in ratios_in(latency).items()}
    medians = {
        name: {"median_sec": float(latency[name]["median_sec"])} for name in _NETWORKS if latency.get(name)
    }
    return {"quiet": _is_quiet(latency), "latency": {**medians, "ratios": ratios}}


def _is_quiet(latency: Mapping[str, Any]) -> bool | None:
    try:
        return is_quiet([Latency.from_json(latency[name]) for name in _NETWORKS if latency.get(name)])
    except _NONSENSE:
        return None


def _comes_before(taken: Json, shown: Json) -> bool:
    is_quieter = bool(taken["quiet"]) or not shown.get("quiet")
    return is_quieter and all(taken["latency"].get(name) for name in _NETWORKS if shown["latency"].get(name))


def _with_the_compiles(latency: Mapping[str, Any], before: object) -> Json:
    """Return a latency with what only the compile found out: the rejected network, and why a network was not timed."""
    known = before if isinstance(before, Mapping) else {}
    kept = {name: known[name] for name in _OF_THE_COMPILE if known.get(name)}
    if latency.get("onnxruntime"):
        kept.pop("onnxruntime_missing", None)
    return {**latency, **kept}
