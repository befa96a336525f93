"""The manifest (facts) and the report (evidence) of an artifact, as JSON."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tunefarm_tuning.artifact.container import FORMAT, FORMAT_VERSION, SHAPES_FORMAT_VERSION
from tunefarm_tuning.artifact.machine_check import KNOWN_CPU_FEATURES
from tunefarm_tuning.artifact.reading import library_machine
from tunefarm_tuning.compiler.kernel_validation import CheckedKernel
from tunefarm_tuning.compiler.model_comparison import ModelComparison
from tunefarm_tuning.compiler.model_timing import METHOD as MODEL_METHOD
from tunefarm_tuning.compiler.runtime_parts import parts_manifest
from tunefarm_tuning.compiler.session import KernelInfo, LoadedInfo, UntunableKernel
from tunefarm_tuning.core.latency import Latency
from tunefarm_tuning.core.ratio import speedups
from tunefarm_tuning.measure.kernel_timing import METHOD as KERNEL_METHOD
from tunefarm_tuning.records.coverage import Coverage
from tunefarm_tuning.records.record import TuningRecord
from tunefarm_tuning.reference.samples import SampleSummary
from tunefarm_tuning.target.host import cpu_flags
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.target.toolchain import toolchain_key, versions
from tunefarm_tuning.workload.model import Model
from tunefarm_tuning.workload.precision import Precision

REPORT_VERSION = 2
_RULE = (
    "floats: an element may be 64 times as far from the reference as ONNX Runtime's own runs are in the row, column or channel "
    "of the element where these runs differ least, 16 times as far as they are anywhere in the output, and 64 roundings of the "
    "output's dtype; the median, 90 % and 99 % quantiles of the error may be 64 times those of ONNX Runtime; NaN and infinities "
    "must match; integers and booleans must be equal, except where ONNX Runtime's runs differ (ties). The tolerance is wider by a "
    "share of the element plus a share of its tensor's root mean square: 1e-2 and 1e-2 if weights are stored as float16; 5e-2 and "
    "5e-2 if they are stored as bfloat16, or the network computes in bfloat16; 1e-1 and 1e-1 if the network rounds its activations "
    "to integers. Of integers, 2 % may differ with float16 weights, 5 % with bfloat16 weights or rounded activations"
)
_REFERENCES = {
    True: "ONNX Runtime in float64",
    False: "ONNX Runtime in float32, the mean of its runs with and without graph optimisations",
    None: "ONNX Runtime, graph optimisations off",
}
"""What the report calls the reference, by whether it is in float64; None if the network rounds its activations or computes in bfloat16."""
_CHECKS = ("reference", "rule", "ok", "max_abs_error", "max_rel_error", "mean_rel_error")
_UNTUNED = (
    "The same network without records: every kernel has its default schedule, which rules choose in "
    "milliseconds (on a GPU: TVM's own schedule). A job without trials gives this network. Unscheduled "
    "loops, which TVM itself would generate for a CPU, take up to two hundred times as long."
)
_ONNXRUNTIME = (
    "ONNX Runtime's CPU provider with all graph optimisations, TVM's number of threads within an operator "
    "and one thread between operators. Its time includes the allocation of outputs; TVM's time excludes "
    "copies of inputs and outputs. On a GPU: its CUDA provider, with inputs and outputs on the GPU, timed "
    "after the artifact. The artifact, ONNX Runtime and torch.compile are synchronised with the GPU once "
    "per sample, after its last inference."
)
_BASELINES = (
    "Each runs in its own process, with as many threads as the artifact, and is timed in the same blocks. OpenVINO runs the network with "
    "its latency hint, in float32 or in the default precision that it chooses for the CPU: an ONNX file with the shapes and values of the "
    "job, or a TFLite file as it was uploaded. LiteRT runs the TFLite file with XNNPACK. Inputs and outputs stay where the runtime "
    "keeps them. Outputs on these inputs are compared with the reference, as the artifact's outputs are."
)
_OUTPUTS = (
    "Every output of the artifact, on each of the user's sample sets and each set of random inputs, element by element against ONNX "
    "Runtime. ONNX Runtime ran in all the ways under checks.runs; their differences give the tolerance of the comparison. "
    "Every tuned kernel was also compared with its untuned form, in all "
    "arguments; if the two disagree, unscheduled loops decide which is correct."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The environment of all checks and timings.

    Attributes:
        this_machine: Whether the device is the machine that compiled.
        seed: Seed of the first set of inputs, and of the kernels' inputs.
    """

    device_model: str
    this_machine: bool
    threads: int
    seed: int

    def to_json(self) -> dict[str, Any]:
        system = (
            f"{platform.system()} {platform.release()} {platform.machine()}" if self.this_machine else None
        )
        return {**asdict(self), "system": system}


