"""Read the manifest and report in an artifact, which a worker of another release may have written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, TypeVar

from tunefarm_app.records.farm_facts import FARM, TIMED_ON, peak_in
from tunefarm_app.report.document import ReportCoverage, ReportedDevice
from tunefarm_app.report.hybrid import ReportHybrid
from tunefarm_app.report.precision_sections import ReportPrecision
from tunefarm_app.report.sections import (
    ReportAlternative,
    ReportBaseline,
    ReportBaselineChecks,
    ReportChecks,
    ReportDisturbance,
    ReportedRecord,
    ReportKernelSums,
    ReportLatency,
    ReportPlace,
    ReportRatio,
    ReportTiming,
    ReportUntunable,
)
from tunefarm_app.report.shape_sections import ReportOtherShapes, ReportShape
from tunefarm_text import quantities
from tunefarm_text.job_terms import RUNTIMES, runtime_title
from tunefarm_tuning.core.latency import Latency
from tunefarm_tuning.core.ratio import Ratio, speedups
from tunefarm_tuning.measure.peak import Peak

T = TypeVar("T")
Data = Mapping[str, Any]
Timings = tuple[ReportTiming | None, ReportTiming | None]
"""Seconds of a kernel: untuned, tuned."""

_NONSENSE = (KeyError, TypeError, ValueError, AttributeError, IndexError, ZeroDivisionError)


@dataclass(slots=True)
class Evidence:
    """An artifact's manifest and report, read part by part.

    Attributes:
        unreadable: Names of the parts that are malformed; each is left out.
    """

    manifest: Data
    report: Data
    unreadable: list[str] = field(default_factory=list)

    def read(self, name: str, make: Callable[[Any], T], otherwise: T) -> T:
        """Return ``make(part)``; `otherwise` if the part is missing or malformed."""
        value = self.report.get(name)
        if value is None:
            return otherwise
        try:
            return make(value)
        except _NONSENSE:  # pydantic's ValidationError is a ValueError
            self.unreadable.append(name)
            return otherwise

    def latency(self) -> ReportLatency | None:
        coverage = self.manifest.get("coverage")
        covered = coverage.get("covered") if isinstance(coverage, Mapping) else None
        is_untuned = covered == 0 and not self.chosen()
        return self.read("latency", lambda data: _latency(data, is_untuned=is_untuned), None)

    def ratios(self) -> dict[str, ReportRatio]:
        """Return how many times as fast as the other networks the artifact is."""
        return self.read("latency", ratios_in, {})

    def shapes(self) -> list[ReportShape]:
        """Return the sets of shapes that the artifact runs; none if there is only one."""
        return self.read("shapes", lambda data: [_shape(entry) for entry in data], [])

    def other_shapes(self) -> ReportOtherShapes | None:
        """Return what is known of the code for all other shapes."""
        return self.read("other_shapes", ReportOtherShapes.model_validate, None)

    def hybrid(self) -> ReportHybrid | None:
        """Return which part of the network ONNX Runtime runs; None if it is compiled whole."""
        return self.read("hybrid", ReportHybrid.model_validate, None)

    def checks(self) -> ReportChecks | None:
        return self.read("checks", ReportChecks.model_validate, None)

    def precision(self) -> ReportPrecision | None:
        return self.read("precision", ReportPrecision.model_validate, None)

    def place(self) -> ReportPlace | None:
        return self.read("place", ReportPlace.model_validate, None)

    def not_tunable(self) -> list[ReportUntunable]:
        return self.read(
            "not_tunable", lambda data: [ReportUntunable.model_validate(entry) for entry in data], []
        )

    def coverage(self) -> ReportCoverage | None:
        return self.read("coverage", _coverage, None)

    def hits(self) -> dict[str, Data] | None:
        """Return the tasks that run a tuned kernel, by workload; None if the compiler did not list them."""
        return self.read(
            "coverage",
            lambda data: {str(hit["workload_key"]): hit for hit in data["hits"]} if "hits" in data else None,
            None,
        )

    def kernels(self) -> dict[str, Timings]:
        """Return the kernels' times, untuned and tuned, by workload."""
        return self.read(
            "kernels",
            lambda data: {
                str(entry["workload_key"]): (timing(entry["untuned_sec"]), timing(entry["tuned_sec"]))
                for entry in data
                if "untuned_sec" in entry
            },
            {},
        )

    def chosen(self) -> dict[str, ReportAlternative]:
        """Return the alternative algorithms in the artifact, by the workload of the kernel that they replace."""
        return {
            alternative.workload_key: alternative for alternative in self.alternatives() if alternative.chosen
        }

    def alternatives(self) -> list[ReportAlternative]:
        return self.read(
            "alternatives",
            lambda data: [ReportAlternative.model_validate(entry) for entry in data.get("candidates", [])],
            [],
        )

    def networks_sec(self) -> dict[str, float]:
        """Return the network's seconds without alternatives and with the chosen ones; empty if none was chosen."""
        return self.read(
            "alternatives",
            lambda data: {str(name): float(sec) for name, sec in data.get("networks_sec", {}).items()},
            {},
        )

    def records(self) -> list[ReportedRecord]:
        def make(data: Sequence[Data]) -> list[ReportedRecord]:
            known = self.farm().get("records", {})
            return [
                ReportedRecord.model_validate({**entry, **known.get(entry["workload_key"], {})})
                for entry in data
            ]

        return self.read("records", make, [])

    def farm(self) -> Data:
        return self.read(FARM, dict, {})

    def device(self) -> ReportedDevice | None:
        """Return the device that measured the latency, as the farm stored it then, else as the manifest describes it."""
        noted = self.read(TIMED_ON, ReportedDevice.model_validate, None) or self.read(
            FARM,
            lambda data: ReportedDevice.model_validate(data["device"]) if "device" in data else None,
            None,
        )
        model = self.manifest.get("device_model")
        if noted is not None or not isinstance(model, str):
            return noted
        unknown = dict.fromkeys(ReportedDevice.model_fields)
        return ReportedDevice.model_validate({**unknown, "device_model": model, "gpus": [], "versions": {}})

    def peak(self) -> Peak | None:
        """Return the device's peak that the farm knew at the compile."""
        return self.read(FARM, peak_in, None)

    def texts(self, name: str) -> dict[str, str]:
        return self.read(name, lambda data: {str(key): str(value) for key, value in data.items()}, {})

    def seconds(self, name: str) -> dict[str, float]:
        return self.read(name, lambda data: {str(key): float(value) for key, value in data.items()}, {})

    def warnings(self) -> list[str]:
        return self.read("warnings", lambda data: [str(text) for text in data], [])


