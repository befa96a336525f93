"""Read a model file that has passed the checks as ONNX, whatever its format."""

from __future__ import annotations

from pathlib import Path

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from tunefarm_convert import HEAD_BYTES, FileFormat, file_format, to_onnx
from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.frontend.onnx.bfloat16 import uses_bfloat16, widened


def read_model(path: Path | str) -> onnx.ModelProto:
    """Parse a model, or convert it. External data is ignored: no path in the file is ever opened.

    Raises:
        InvalidModelError: not-protobuf, or a code of `to_onnx`.
    """
    data = Path(path).read_bytes()
    if file_format(data) is FileFormat.TFLITE:
        return to_onnx(data, FileFormat.TFLITE)
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError as error:
        raise InvalidModelError(
            "the file is not an ONNX model: it does not parse as one", code="not-protobuf"
        ) from error
    return model


def onnx_source(path: Path | str, *, rounds: bool = True) -> str | bytes:
    """Return the path of an ONNX file, or the bytes of a converted model, for ONNX Runtime.

    Args:
        path: Path of a file that has passed the checks.
        rounds: Whether the twin of a network that computes in bfloat16 rounds as the network does (see `bfloat16.widened`).

    Raises:
        InvalidModelError: too-large, or a code of `to_onnx`.
    """
    model = read_model(path)
    if uses_bfloat16(model.graph):
        return onnx_bytes(widened(model, rounds=rounds))
    with Path(path).open("rb") as file:
        if file_format(file.read(HEAD_BYTES)) is not FileFormat.TFLITE:
            return str(path)
    return onnx_bytes(model)


def onnx_bytes(model: onnx.ModelProto) -> bytes:
    """Return the bytes of an ONNX file.

    Raises:
        InvalidModelError: too-large: protobuf ends at 2 GiB.
    """
    try:
        data: bytes = model.SerializeToString()
    except (ValueError, RuntimeError) as error:  # protobuf's EncodeError is a ValueError
        raise InvalidModelError(
            "as ONNX the model would exceed protobuf's limit of 2 GiB", code="too-large"
        ) from error
    return data