def make_report(
    *,
    kernels: Sequence[CheckedKernel],
    not_tunable: Sequence[UntunableKernel],
    coverage: Coverage,
    comparison: ModelComparison,
    latency: Mapping[str, Latency],
    rejected: Latency | None,
    no_baseline: str,
    environment: Environment,
    warnings: Sequence[str],
    phases_sec: Mapping[str, float],
    alternatives: Mapping[str, Any] | None = None,
    replaced: Sequence[CheckedKernel] = (),
    precision: Mapping[str, Any] | None = None,
    no_torch_compile: str = "",
    runs: Mapping[str, Any] | None = None,
    segments: Mapping[str, Any] | None = None,
    shapes: Sequence[Mapping[str, Any]] = (),
    samples: Sequence[SampleSummary] = (),
    other_shapes: Mapping[str, Any] | None = None,
    hybrid: Mapping[str, Any] | None = None,
    reused: Mapping[str, int] | None = None,
    before: Mapping[str, Any] | None = None,
    alone: Mapping[str, Any] | None = None,
    baselines: Mapping[str, Mapping[str, Any]] | None = None,
    baselines_sec: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """Return the report.

    Args:
        kernels: Every task, with its evidence.
        not_tunable: The kernels that are no tasks.
        coverage: The tasks in short.
        comparison: The outputs of the artifact's network against ONNX Runtime's.
        latency: By name: ``"untuned"``, ``"tuned"`` (the artifact's network) and, if they were timed, ``"onnxruntime"``,
            ``"torch_compile"`` and other runtimes.
        baselines: `BaselineFacts.to_json` of the other runtimes that were asked for, by name.
        baselines_sec: Seconds of the phases that each of them took.
        rejected: The latency of the tuned network, if it fell back for being slower than the untuned one.
        no_baseline: Why ONNX Runtime was not timed; empty if it was.
        environment: The environment of all measurements.
        warnings: Sentences for people.
        phases_sec: Wall-clock seconds of each phase.
        reused: How many findings of earlier compiles were used, by kind: `Findings.reused`.
        before: `TimedBefore.to_json`, if an earlier compile measured the latencies.
        alone: `KernelSums.to_json`, if the latencies did not tell whether the tuned network is faster than the untuned one.
        alternatives: `SelectedAlternatives.to_json`, if the network has alternatives.
        replaced: The kernels that alternatives replace.
        precision: `precision_report`.
        runs: The ways in which ONNX Runtime was run for the comparison: `Reference.runs`.
        segments: The check segment by segment: `SegmentsCheck.to_json`, if there was one.
        hybrid: `parts_report`, if ONNX Runtime runs parts of the network.
        no_torch_compile: Why `torch.compile` was not timed on a GPU; empty if it was, and on CPUs.
        shapes: `shape_reports`, of a network of several sets of shapes; `latency` is then that of the first.
        samples: A summary of each of the user's files of samples.
        other_shapes: `OtherShapes.to_json`.
    """
    return {
        "report_version": REPORT_VERSION,
        "place": environment.to_json(),
        "method": {
            "latency": MODEL_METHOD,
            "untuned": _UNTUNED,
            "onnxruntime": _ONNXRUNTIME,
            **({"baselines": _BASELINES} if baselines else {}),
            "kernels": KERNEL_METHOD,
            "outputs": _OUTPUTS,
        },
        "coverage": coverage.to_json(),
        "fallbacks": [miss.to_json() for miss in coverage.fallbacks],
        "not_tunable": [asdict(kernel) for kernel in not_tunable],
        "checks": {
            "reference": _REFERENCES[None if runs is None else bool(runs["float64"])],
            "rule": _RULE,
            **comparison.to_json(),
            "runs": None if runs is None else dict(runs),
            "parts": None if segments is None else dict(segments),
            "samples": _samples(samples, comparison),
        },
        "kernels": [
            {"workload_key": kernel.task.workload_key, "names": list(kernel.task.names), **kernel.evidence}
            for kernel in (*kernels, *replaced)
            if kernel.evidence
        ],
        "alternatives": dict(alternatives or {}),
        "shapes": [dict(shape) for shape in shapes],
        "other_shapes": other_shapes,
        "precision": dict(precision or {"name": Precision.AS_MODEL.value}),
        **({"hybrid": dict(hybrid)} if hybrid else {}),
        "records": [
            _record(kernel.task, kernel.record)
            for kernel in kernels
            if kernel.hit is not None and kernel.record is not None
        ],
        "latency": {
            **latency_report(
                latency,
                rejected=rejected,
                no_baseline=no_baseline,
                no_torch_compile=no_torch_compile,
                baselines=baselines,
            ),
            **({"alone": dict(alone)} if alone is not None else {}),
        },
        "warnings": list(warnings),
        "versions": versions(),
        "phases_sec": dict(phases_sec),
        **({"baselines_sec": dict(baselines_sec)} if baselines_sec else {}),
        "reused": dict(reused or {}),
        **({"timed_before": dict(before)} if before is not None else {}),
    }


def latency_report(
    latency: Mapping[str, Latency],
    *,
    rejected: Latency | None = None,
    no_baseline: str = "",
    no_torch_compile: str = "",
    baselines: Mapping[str, Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    """Return the report's ``latency``. See `make_report` for the arguments."""
    return {
        "onnxruntime": None,
        **{name: network.to_json() for name, network in latency.items()},
        "rejected": rejected.to_json() if rejected else None,
        "onnxruntime_missing": no_baseline or None,
        "torch_compile_missing": no_torch_compile or None,
        "speedup_over_untuned": latency["untuned"].median_sec / latency["tuned"].median_sec,
        "speedup_over_onnxruntime": latency["onnxruntime"].median_sec / latency["tuned"].median_sec
        if "onnxruntime" in latency
        else None,
        "ratios": {name: ratio.to_json() for name, ratio in speedups(latency).items()},
        **baselines_report(baselines),
    }


def baselines_report(baselines: Mapping[str, Mapping[str, Any]] | None) -> dict[str, Any]:
    """Return what the report's ``latency`` says of other runtimes beside their times; nothing if none was asked for."""
    return {"baselines": {name: dict(facts) for name, facts in baselines.items()}} if baselines else {}


def _samples(samples: Sequence[SampleSummary], comparison: ModelComparison) -> dict[str, Any] | None:
    """Return what the user's samples are, and the largest errors on them; nothing of their contents."""
    compared = comparison.on_samples()
    if compared is None:
        return None
    return {"files": [summary.to_json() for summary in samples], **compared.errors()}


def why_no_baseline(*, wanted: bool, here: bool) -> str:
    """Return why no baseline is timed (none is wanted, or it cannot run where the network runs); empty if one may be timed."""
    if not wanted:
        return "not asked for"
    return "" if here else "the device is another machine, without ONNX Runtime"


def _record(task: KernelInfo, record: TuningRecord) -> dict[str, Any]:
    return {
        "workload_key": task.workload_key,
        "name": task.name,
        "target_key": record.target_key,
        "device_model": record.device_model,
        "toolchain": record.toolchain,
        "space_key": record.space_key,
        "config": record.config.to_json(),
        "cost_sec": record.cost_sec,
        "samples_sec": list(record.samples_sec),
        "measured_at": record.measured_at,
        "tuner": record.tuner,
        "confirmed": record.confirmed,
    }


def make_manifest(
    *,
    name: str,
    model: Model,
    target: Target,
    loaded: LoadedInfo,
    library: Path,
    device_model: str,
    checked_here: bool,
    threads: int,
    kernels: Sequence[CheckedKernel],
    report: Mapping[str, Any],
    libraries: Mapping[str, str],
    rounding: str,
) -> dict[str, Any]:
    """Return the manifest, without the checksums of the entries, which `pack` adds.

    Args:
        name: The artifact's name.
        model: The model that was compiled.
        target: The target that it was compiled for.
        loaded: The network's kernels and CPU features.
        library: The compiled network.
        device_model: The model of the device that it was checked on.
        checked_here: Whether that device was this machine.
        threads: The number of threads that it was timed on.
        kernels: Every task; the records of those whose tuned kernel is used are listed.
        report: From `make_report`.
        libraries: `SelectedAlternatives.libraries`.
        rounding: The rounding that its outputs were compared by: `InputSet.rounding`. The manifest calls it `tolerance`.
    """
    features = set(loaded.cpu_features)
    if checked_here:
        # All of the code has run here, so it needs no feature that this CPU lacks: a virtual machine may hide features that
        # the CPU's name promises.
        features = {name for name in features if KNOWN_CPU_FEATURES[name] in cpu_flags()} or features
    checks, latency = report["checks"], report["latency"]
    return {
        "format": FORMAT,
        "format_version": SHAPES_FORMAT_VERSION if _needs_shapes(report) or model.parts else FORMAT_VERSION,
        "name": name,
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "model": {"sha256": model.sha256, "opset": model.opset, "num_params": model.num_params},
        "inputs": [spec.to_json() for spec in model.inputs],
        "outputs": [spec.to_json() for spec in model.outputs],
        **_specialisations(report),
        **_other_shapes(report),
        # Kernels for CPUs are built so (`tvm.base.lowering`).
        "unaligned_inputs": target.kind == "llvm",
        **({"parts": parts_manifest(model.parts)} if model.parts else {}),
        "target": target.to_json(),
        "target_key": target.key,
        "machine": library_machine(library),
        "cpu_features": sorted(features),
        **({"libraries": dict(libraries)} if libraries else {}),
        "device_model": device_model,
        "threads": threads,
        "precision": report["precision"]["name"],
        "tolerance": rounding,
        "toolchain": toolchain_key(),
        "versions": {**report["versions"], **({"llvm": loaded.llvm} if loaded.llvm else {})},
        "records": [
            {
                "workload_key": kernel.task.workload_key,
                "name": kernel.task.name,
                "config": kernel.record.config.to_json(),
                "space_key": kernel.record.space_key,
                "cost_sec": kernel.record.cost_sec,
            }
            for kernel in kernels
            if kernel.hit is not None and kernel.record is not None
        ],
        "coverage": {key: report["coverage"][key] for key in ("tasks", "covered", "misses")},
        "checks": {key: checks[key] for key in _CHECKS},
        "latency_sec": {
            which: latency[which]["median_sec"] if latency[which] else None
            for which in ("onnxruntime", "untuned", "tuned")
        },
    }


def _needs_shapes(report: Mapping[str, Any]) -> bool:
    """Return whether the loader has to choose among several functions."""
    return bool(report["shapes"] or (report["other_shapes"] or {}).get("entry"))


def _other_shapes(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return the manifest's part on the function for all sizes, which the loader reads; empty if there is none."""
    others = report["other_shapes"] or {}
    if not others.get("entry"):
        return {}
    return {
        "other_shapes": {
            key: others[key]
            for key in ("entry", "inputs", "outputs", "dimensions", "conditions", "latency_sec")
        }
    }


def _specialisations(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return the manifest's part on several sets of shapes, which the loader reads; empty if there is one set only."""
    shapes = report["shapes"]
    if not shapes:
        return {}
    kept = ("entry", "weight", "inputs", "outputs", "batches")
    return {
        "specialisations": [
            {
                **{key: shape[key] for key in kept},
                "latency_sec": shape["latency"]["tuned"]["median_sec"],
                "onnxruntime_sec": (shape["latency"]["onnxruntime"] or {}).get("median_sec"),
            }
            for shape in shapes
        ]
    }