def timing(samples_sec: Sequence[float], *, threads: int | None = None) -> ReportTiming | None:
    """Return samples as a timing; None if there are none."""
    if not samples_sec:
        return None
    samples = [float(sample) for sample in samples_sec]
    middle = median(samples)
    return ReportTiming(
        median_sec=middle,
        min_sec=min(samples),
        max_sec=max(samples),
        spread=(max(samples) - min(samples)) / middle if middle else 0.0,
        samples_sec=samples,
        inferences=[],
        threads=threads,
        disturbance=None,
    )


def _latency(data: Data, *, is_untuned: bool) -> ReportLatency:
    tuned, untuned = _network(data["tuned"]), _network(data["untuned"])
    baseline = _network(data["onnxruntime"]) if data.get("onnxruntime") else None
    compiled = _network(data["torch_compile"]) if data.get("torch_compile") else None
    return ReportLatency(
        onnxruntime=baseline,
        onnxruntime_missing=None
        if baseline
        else str(data.get("onnxruntime_missing") or "the compiler gave no reason"),
        torch_compile=compiled,
        torch_compile_missing=data.get("torch_compile_missing"),
        untuned=untuned,
        tuned=tuned,
        tuned_is_untuned=is_untuned or tuned.samples_sec == untuned.samples_sec,
        rejected=_network(data["rejected"]) if data.get("rejected") else None,
        alone=ReportKernelSums.model_validate(data["alone"]) if data.get("alone") else None,
        speedup_over_untuned=untuned.median_sec / tuned.median_sec,
        speedup_over_onnxruntime=baseline.median_sec / tuned.median_sec if baseline else None,
        overlaps_untuned=_overlap(tuned, untuned),
        overlaps_onnxruntime=_overlap(tuned, baseline) if baseline else None,
        speedup_over_torch_compile=compiled.median_sec / tuned.median_sec if compiled else None,
        overlaps_torch_compile=_overlap(tuned, compiled) if compiled else None,
        baselines={
            name: _baseline(name, facts, data.get(name)) for name, facts in baseline_facts(data).items()
        },
        ratios=ratios_in(data),
    )


