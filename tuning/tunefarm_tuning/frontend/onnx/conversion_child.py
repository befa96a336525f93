"""Child process: make one ONNX file of a file in another format, or of a model in several files; and run a file in its own framework."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import TensorProto, helper
from onnx.checker import ValidationError
from onnx.external_data_helper import load_external_data_for_model

from tunefarm_convert import FileFormat, run_in_source, to_onnx
from tunefarm_tuning.core.array_file import load_arrays, save_arrays
from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.core.output_file import writing
from tunefarm_tuning.core.untrusted_text import clean, clean_message
from tunefarm_tuning.frontend.onnx.bfloat16 import uses_bfloat16
from tunefarm_tuning.frontend.onnx.model_file import onnx_bytes
from tunefarm_tuning.frontend.onnx.rules import tensors_of


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


def single_file(params: dict[str, Any]) -> list[str]:
    """Write a model with the weights that it keeps in other files: ``{"path", "to", "name"}``, as in `convert_file`. Return their names.

    Raises:
        InvalidModelError: not-protobuf, external-data, too-large.
        InvalidInputError: cannot-write.
    """
    path = Path(params["path"])
    try:
        model = onnx.load(path, load_external_data=False)
    except DecodeError as error:
        raise InvalidModelError(
            "the file is not an ONNX model: it cannot be parsed", code="not-protobuf"
        ) from error
    outside = [tensor for tensor in tensors_of(model) if tensor.data_location == TensorProto.EXTERNAL]
    names = sorted(
        {entry.value for tensor in outside for entry in tensor.external_data if entry.key == "location"}
    )
    for name in names:
        _refuse_missing(path, name)
    try:
        load_external_data_for_model(model, str(path.parent))
        _refuse_wrong_sizes(outside)
    except (OSError, ValueError, ValidationError) as error:
        raise InvalidModelError(
            f"the weights that the model keeps in other files cannot be read: {clean_message(error, 300)}",
            code="external-data",
        ) from error
    data = onnx_bytes(model)
    with writing(params["name"]):
        Path(params["to"]).write_bytes(data)
    return names


def _refuse_missing(path: Path, name: str) -> None:
    """Refuse a file of weights that is not there, hidden, or a link, by its name; the library refuses what lies elsewhere."""
    file, label = path.parent / name, clean(name, 100)
    if any(part.startswith(".") and part != ".." for part in Path(name).parts):
        raise InvalidModelError(
            f"'{label}', which the model calls a file of its weights, is hidden, as keys and settings are: if it has weights, give it "
            "another name",
            code="external-data",
        )
    if file.is_symlink():
        raise InvalidModelError(
            f"'{label}', which has weights of the model, is a link: copy the file itself beside {clean(path.name, 100)}",
            code="external-data",
        )
    if not file.exists():
        raise InvalidModelError(
            f"'{label}', which has weights of the model, is missing: keep it beside {clean(path.name, 100)}",
            code="external-data",
        )


def _refuse_wrong_sizes(tensors: Sequence[TensorProto]) -> None:
    for tensor in tensors:
        if tensor.data_type not in _BYTES:
            continue
        needed = prod(tensor.dims) * _BYTES[tensor.data_type]
        if len(tensor.raw_data) != needed:
            raise InvalidModelError(
                f"tensor '{clean(tensor.name, 60)}' has {len(tensor.raw_data)} bytes in another file, and needs {needed}",
                code="external-data",
            )


def run_once(params: dict[str, Any]) -> None:
    """Run a file in its own framework: ``{"path", "format", "feeds", "outputs"}``, the last two being files of arrays.

    Raises:
        InvalidModelError: As `run_in_source`.
    """
    inputs = load_arrays(Path(params["feeds"]))
    outputs = run_in_source(Path(params["path"]), FileFormat(params["format"]), inputs)
    save_arrays(Path(params["outputs"]), outputs)


_BYTES = {
    int(number): dtype.itemsize
    for number in helper.get_all_tensor_dtypes()
    if (dtype := helper.tensor_dtype_to_np_dtype(number)).kind in "fiubc"
}
"""The bytes of an element, of the types that NumPy has."""


HANDLERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "convert_file": convert_file,
    "run_once": run_once,
    "single_file": single_file,
}
