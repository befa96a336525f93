"""The part of a report that the job's page shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tunefarm_app.report.evidence import Evidence, baseline_facts
from tunefarm_app.report.numbers import breakdown, kernel_numbers, ratios_of
from tunefarm_app.report.sections import ReportRatio
from tunefarm_app.report.sentences import exceeding_kernels, rough_latencies
from tunefarm_db.values import JobTask
from tunefarm_text import quantities
from tunefarm_text.algorithms import kind_of_report
from tunefarm_text.job_terms import RUNTIMES, runtime_title

_ALWAYS = ("onnxruntime", "untuned", "tuned")
_NAMES = {
    **RUNTIMES,
    "torch_compile": "PyTorch, torch.compile",
    "untuned": "TVM, untuned",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyLine:
    """How fast the whole network is, in one way of running it. `median_sec` is None where it was not measured.

    `missing` says why it was not, or, of another runtime, that its outputs are further off than the artifact's may be.
    """

    key: str
    name: str
    median_sec: float | None
    fastest_sec: float | None
    slowest_sec: float | None
    threads: int | None
    speedup: str
    interval: str
    missing: str


def latency_lines(report: Mapping[str, Any] | None) -> list[LatencyLine]:
    """Return a line per way of running it; none where the report says nothing about latency."""
    latency = (report or {}).get("latency")
    if not isinstance(latency, Mapping) or not isinstance(latency.get("tuned"), Mapping):
        return []
    ratios, facts = ratios_of(report), baseline_facts(latency)
    names = {**_NAMES, "tuned": f"The artifact: TVM, {kind_of_report(report)}"}
    missing = {
        **{key: latency.get(f"{key}_missing") for key in ("onnxruntime", "torch_compile")},
        **{key: asked.get("missing") for key, asked in facts.items()},
    }
    return [
        _line(
            key,
            runtime_title(key, str(facts[key].get("computes") or "")) if key in facts else name,
            latency.get(key),
            ratios.get(key),
            missing.get(key),
            (facts.get(key) or {}).get("checks"),
        )
        for key, name in names.items()
        if key in _ALWAYS or latency.get(key) or missing.get(key)
    ]


def _line(
    key: str,
    name: str,
    timing: Mapping[str, Any] | None,
    ratio: ReportRatio | None,
    missing: object,
    checks: Mapping[str, Any] | None,
) -> LatencyLine:
    median_sec = (timing or {}).get("median_sec")
    samples = (timing or {}).get("samples_sec") or ([] if median_sec is None else [median_sec])
    return LatencyLine(
        key=key,
        name=name,
        median_sec=median_sec,
        fastest_sec=min(samples, default=None),
        slowest_sec=max(samples, default=None),
        threads=(timing or {}).get("threads"),
        speedup=quantities.NONE if ratio is None else ratio.text,
        interval=""
        if ratio is None or quantities.is_wide(ratio.low, ratio.high)
        else quantities.interval(ratio.low, ratio.high),
        missing=str(missing or "") if median_sec is None else _off(checks),
    )


def _off(checks: Mapping[str, Any] | None) -> str:
    """Return how far a runtime's outputs are off, where it computes something else than the artifact may; else an empty text."""
    if not checks or checks.get("ok") is not False:
        return ""
    return f"computes something else: outputs {quantities.error(checks.get('mean_rel_error') or 0.0)} off on average"


def disturbance_note(report: Mapping[str, Any] | None) -> str:
    """Return what other work did to the timing, if it leaves open how fast the artifact is; else an empty text."""
    latency = Evidence(manifest={}, report=report or {}).latency()
    return " ".join(rough_latencies(latency))


def kernels_note(tasks: Sequence[JobTask], report: Mapping[str, Any] | None) -> str:
    """Return that the kernels took longer alone than the network, if they did; else an empty text."""
    evidence = Evidence(manifest={}, report=report or {})
    latency = evidence.latency()
    if latency is None or evidence.shapes():  # kernels of several sets of shapes are no parts of one latency
        return ""
    parts = breakdown(latency, kernel_numbers(tasks, evidence).values())
    return " ".join(exceeding_kernels(parts, latency))


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeLine:
    """How fast the whole network is in one of the sets of shapes that the artifact runs."""

    inputs: str
    weight: int | None
    tuned_sec: float | None
    untuned_sec: float | None
    onnxruntime_sec: float | None
    others: str
    speedup: str
    batches: str
    fallback: str


def shape_lines(report: Mapping[str, Any] | None) -> list[ShapeLine]:
    """Return a line per set of shapes; none where the artifact runs one set only."""
    shapes = (report or {}).get("shapes")
    if not isinstance(shapes, list):
        return []
    return [_shape_line(shape) for shape in shapes if isinstance(shape, Mapping)]


def _shape_line(shape: Mapping[str, Any]) -> ShapeLine:
    latency = shape.get("latency") or {}
    seconds = {key: (latency.get(key) or {}).get("median_sec") for key in ("tuned", "untuned", "onnxruntime")}
    ratios = ratios_of(shape)
    ratio = ratios.get("onnxruntime")
    others = [
        f"{ratios[name].text} {runtime_title(name)}" for name in baseline_facts(latency) if name in ratios
    ]
    return ShapeLine(
        inputs=_inputs(shape),
        weight=shape.get("weight"),
        tuned_sec=seconds["tuned"],
        untuned_sec=seconds["untuned"],
        onnxruntime_sec=seconds["onnxruntime"],
        others="; ".join(others),
        speedup=quantities.NONE if ratio is None else ratio.text,
        batches=", ".join(map(str, shape.get("batches") or ())),
        fallback=str(shape.get("fallback") or ""),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherShapesLine:
    """The shapes that run by code for all sizes. `reason` says why there is no such code; empty if there is."""

    inputs: str
    sec: float | None
    reason: str


def other_shapes_line(report: Mapping[str, Any] | None) -> OtherShapesLine | None:
    """Return what the report says of them; None where the network's file fixes all shapes."""
    others = (report or {}).get("other_shapes")
    if not isinstance(others, Mapping):
        return None
    return OtherShapesLine(
        inputs=_inputs(others), sec=others.get("latency_sec"), reason=str(others.get("reason") or "")
    )


def _inputs(part: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{spec.get('name', '')} {quantities.shape(spec.get('shape') or ())}"
        for spec in part.get("inputs") or ()
    )
