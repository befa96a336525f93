"""Running a network once in ONNX Runtime, in a child process, on inputs of the caller's."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from tunefarm_tuning.core.array_file import load_arrays, save_arrays
from tunefarm_tuning.process.model_child import ImportLimits, call_model_child
from tunefarm_tuning.workload.model import Model

_REFERENCE_CHILD = "tunefarm_tuning.frontend.onnx.reference_child"
_LITERT_CHILD = "tunefarm_tuning.frontend.onnx.litert_child"
_XLA_CHILD = "tunefarm_tuning.frontend.onnx.convert_stablehlo_child"


def run_in_onnxruntime(
    model: Model, inputs: Sequence[NDArray[Any]], limits: ImportLimits
) -> list[NDArray[Any]]:
    """Return what a network's outputs are, optimisations off.

    Raises:
        InvalidModelError: reference-failed, or what `model_error` makes of a child that gave no answer.
    """
    params = {"path": str(model.path.absolute()), "inputs": [spec.to_json() for spec in model.inputs]}
    return _run("running the model in ONNX Runtime", _REFERENCE_CHILD, params, inputs, limits)


def run_in_litert(path: Path, inputs: Sequence[NDArray[Any]], limits: ImportLimits) -> list[NDArray[Any]]:
    """Return what TFLite's own interpreter, which must be installed, makes of a file's inputs.

    Raises:
        InvalidModelError: As `run_in_onnxruntime`.
    """
    return _run("running the model in LiteRT", _LITERT_CHILD, {"path": str(path.absolute())}, inputs, limits)


def run_in_xla(path: Path, inputs: Sequence[NDArray[Any]], limits: ImportLimits) -> list[NDArray[Any]]:
    """Return what XLA, by jaxlib, which must be installed, makes of a StableHLO file's inputs.

    Raises:
        InvalidModelError: As `run_in_onnxruntime`.
    """
    return _run("running the program in XLA", _XLA_CHILD, {"path": str(path.absolute())}, inputs, limits)


def _run(
    what: str, module: str, params: dict[str, Any], inputs: Sequence[NDArray[Any]], limits: ImportLimits
) -> list[NDArray[Any]]:
    with tempfile.TemporaryDirectory(prefix="tunefarm-") as folder:
        feeds, outputs = Path(folder, "inputs.npz"), Path(folder, "outputs.npz")
        save_arrays(feeds, inputs)
        given = {**params, "feeds": str(feeds), "outputs": str(outputs)}
        call_model_child("reference", what, module, "run_once", given, limits)
        return load_arrays(outputs)
