"""What storing weights in fewer bytes does to a network's outputs: measured beside the network as its file has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tunefarm_tuning.compiler.model_check import ModelComparison, compare_model
from tunefarm_tuning.compiler.session import CompileLimits, CompileSession
from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.measure.device_run import DeviceRun, RunFailed
from tunefarm_tuning.process import ChildClosed, ChildFailed
from tunefarm_tuning.reference.onnx_runtime import InputSet
from tunefarm_tuning.workload.precision import Precision

_METHOD = (
    "stored: what is in the artifact; as_model: the same network with the weights of its file, by default schedules; each against "
    "ONNX Runtime, which computes with the weights of the file. Errors are shares of an output's root mean square."
)


def tolerance_of(precision: Precision, storage: Mapping[str, int]) -> str:
    """Return the dtype whose tolerance results are compared with: of what weights were rounded to, where any were."""
    return precision.tolerance if storage.get("stored") else Precision.AS_MODEL.tolerance


def compare_as_model(
    compiler: CompileSession,
    runner: DeviceRun,
    path: Path,
    names: Sequence[str],
    sets: Sequence[InputSet],
    limits: CompileLimits,
) -> ModelComparison | None:
    """Return how the outputs of the network with the weights of its file compare; None where it cannot be built or run.

    Args:
        compiler: A fresh one, which stores weights as they are.
        runner: Where networks run.
        path: A fresh one.
        names: Of the outputs.
        sets: What to compare on.
        limits: Of the child.
    """
    plain = [replace(one, rounding="float32") for one in sets]
    try:
        compiler.build_model(path, {})
        compiler.close()
        return compare_model(runner, path, names, plain, limits)
    except ChildClosed:
        raise
    except (ChildFailed, InvalidModelError, RunFailed):
        return None


def precision_report(
    precision: Precision,
    storage: Mapping[str, int],
    comparison: ModelComparison,
    as_model: ModelComparison | None,
) -> dict[str, Any]:
    """Return what the report says of how weights are stored."""
    if precision is Precision.AS_MODEL:
        return {"name": precision.value}
    return {
        "name": precision.value,
        "weights": dict(storage),
        "method": _METHOD,
        "accuracy": {
            "stored": _errors(comparison),
            "as_model": None if as_model is None else _errors(as_model),
        },
    }


def storage_warnings(precision: Precision, storage: Mapping[str, int]) -> list[str]:
    """Return sentences on weights that stayed as they were."""
    if precision is Precision.AS_MODEL:
        return []
    name = precision.value.removesuffix("-weights")
    if not storage.get("stored"):
        fits = (
            "8-bit integers times a scale" if name == "int8" else f"float32 and within what {name} can hold"
        )
        return [
            f"no weight is stored as {precision.value} says: none is large, {fits}, and in a kernel that can read it so"
        ]
    kept = storage.get("kept", 0)
    if kept and precision is not Precision.INT8_WEIGHTS:
        why = f"beyond what {name} can hold, or in a kernel that cannot read them so"
        return [f"large weights that stay float32: {kept} ({why})"]
    return []


def wrong_because(precision: Precision, storage: Mapping[str, int]) -> str:
    """Return what to add where outputs are too far off."""
    if precision is Precision.AS_MODEL or not storage.get("stored"):
        return ""
    return f" (weights are stored as {precision.value}; precision {Precision.AS_MODEL.value} takes them as the model has them)"


def _errors(comparison: ModelComparison) -> dict[str, float]:
    found = comparison.to_json()
    return {key: found[key] for key in ("max_abs_error", "max_rel_error", "mean_rel_error")}
