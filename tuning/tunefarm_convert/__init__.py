"""Model files: recognise their format, and convert TFLite and StableHLO to ONNX.

This is the package's only entry point; an import contract keeps others out of its modules. Importing it is cheap, and
safe in any process. `to_onnx` and `run_in_source` parse a stranger's bytes with libraries that may crash over them
(onnx, MLIR, XLA, LiteRT): call them in child processes only.

Another format takes a signature in `signatures`, a converter package beside `tflite` and `stablehlo`, and a line in
each of the two functions below.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tunefarm_convert.signatures import (
    HEAD_BYTES,
    FileFormat,
    check_file,
    check_head,
    check_onnx_bytes,
    file_format,
    file_format_of,
)
from tunefarm_tuning.core.errors import InvalidModelError, InvariantError

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

__all__ = [
    "HEAD_BYTES", "FileFormat", "check_file", "check_head", "check_onnx_bytes", "file_format", "file_format_of",
    "inputs_alone", "run_in_source", "to_onnx",
]  # fmt: skip


def to_onnx(
    data: bytes,
    source: FileFormat,
    shapes: Mapping[str, Sequence[int]] | None = None,
    *,
    needs_sizes: bool = False,
) -> onnx.ModelProto:
    """Convert a TFLite or StableHLO file to ONNX. Equal bytes give equal models.

    Inputs and outputs keep their order, shapes and dtypes. What the conversion needs is loaded for such files alone.

    Args:
        data: The file.
        source: Its format.
        shapes: Of a TFLite file: shapes of inputs by name, where they are not the file's.
        needs_sizes: Of a TFLite file: whether `shapes` must have the inputs of which it leaves sizes open and says 1.

    Raises:
        InvalidModelError: not-tflite, not-stablehlo; invalid-tflite, invalid-stablehlo, truncated-model,
            unsupported-operator, unsupported-dtype, unknown-dimension, bad-shape, zero-size, too-large.
    """
    if source is FileFormat.TFLITE:
        from tunefarm_convert.tflite import convert as tflite

        if file_format(data) is not FileFormat.TFLITE:
            raise InvalidModelError("the file does not begin like a TFLite file", code="not-tflite")
        return tflite.convert(data, shapes, needs_sizes=needs_sizes)
    if source is FileFormat.STABLEHLO:
        from tunefarm_convert.stablehlo import convert as stablehlo

        return stablehlo.convert_file(data)
    raise InvariantError(f"no converter reads {source}")


def inputs_alone(data: bytes) -> onnx.ModelProto:
    """Return a model of a TFLite file's inputs alone, in which sizes that have to be given are open.

    Raises:
        InvalidModelError: As `to_onnx`.
    """
    from tunefarm_convert.tflite import convert as tflite

    return tflite.inputs_alone(data)


def run_in_source(path: Path, source: FileFormat, inputs: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """Return the outputs that the format's own framework computes: LiteRT's for TFLite, XLA's for StableHLO.

    The inputs are in the file's order. The framework must be installed.

    Raises:
        InvalidModelError: reference-failed, not-stablehlo, invalid-stablehlo.
    """
    if source is FileFormat.TFLITE:
        from tunefarm_convert.tflite import litert

        return litert.run(path, inputs)
    if source is FileFormat.STABLEHLO:
        from tunefarm_convert.stablehlo import xla

        return xla.run(path.read_bytes(), inputs)
    raise InvariantError(f"no framework runs {source}")
