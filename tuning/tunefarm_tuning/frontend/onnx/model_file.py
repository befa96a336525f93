"""Read a model file that has passed the checks as ONNX, whatever its format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from tunefarm_convert import FileFormat, file_format, to_onnx
from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.frontend.onnx.standard_form.form import in_standard_form


def read_model(path: Path | str, shapes: Mapping[str, Sequence[int]] | None = None) -> onnx.ModelProto:
    """Parse a model, or convert it, and bring it into the form of `in_standard_form`.

    External data is ignored: no path in the file is ever opened.

    Args:
        path: The file.
        shapes: Shapes of inputs, by name. A TFLite file becomes a model for these; an ONNX file stays as it is.

    Raises:
        InvalidModelError: not-protobuf, or a code of `to_onnx` or `in_standard_form`.
    """
    data = Path(path).read_bytes()
    if file_format(data) is FileFormat.TFLITE:
        return to_onnx(data, FileFormat.TFLITE, shapes)
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError as error:
        raise InvalidModelError(
            "the file is not an ONNX model: it cannot be parsed", code="not-protobuf"
        ) from error
    return in_standard_form(model)


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
