"""Child process: convert a file of another format to ONNX, and run it in its own framework."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tunefarm_convert import FileFormat, run_in_source, to_onnx
from tunefarm_tuning.core.array_file import load_arrays, save_arrays
from tunefarm_tuning.core.output_file import writing
from tunefarm_tuning.frontend.onnx.bfloat16 import uses_bfloat16
from tunefarm_tuning.frontend.onnx.model_file import onnx_bytes


def convert_file(params: dict[str, Any]) -> dict[str, Any]:
    """Convert a file to ONNX.

    Args:
        params: ``path`` of the file, ``format``, ``to``, which is the file to write, and ``name``, which is what errors
            call that.

    Returns:
        ``quantized``: whether integers in it stand for real numbers; ``bfloat16``: whether it computes in that;
        ``states``: the number of inputs with state that a TFLite file keeps from call to call.

    Raises:
        InvalidModelError: As `to_onnx`.
        InvalidInputError: cannot-write.
    """
    model = to_onnx(Path(params["path"]).read_bytes(), FileFormat(params["format"]))
    data = onnx_bytes(model)
    with writing(params["name"]):
        Path(params["to"]).write_bytes(data)
    return {
        "quantized": any(node.op_type == "DequantizeLinear" for node in model.graph.node),
        "bfloat16": uses_bfloat16(model.graph),
        "states": len(model.metadata_props),
    }


def run_once(params: dict[str, Any]) -> None:
    """Run a file in its own framework: ``{"path", "format", "feeds", "outputs"}``, the last two being files of arrays.

    Raises:
        InvalidModelError: As `run_in_source`.
    """
    inputs = load_arrays(Path(params["feeds"]))
    outputs = run_in_source(Path(params["path"]), FileFormat(params["format"]), inputs)
    save_arrays(Path(params["outputs"]), outputs)


HANDLERS: dict[str, Callable[[dict[str, Any]], Any]] = {"convert_file": convert_file, "run_once": run_once}
