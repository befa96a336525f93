"""What an artifact says of itself: the manifest (facts) and the report (evidence)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tunefarm_tuning.artifact.container import FORMAT, FORMAT_VERSION
from tunefarm_tuning.artifact.library import library_machine
from tunefarm_tuning.artifact.loader import KNOWN_CPU_FEATURES
from tunefarm_tuning.compile_session import LoadedInfo
from tunefarm_tuning.coverage import Coverage
from tunefarm_tuning.host import cpu_flags
from tunefarm_tuning.kernel_check import CheckedKernel
from tunefarm_tuning.latency import Latency
from tunefarm_tuning.model import Model
from tunefarm_tuning.model_check import ModelComparison
from tunefarm_tuning.target import Target
from tunefarm_tuning.toolchain import toolchain_key, versions

REPORT_VERSION = 1
_RULE = (
    "floats: an element may be off by rtol of itself plus a share of its tensor's root mean square (float32: 1e-3 and "
    "2e-4); NaN and infinities must match; integers and booleans: equal, but for one in a thousand where floats tie"
)


def make_report(
    kernels: Sequence[CheckedKernel],
    coverage: Coverage,
    comparison: ModelComparison,
    latency: Mapping[str, Latency],
    rejected: Latency | None,
    no_baseline: str,
    warnings: Sequence[str],
    phases_sec: Mapping[str, float],
) -> dict[str, Any]:
    """Return the report.

    Args:
        kernels: Every task and its evidence.
        coverage: The same, in short.
        comparison: The chosen library's outputs against ONNX Runtime's.
        latency: Of ``"untuned"``, ``"tuned"`` (what is in the artifact) and, where it was timed, ``"onnxruntime"``.
        rejected: Of the tuned network, where all of it fell back for being slow.
        no_baseline: Why ONNX Runtime was not timed; empty where it was.
        warnings: Sentences for people.
        phases_sec: How long each phase took.
    """
    times = {which: one.to_json() for which, one in latency.items()}
    return {
        "report_version": REPORT_VERSION,
        "coverage": coverage.to_json(),
        "fallbacks": [miss.to_json() for miss in coverage.fallbacks],
        "checks": {
            "reference": "ONNX Runtime, graph optimisations off",
            "rule": _RULE,
            **comparison.to_json(),
        },
        "kernels": [
            {"workload_key": k.task.workload_key, "names": list(k.task.names), **k.evidence}
            for k in kernels
            if k.evidence
        ],
        "latency": {
            "onnxruntime": None,
            **times,
            "rejected": rejected.to_json() if rejected else None,
            "onnxruntime_missing": no_baseline or None,
            "speedup_over_untuned": latency["untuned"].median_sec / latency["tuned"].median_sec,
            "speedup_over_onnxruntime": latency["onnxruntime"].median_sec / latency["tuned"].median_sec
            if "onnxruntime" in latency
            else None,
        },
        "warnings": list(warnings),
        "versions": versions(),
        "phases_sec": dict(phases_sec),
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
) -> dict[str, Any]:
    """Return the manifest, but for the checksums of the entries, which `pack` adds.

    Args:
        name: The artifact's.
        model: What was compiled.
        target: For what.
        loaded: What the compiler found in it.
        library: The compiled network.
        device_model: On what it was checked.
        checked_here: Whether that was this machine.
        threads: On how many it was timed.
        kernels: Every task; the records of those that went in are listed.
        report: From `make_report`.
    """
    features = set(loaded.cpu_features)
    if checked_here:
        # All of the code has run here. What this CPU lacks (a virtual machine may hide a part of what the CPU's name
        # promises) it did not use.
        features = {one for one in features if KNOWN_CPU_FEATURES[one] in cpu_flags()} or features
    checks, latency = report["checks"], report["latency"]
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "name": name,
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "model": {"sha256": model.sha256, "opset": model.opset, "num_params": model.num_params},
        "inputs": [spec.to_json() for spec in model.inputs],
        "outputs": [spec.to_json() for spec in model.outputs],
        "target": target.to_json(),
        "target_key": target.key,
        "machine": library_machine(library),
        "cpu_features": sorted(features),
        "device_model": device_model,
        "threads": threads,
        "toolchain": toolchain_key(),
        "versions": report["versions"],
        "records": [
            {
                "workload_key": k.task.workload_key,
                "name": k.task.name,
                "config": k.record.config.to_json(),
                "space_key": k.record.space_key,
                "cost_sec": k.record.cost_sec,
            }
            for k in kernels
            if k.hit is not None and k.record is not None
        ],
        "coverage": {key: report["coverage"][key] for key in ("tasks", "covered", "misses")},
        "checks": {key: checks[key] for key in ("reference", "rule", "ok", "max_abs_error", "max_rel_error")},
        "latency_sec": {
            which: latency[which]["median_sec"] if latency[which] else None
            for which in ("onnxruntime", "untuned", "tuned")
        },
    }
