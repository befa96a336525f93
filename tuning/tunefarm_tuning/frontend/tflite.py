"""TFLite files, written as ONNX files and compared with LiteRT: for who wants to see, or to change, what is read.

`import_model` takes a TFLite file as it is (docs/adr/0023-tflite-files-are-read-as-onnx.md).
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunefarm_convert.tflite.flatfile import is_tflite
from tunefarm_tuning.core.errors import InvalidInputError, InvalidModelError
from tunefarm_tuning.core.output_file import output_file
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.frontend.importing import import_model
from tunefarm_tuning.process.model_child import ImportLimits, call_model_child
from tunefarm_tuning.reference.comparison import compare_outputs
from tunefarm_tuning.reference.random_inputs import random_inputs
from tunefarm_tuning.reference.single_run import run_in_litert, run_in_onnxruntime
from tunefarm_tuning.workload.model import Model

_CONVERT_CHILD = "tunefarm_tuning.frontend.onnx.convert_tflite_child"
_SEED = 0
_QUANTIZED_SHARE = 0.1
"""Of an output's root mean square, which the difference's may be where LiteRT computes with integers and ONNX says
floats: each layer may round to the next step, and weights alone in integers have LiteRT round the activations too."""
_QUANTIZED_BYTES = 2
"""Of an integer that stands for a real number, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """A TFLite file, written as ONNX.

    Attributes:
        model: The ONNX file.
        skipped: The outputs that were not compared with LiteRT's: all of them where that is not installed.
    """

    model: Model
    skipped: tuple[str, ...]


def import_tflite(file: Path | str, path: Path | str, *, limits: ImportLimits | None = None) -> Model:
    """Write a TFLite file as an ONNX file, and describe that.

    Where LiteRT is installed (``pip install ai-edge-litert``), both are run on random inputs, and must agree. Of a
    quantised network's outputs those of wide integers and booleans are not compared, which a warning says: a number
    that LiteRT rounds to the next step makes another index, and that is no mistake.

    Args:
        file: The TFLite file.
        path: Where the ONNX file is written; what is there is replaced if all goes well, and stays else.
        limits: As for `import_model`.

    Raises:
        InvalidModelError: With code not-tflite, invalid-tflite, conversion-differs, or a code of `import_model`.
        InvalidInputError: If there is no such file (code no-such-file), or ``path`` cannot be written (cannot-write)
            or is the TFLite file (same-file).
    """
    made = convert_tflite_file(file, path, limits=limits)
    if made.skipped and litert_is_installed():
        warnings.warn(skipped_text(made.skipped), stacklevel=2)
    return made.model


def convert_tflite_file(
    file: Path | str, path: Path | str, *, limits: ImportLimits | None = None
) -> Conversion:
    """Do what `import_tflite` does, and tell what was compared."""
    file, path, limits = Path(file), Path(path), limits or ImportLimits()
    if not file.is_file():
        raise InvalidInputError("the model file cannot be read: there is no such file", code="no-such-file")
    if path.exists() and file.samefile(path):
        raise InvalidInputError(
            "the ONNX file would replace the TFLite file that it is made of", code="same-file"
        )
    with output_file(path) as part:
        quantized = _convert(file, part, path, limits)
        model = import_model(part, limits=limits)
        if litert_is_installed():
            inputs = random_inputs(model.inputs, seed=_SEED)
            expected = run_in_litert(file, inputs, limits)
            results = run_in_onnxruntime(model, inputs, limits)
            skipped = _compare(model, results, expected, quantized=quantized)
        else:
            skipped = tuple(spec.name for spec in model.outputs)
    return Conversion(model=replace(model, path=path), skipped=skipped)


def is_tflite_file(file: Path) -> bool:
    """Tell by its first bytes whether a file is TFLite's; one that is called so and is not, shall be told so.

    Raises:
        InvalidInputError: no-such-file.
    """
    try:
        with file.open("rb") as opened:
            return is_tflite(opened.read(8)) or file.suffix.lower() == ".tflite"
    except OSError as error:
        raise InvalidInputError(
            f"the model file cannot be read: {error.strerror or error}", code="no-such-file"
        ) from error


def skipped_text(names: Sequence[str]) -> str:
    """Say that outputs were not compared, and why."""
    return (
        f"not compared with LiteRT: {', '.join(clean(name) for name in names)} (integers or booleans that a quantised "
        "network finds by comparing numbers: they may be others where LiteRT rounds one of those to the next step)"
    )


def litert_is_installed() -> bool:
    """Tell whether `import_tflite` compares with LiteRT."""
    return find_spec("ai_edge_litert") is not None


def _convert(file: Path, part: Path, path: Path, limits: ImportLimits) -> bool:
    """Write the ONNX file that shall become ``path``, and tell whether the network is quantised."""
    params = {"path": str(file.absolute()), "to": str(part), "name": str(path)}
    found = call_model_child("import", "converting the model", _CONVERT_CHILD, "convert_file", params, limits)
    return bool(found["quantized"])


def _compare(
    model: Model, results: list[NDArray[Any]], expected: list[NDArray[Any]], *, quantized: bool
) -> tuple[str, ...]:
    """Compare with LiteRT's results, and return the names of the outputs that cannot be.

    Raises:
        InvalidModelError: conversion-differs.
    """
    names = [spec.name for spec in model.outputs]
    if not len(names) == len(results) == len(expected):
        raise _differs(f"{len(results)} outputs, expected {len(expected)}")
    skipped = []
    for one, result, wanted in zip(compare_outputs(names, results, expected), results, expected, strict=True):
        alike = (result.shape, result.dtype) == (wanted.shape, wanted.dtype)
        if quantized and alike and _is_index(wanted):
            skipped.append(one.name)
        elif not one.ok and not (quantized and alike and _is_near(result, wanted)):
            raise _differs(f"output {clean(one.name)!r}: {one.message}", output=clean(one.name))
    return tuple(skipped)


def _differs(what: str, **fields: str) -> InvalidModelError:
    return InvalidModelError(
        f"the ONNX file computes something else than LiteRT does: {what}", code="conversion-differs", **fields
    )


def _is_index(array: NDArray[Any]) -> bool:
    """Tell whether numbers are no quantised ones but found by comparing such, as an argmax: the next one is not near."""
    return array.dtype.kind == "b" or (array.dtype.kind in "iu" and array.dtype.itemsize > _QUANTIZED_BYTES)


def _is_near(result: NDArray[Any], wanted: NDArray[Any]) -> bool:
    a, b = result.astype(np.float64), wanted.astype(np.float64)
    if not (np.all(np.isfinite(a)) and np.all(np.isfinite(b))):
        return False
    return bool(np.sqrt(np.mean((a - b) ** 2)) <= _QUANTIZED_SHARE * np.sqrt(np.mean(b**2)) + 1e-6)
