"""Child process: write a TFLite file as ONNX."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tunefarm_convert.tflite.flatfile import is_tflite
from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.core.output_file import writing
from tunefarm_tuning.frontend.onnx.model_file import convert_tflite, onnx_bytes


def convert_file(params: dict[str, Any]) -> dict[str, Any]:
    """Convert ``path`` into the file ``to``; errors say ``name`` for that.

    Returns:
        ``quantized``: whether there are integers in it that stand for real numbers.

    Raises:
        InvalidModelError: not-tflite, or a code of `tunefarm_convert.tflite.convert`.
        InvalidInputError: cannot-write.
    """
    data = Path(params["path"]).read_bytes()
    if not is_tflite(data):
        raise InvalidModelError("the file does not begin like a TFLite file", code="not-tflite")
    model = convert_tflite(data)
    found = onnx_bytes(model)
    with writing(params["name"]):
        Path(params["to"]).write_bytes(found)
    return {"quantized": any(node.op_type == "DequantizeLinear" for node in model.graph.node)}


HANDLERS: dict[str, Callable[[dict[str, Any]], Any]] = {"convert_file": convert_file}
