"""Reading a model file that has passed the checks."""

from __future__ import annotations

from pathlib import Path

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from tunefarm_tuning.errors import InvalidModelError


def read_model(path: Path | str) -> onnx.ModelProto:
    """Parse a model. External data is not looked at: no path of the file's own is ever opened.

    Raises:
        InvalidModelError: not-protobuf.
    """
    model = onnx.ModelProto()
    try:
        model.ParseFromString(Path(path).read_bytes())
    except DecodeError as error:
        raise InvalidModelError(
            "the file is not an ONNX model: it does not parse as one", code="not-protobuf"
        ) from error
    return model