def baseline_facts(data: Data) -> dict[str, Data]:
    """Return what the compiler's ``latency`` says of the other runtimes that were asked for, by name."""
    facts = data.get("baselines") or {}
    return {name: facts[name] for name in RUNTIMES if name in facts}


def _baseline(name: str, facts: Data, timed: Data | None) -> ReportBaseline:
    computes, checks = str(facts.get("computes") or ""), facts.get("checks")
    return ReportBaseline(
        title=runtime_title(name, computes),
        timing=_network(timed) if timed else None,
        missing=None if timed else str(facts.get("missing") or "the compiler gave no reason"),
        version=str(facts.get("version") or ""),
        computes=computes,
        checks=ReportBaselineChecks.model_validate(checks) if checks else None,
    )


def ratios_in(data: Data) -> dict[str, ReportRatio]:
    """Return the speed-ups that the compiler noted; computed from the samples, if it is of a release that noted none."""
    if data.get("ratios") is not None:
        off = {
            name
            for name, facts in baseline_facts(data).items()
            if (facts.get("checks") or {}).get("ok") is False
        }
        return {
            str(name): ratio_of(
                Ratio.from_json(ratio), comparable=ratio.get("comparable", True) and name not in off
            )
            for name, ratio in data["ratios"].items()
        }
    names = ("tuned", "untuned", *RUNTIMES)
    latency = {
        name: Latency.from_json({"samples_sec": [data[name].get("median_sec")], "threads": 0, **data[name]})
        for name in names
        if data.get(name)
    }
    return {name: ratio_of(ratio) for name, ratio in speedups(latency).items()}


def ratio_of(ratio: Ratio, *, comparable: bool = True) -> ReportRatio:
    """Return a ratio with what people read of it."""
    low, high = ratio.low, ratio.high
    return ReportRatio(
        value=ratio.value,
        low=low,
        high=high,
        text=quantities.speedup(ratio.value, low, high),
        verdict="same"
        if not quantities.is_known(low, high)
        else "faster"
        if (low if low is not None else ratio.value) > 1
        else "slower"
        if (high if high is not None else ratio.value) < 1
        else "same",
        comparable=comparable,
    )


def noted_ratio(ratio: ReportRatio) -> dict[str, Any]:
    """Return what is stored of a ratio; `ratios_in` and `numbers.speedups_of` read it."""
    noted: dict[str, Any] = {"value": ratio.value, "low": ratio.low, "high": ratio.high}
    return noted if ratio.comparable else {**noted, "comparable": False}


def _shape(data: Data) -> ReportShape:
    latency = data["latency"]
    baseline = latency.get("onnxruntime")
    return ReportShape(
        inputs=list(data["inputs"]),
        weight=int(data["weight"]),
        tuned_sec=float(latency["tuned"]["median_sec"]),
        untuned_sec=float(latency["untuned"]["median_sec"]),
        onnxruntime_sec=float(baseline["median_sec"]) if baseline else None,
        baselines_sec={
            name: float(latency[name]["median_sec"]) for name in baseline_facts(latency) if latency.get(name)
        },
        ratios=ratios_in(latency),
        batches=[int(batch) for batch in data.get("batches", [])],
        no_batches=data.get("no_batches"),
        fallback=data.get("fallback"),
    )


def _network(data: Data) -> ReportTiming:
    network = timing(data["samples_sec"], threads=data["threads"])
    if network is None:
        raise ValueError("no samples")
    disturbance = data.get("disturbance")
    return network.model_copy(
        update={
            "inferences": [int(count) for count in data.get("inferences", [])],
            "disturbance": ReportDisturbance.model_validate(disturbance) if disturbance else None,
        }
    )


def _overlap(tuned: ReportTiming, other: ReportTiming) -> bool:
    return tuned.min_sec <= other.max_sec and other.min_sec <= tuned.max_sec


def _coverage(data: Data) -> ReportCoverage:
    return ReportCoverage.model_validate({"misses": [], **data})
