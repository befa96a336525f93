"""The part of a report that the job's page shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tunefarm_app.report.evidence import Evidence
from tunefarm_app.report.numbers import ratios_of
from tunefarm_app.report.parts import ReportRatio
from tunefarm_app.report.sentences import rough_latencies
from tunefarm_text import quantities

_NAMES = {
    "onnxruntime": "ONNX Runtime",
    "torch_compile": "PyTorch, torch.compile",
    "untuned": "TVM, untuned",
    "tuned": "TVM, tuned: the artifact",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyLine:
    """How fast the whole network is, in one way of running it. `median_sec` is None where it was not measured."""

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
    ratios = ratios_of(report)
    return [
        _line(key, name, latency.get(key), ratios.get(key), latency)
        for key, name in _NAMES.items()
        if key != "torch_compile" or latency.get(key) or latency.get(f"{key}_missing")  # asked for on GPUs
    ]


def _line(
    key: str,
    name: str,
    timing: Mapping[str, Any] | None,
    ratio: ReportRatio | None,
    latency: Mapping[str, Any],
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
        missing=str(latency.get(f"{key}_missing") or "") if median_sec is None else "",
    )


def disturbance_note(report: Mapping[str, Any] | None) -> str:
    """Return what other work did to the timing, if it leaves open how fast the artifact is; else an empty text."""
    latency = Evidence(manifest={}, report=report or {}).latency()
    return " ".join(rough_latencies(latency))


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeLine:
    """How fast the whole network is in one of the sets of shapes that the artifact runs."""

    inputs: str
    weight: int | None
    tuned_sec: float | None
    untuned_sec: float | None
    onnxruntime_sec: float | None
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
    ratio = ratios_of(shape).get("onnxruntime")
    return ShapeLine(
        inputs=_inputs(shape),
        weight=shape.get("weight"),
        tuned_sec=seconds["tuned"],
        untuned_sec=seconds["untuned"],
        onnxruntime_sec=seconds["onnxruntime"],
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
