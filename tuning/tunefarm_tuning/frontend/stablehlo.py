"""StableHLO programs, written as ONNX files and compared with what XLA computes (docs/adr/0034-stablehlo-is-converted-by-the-user.md)."""

from __future__ import annotations

import mmap
import os
import tempfile
import warnings
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunefarm_convert.stablehlo.file_form import HEAD_BYTES, is_jax_export, is_stablehlo
from tunefarm_tuning.core.errors import InvalidInputError, InvalidModelError
from tunefarm_tuning.core.output_file import output_file
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.frontend.importing import import_model
from tunefarm_tuning.process.model_child import ImportLimits, call_model_child
from tunefarm_tuning.reference.comparison import BFLOAT16, compare_outputs
from tunefarm_tuning.reference.random_inputs import InputKind, random_inputs
from tunefarm_tuning.reference.single_run import run_in_onnxruntime, run_in_xla
from tunefarm_tuning.workload.model import Model

_CONVERT_CHILD = "tunefarm_tuning.frontend.onnx.convert_stablehlo_child"
_SEED = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """A StableHLO program, written as ONNX.

    Attributes:
        model: The ONNX file.
        not_compared: Why it was not compared with what XLA computes; empty where it was.
    """

    model: Model
    not_compared: str


def import_stablehlo(program: Any, path: Path | str, *, limits: ImportLimits | None = None) -> Model:
    """Write a StableHLO program as an ONNX file, and describe that.

    Both are run on random inputs, the program by XLA, and must agree. Where XLA cannot run it, a warning says why.

    Args:
        program: A file: MLIR's text, StableHLO's portable bytecode, or what ``jax.export.Exported.serialize``
            returned. Or an ``Exported`` itself.
        path: Where the ONNX file is written; what is there is replaced if all goes well, and stays else.
        limits: As for `import_model`.

    Raises:
        InvalidModelError: With code not-stablehlo, invalid-stablehlo, unsupported-operator, unsupported-dtype,
            unknown-dimension, zero-size, conversion-differs, or a code of `import_model`.
        InvalidInputError: If jaxlib is not installed (code not-installed), there is no such file (no-such-file), or
            ``path`` cannot be written (cannot-write) or is the StableHLO file (same-file).
    """
    made = convert_stablehlo(program, path, limits=limits)
    if made.not_compared:
        warnings.warn(not_compared_text(made.not_compared), stacklevel=2)
    return made.model


def convert_stablehlo(program: Any, path: Path | str, *, limits: ImportLimits | None = None) -> Conversion:
    """Do what `import_stablehlo` does, and tell what was compared."""
    limits = limits or ImportLimits()
    if isinstance(program, Path | str):
        return _convert_file(Path(program), Path(path), limits)
    data = getattr(program, "mlir_module_serialized", None)
    if not isinstance(data, bytes):
        raise InvalidInputError(
            f"a {type(program).__name__} is no StableHLO program: give a file, or what jax.export.export(...)(...) "
            "returned",
            code="not-stablehlo",
        )
    with tempfile.TemporaryDirectory(prefix="tunefarm-") as folder:
        file = Path(folder, "program.mlirbc")
        file.write_bytes(data)
        return _convert_file(file, Path(path), limits)


def is_stablehlo_file(file: Path) -> bool:
    """Tell by its bytes and its name whether a file is StableHLO's.

    Raises:
        InvalidInputError: no-such-file.
    """
    try:
        with file.open("rb") as opened:
            if is_stablehlo(opened.read(HEAD_BYTES), file.suffix):
                return True
            if not opened.seek(0, os.SEEK_END):
                return False
            with mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return is_jax_export(data)
    except OSError as error:
        raise InvalidInputError(
            f"the model file cannot be read: {error.strerror or error}", code="no-such-file"
        ) from error


def not_compared_text(why: str) -> str:
    """Say that a conversion was not compared, and why."""
    return f"not compared with what XLA computes: {why}"


def _convert_file(file: Path, path: Path, limits: ImportLimits) -> Conversion:
    if not file.is_file():
        raise InvalidInputError("the model file cannot be read: there is no such file", code="no-such-file")
    if path.exists() and file.samefile(path):
        raise InvalidInputError(
            "the ONNX file would replace the StableHLO file that it is made of", code="same-file"
        )
    _need_jaxlib()
    with output_file(path) as part:
        rounding = _write(file, part, path, limits)
        model = import_model(part, limits=limits)
        not_compared = _compared_with_xla(file, model, rounding, limits)
    return Conversion(model=replace(model, path=path), not_compared=not_compared)


def _need_jaxlib() -> None:
    if find_spec("jaxlib") is None:
        raise InvalidInputError(
            "jaxlib is not installed, but needed for StableHLO programs: pip install 'tunefarm[stablehlo]'",
            code="not-installed",
            missing=["jaxlib"],
        )


def _write(file: Path, part: Path, path: Path, limits: ImportLimits) -> str:
    """Write the ONNX file that shall become ``path``, and return what the network computes in, for `compare_outputs`."""
    params = {"path": str(file.absolute()), "to": str(part), "name": str(path)}
    found = call_model_child("import", "converting the model", _CONVERT_CHILD, "convert_file", params, limits)
    return BFLOAT16 if found["bfloat16"] else "float32"


def _compared_with_xla(file: Path, model: Model, rounding: str, limits: ImportLimits) -> str:
    """Run both on the same inputs; return why that says nothing, or nothing where they agree.

    Where the results are no numbers (a root, a logarithm), once more on positive inputs.
    """
    for kind in (InputKind.NORMAL, InputKind.POSITIVE):
        inputs = random_inputs(model.inputs, seed=_SEED, kind=kind)
        results = run_in_onnxruntime(model, inputs, limits)
        try:
            expected = run_in_xla(file, inputs, limits)
        except InvalidModelError as error:
            return error.message
        if not any(_has_nan(one) for one in (*results, *expected)):
            break
    _compare(model, results, expected, rounding)
    return ""


def _has_nan(array: NDArray[Any]) -> bool:
    return array.dtype.kind == "f" and bool(np.isnan(array).any())


def _compare(model: Model, results: list[NDArray[Any]], expected: list[NDArray[Any]], rounding: str) -> None:
    """Compare with XLA's results.

    Raises:
        InvalidModelError: conversion-differs.
    """
    names = [spec.name for spec in model.outputs]
    for one in compare_outputs(names, results, expected, rounding=rounding):
        if not one.ok:
            raise InvalidModelError(
                f"the ONNX file computes something else than XLA does: output {clean(one.name)!r}: {one.message}",
                code="conversion-differs",
                output=clean(one.name),
            )
