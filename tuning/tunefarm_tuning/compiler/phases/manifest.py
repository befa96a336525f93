"""The manifest of an artifact, as JSON: the facts that its loader and its readers need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tunefarm_tuning.artifact.container import FORMAT, FORMAT_VERSION, SHAPES_FORMAT_VERSION
from tunefarm_tuning.artifact.machine_check import KNOWN_CPU_FEATURES
from tunefarm_tuning.artifact.reading import library_machine
from tunefarm_tuning.compiler.runtime_parts import parts_manifest
from tunefarm_tuning.compiler.session import KernelInfo, LoadedInfo
from tunefarm_tuning.records.record import TuningRecord
from tunefarm_tuning.target.host import cpu_flags
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.target.toolchain import toolchain_key
from tunefarm_tuning.workload.model import Model

_CHECKS = ("reference", "rule", "ok", "max_abs_error", "max_rel_error", "mean_rel_error")


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
    records: Sequence[tuple[KernelInfo, TuningRecord]],
    report: Mapping[str, Any],
    kernel_libraries: Mapping[str, str],
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
        records: `KernelEvidence.used`.
        report: From `make_report`.
        kernel_libraries: `SelectedAlternatives.kernel_libraries`.
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
        **({"libraries": dict(kernel_libraries)} if kernel_libraries else {}),
        "device_model": device_model,
        "threads": threads,
        "precision": report["precision"]["name"],
        "tolerance": rounding,
        "toolchain": toolchain_key(),
        "versions": {**report["versions"], **({"llvm": loaded.llvm} if loaded.llvm else {})},
        "records": [
            {
                "workload_key": task.workload_key,
                "name": task.name,
                "config": record.config.to_json(),
                "space_key": record.space_key,
                "cost_sec": record.cost_sec,
            }
            for task, record in records
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
