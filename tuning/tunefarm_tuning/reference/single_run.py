"""Running a network once, in ONNX Runtime or in the framework of its own format, in a child process."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from tunefarm_convert import FileFormat
from tunefarm_tuning.core.array_file import load_arrays, save_arrays
from tunefarm_tuning.process.model_child import ImportLimits, call_model_child
from tunefarm_tuning.process.sandbox import Access
from tunefarm_tuning.reference.widths import Width, load_widths
from tunefarm_tuning.workload.model import Model

_REFERENCE_CHILD = "tunefarm_tuning.frontend.onnx.reference_child"
_WIDTHS_SEC = 30.0
_CONVERSION_CHILD = "tunefarm_tuning.frontend.onnx.conversion_child"


def run_in_onnxruntime(
    model: Model, inputs: Sequence[NDArray[Any]], limits: ImportLimits
) -> list[NDArray[Any]]:
    """Return a network's outputs, optimisations off.

    Raises:
        InvalidModelError: reference-failed, or what `model_error` makes of a child that gave no answer.
    """
    params = {"path": str(model.path.absolute()), "binding": model.binding.to_json()}
    return _run("running the model in ONNX Runtime", _REFERENCE_CHILD, params, inputs, limits)


def run_with_widths(
    model: Model, inputs: Sequence[NDArray[Any]], limits: ImportLimits
) -> tuple[list[NDArray[Any]], list[Width | None]] | None:
    """Return a network's outputs, in float64 where ONNX Runtime can compute them, and how far others may be from them.

    Returns:
        None for a network that rounds its activations to integers or computes in bfloat16, and has no such widths.

    Raises:
        InvalidModelError: As `run_in_onnxruntime`.
    """
    with tempfile.TemporaryDirectory(prefix="tunefarm-") as folder:
        files = {name: str(Path(folder, f"{name}.npz")) for name in ("inputs", "outputs", "widths")}
        save_arrays(Path(files["inputs"]), inputs)
        params = {
            "path": str(model.path.absolute()),
            "binding": model.binding.to_json(),
            "threads": 1,
            "budget_sec": _WIDTHS_SEC,
            "probes": False,
            "narrow": None,
            "parts": [],
            "sets": [{"kind": None, "seed": 0, "parts": [], **files}],
        }
        doing = "running the model in ONNX Runtime"
        access = Access(reads=(model.path,), writes=(Path(folder),))
        properties = call_model_child(
            "reference", doing, _REFERENCE_CHILD, "make_reference", params, limits, access
        )
        if properties["runs"] is None or properties["rounds"]:
            return None
        return load_arrays(files["outputs"]), load_widths(files["widths"]) or []


def run_in_source(
    path: Path, source: FileFormat, inputs: Sequence[NDArray[Any]], limits: ImportLimits
) -> list[NDArray[Any]]:
    """Return the outputs that LiteRT computes of a TFLite file, or XLA of a StableHLO file. It must be installed.

    Raises:
        InvalidModelError: As `run_in_onnxruntime`.
    """
    framework = "LiteRT" if source is FileFormat.TFLITE else "XLA"
    params = {"path": str(path.absolute()), "format": source.value}
    return _run(f"running the model in {framework}", _CONVERSION_CHILD, params, inputs, limits)


def _run(
    doing: str, module: str, params: dict[str, Any], inputs: Sequence[NDArray[Any]], limits: ImportLimits
) -> list[NDArray[Any]]:
    with tempfile.TemporaryDirectory(prefix="tunefarm-") as folder:
        feeds, outputs = Path(folder, "inputs.npz"), Path(folder, "outputs.npz")
        save_arrays(feeds, inputs)
        files = {"feeds": str(feeds), "outputs": str(outputs)}
        access = Access(reads=(Path(params["path"]),), writes=(Path(folder),))
        call_model_child("reference", doing, module, "run_once", {**params, **files}, limits, access)
        return load_arrays(outputs)
