"""Convert TFLite and StableHLO files to ONNX, and compare the results with the source's own framework.

`import_model` takes a TFLite file as it is (docs/adr/0023-tflite-files-are-read-as-onnx.md); StableHLO is converted
where the user is (docs/adr/0034-stablehlo-is-converted-by-the-user.md).
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunefarm_convert import FileFormat
from tunefarm_tuning.core.errors import InvalidInputError, InvalidModelError
from tunefarm_tuning.core.output_file import output_file
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.frontend.importing import import_model
from tunefarm_tuning.frontend.single_file import refuse_bad_paths
from tunefarm_tuning.process.model_child import ImportLimits, call_model_child
from tunefarm_tuning.process.sandbox import Access
from tunefarm_tuning.reference.comparison import BFLOAT16, compare_outputs
from tunefarm_tuning.reference.random_inputs import InputKind, random_inputs
from tunefarm_tuning.reference.single_run import run_in_onnxruntime, run_in_source, run_with_widths
from tunefarm_tuning.reference.widths import Width
from tunefarm_tuning.workload.model import Model

_CONVERSION_CHILD = "tunefarm_tuning.frontend.onnx.conversion_child"
_SEED = 0
_QUANTIZED_SHARE = 0.1
"""Largest root mean square of the difference of a quantised output, as a share of the output's own. LiteRT computes with
integers where ONNX says floats: each layer may round to the next step, and integer weights alone make LiteRT round the
activations too."""
_QUANTIZED_BYTES = 2
"""Maximum bytes of an integer that represents a real number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """A file of another format, converted to ONNX.

    Attributes:
        model: The ONNX file.
        compared: What its outputs were compared with, for people: ``"as XLA computes them"``, ``"not compared"``.
        warning: Which outputs could not be compared, and why; empty if there is nothing to warn of.
    """

    model: Model
    compared: str
    warning: str = ""


def import_tflite(file: Path | str, path: Path | str, *, limits: ImportLimits | None = None) -> Model:
    """Convert a TFLite file to an ONNX file, and describe it.

    If LiteRT is installed (``pip install ai-edge-litert``), both are run on random inputs and must agree. A quantised
    network's outputs of wide integers and booleans are not compared, with a warning, since a legal rounding difference
    can change an index.

    Args:
        file: The TFLite file.
        path: Path of the ONNX file. An existing file is replaced only on success.
        limits: As for `import_model`.

    Raises:
        InvalidModelError: With code not-tflite, invalid-tflite, conversion-differs, or a code of `import_model`.
        InvalidInputError: If there is no such file (code no-such-file), or ``path`` cannot be written (cannot-write)
            or is the TFLite file (same-file).
    """
    return _with_warning(convert_tflite(file, path, limits=limits))


def import_stablehlo(program: Any, path: Path | str, *, limits: ImportLimits | None = None) -> Model:
    """Convert a StableHLO program to an ONNX file, and describe it.

    Both are run on random inputs, the program by XLA, and must agree. If XLA cannot run it, a warning says why.

    Args:
        program: A file: MLIR's text, StableHLO's portable bytecode, or what ``jax.export.Exported.serialize``
            returned. Or an ``Exported`` itself.
        path: Path of the ONNX file. An existing file is replaced only on success.
        limits: As for `import_model`.

    Raises:
        InvalidModelError: With code not-stablehlo, invalid-stablehlo, unsupported-operator, unsupported-dtype,
            unknown-dimension, zero-size, conversion-differs, or a code of `import_model`.
        InvalidInputError: If jaxlib is not installed (code not-installed), there is no such file (no-such-file), or
            ``path`` cannot be written (cannot-write) or is the StableHLO file (same-file).
    """
    return _with_warning(convert_stablehlo(program, path, limits=limits))


def convert_tflite(file: Path | str, path: Path | str, *, limits: ImportLimits | None = None) -> Conversion:
    """Do the same as `import_tflite`, and return which outputs were compared."""
    return _convert(Path(file), Path(path), FileFormat.TFLITE, limits or ImportLimits())


def convert_stablehlo(program: Any, path: Path | str, *, limits: ImportLimits | None = None) -> Conversion:
    """Do the same as `import_stablehlo`, and return which outputs were compared."""
    limits = limits or ImportLimits()
    if isinstance(program, Path | str):
        return _convert(Path(program), Path(path), FileFormat.STABLEHLO, limits)
    data = getattr(program, "mlir_module_serialized", None)
    if not isinstance(data, bytes):
        raise InvalidInputError(
            f"a {type(program).__name__} is not a StableHLO program: pass a file, or the result of "
            "jax.export.export(...)(...)",
            code="not-stablehlo",
        )
    with tempfile.TemporaryDirectory(prefix="tunefarm-") as folder:
        file = Path(folder, "program.mlirbc")
        file.write_bytes(data)
        return _convert(file, Path(path), FileFormat.STABLEHLO, limits)


def conversion_differs(framework: str, difference: str, **fields: str) -> InvalidModelError:
    """Return the error for an ONNX file whose results differ from the source's."""
    return InvalidModelError(
        f"the ONNX file computes different results than {framework}: {difference}",
        code="conversion-differs",
        **fields,
    )


def check_outputs(
    model: Model,
    results: Sequence[NDArray[Any]],
    expected: Sequence[NDArray[Any]],
    framework: str,
    *,
    rounding: str = "float32",
    widths: Sequence[Width | None] | None = None,
) -> None:
    """Compare a converted model's results with those of its original framework.

    Raises:
        InvalidModelError: conversion-differs.
    """
    names = [spec.name for spec in model.outputs]
    for comparison in compare_outputs(names, results, expected, rounding=rounding, widths=widths):
        if not comparison.ok:
            name = clean(comparison.name)
            raise conversion_differs(framework, f"output {name!r}: {comparison.message}", output=name)


def _with_warning(conversion: Conversion) -> Model:
    if conversion.warning:
        warnings.warn(conversion.warning, stacklevel=3)
    return conversion.model


def _convert(file: Path, path: Path, source: FileFormat, limits: ImportLimits) -> Conversion:
    """Write the ONNX file, import it, and compare it with its source; `path` changes only if all of that succeeds."""
    refuse_bad_paths(file, path)
    if source is FileFormat.STABLEHLO:
        _require_jaxlib()
    with output_file(path) as temporary:
        params = {
            "path": str(file.absolute()),
            "format": source.value,
            "to": str(temporary),
            "name": str(path),
        }
        properties = call_model_child(
            "import",
            "converting the model",
            _CONVERSION_CHILD,
            "convert_file",
            params,
            limits,
            Access(reads=(file,), writes=(temporary,)),
        )
        model = import_model(temporary, limits=limits)
        if properties["states"]:
            # LiteRT's state cannot be set from outside.
            conversion = Conversion(model=model, compared="not compared: LiteRT keeps the state itself")
        elif source is FileFormat.TFLITE:
            conversion = _compared_with_litert(file, model, limits, quantized=properties["quantized"])
        else:
            conversion = _compared_with_xla(file, model, limits, bfloat16=properties["bfloat16"])
    return replace(conversion, model=replace(model, path=path))


def _require_jaxlib() -> None:
    if find_spec("jaxlib") is None:
        raise InvalidInputError(
            "jaxlib is not installed, but needed for StableHLO programs: pip install 'tunefarm[stablehlo]'",
            code="not-installed",
            missing=["jaxlib"],
        )


def _compared_with_xla(file: Path, model: Model, limits: ImportLimits, *, bfloat16: bool) -> Conversion:
    """Compare on random inputs; if results are NaN (roots, logarithms), again on positive inputs."""
    for kind in (InputKind.NORMAL, InputKind.POSITIVE):
        inputs = random_inputs(model.inputs, seed=_SEED, kind=kind)
        results = run_in_onnxruntime(model, inputs, limits)
        try:
            expected = run_in_source(file, FileFormat.STABLEHLO, inputs, limits)
        except InvalidModelError as error:
            return _not_compared(model, "XLA", error)
        if not any(array.dtype.kind == "f" and np.isnan(array).any() for array in (*results, *expected)):
            break
    check_outputs(model, results, expected, "XLA", rounding=BFLOAT16 if bfloat16 else "float32")
    return Conversion(model=model, compared="as XLA computes them")


def _not_compared(model: Model, program: str, error: InvalidModelError) -> Conversion:
    return Conversion(
        model=model, compared="not compared", warning=f"not compared with {program}: {error.message}"
    )


def _compared_with_litert(file: Path, model: Model, limits: ImportLimits, *, quantized: bool) -> Conversion:
    """Compare on random inputs, if LiteRT is installed."""
    if find_spec("ai_edge_litert") is None:
        return Conversion(model=model, compared="not compared: no ai-edge-litert")
    inputs = random_inputs(model.inputs, seed=_SEED)
    try:
        expected = run_in_source(file, FileFormat.TFLITE, inputs, limits)
    except (
        InvalidModelError
    ) as error:  # custom operators: MediaPipe's are converted here, and LiteRT lacks them
        return _not_compared(model, "LiteRT", error)
    results = run_in_onnxruntime(model, inputs, limits)
    skipped = check_litert_outputs(model, inputs, results, expected, limits, quantized=quantized)
    if not skipped:
        return Conversion(model=model, compared="as LiteRT computes them")
    return Conversion(
        model=model,
        compared=f"{len(model.outputs) - len(skipped)} of them as LiteRT computes them",
        warning=f"not compared with LiteRT: {', '.join(clean(name) for name in skipped)} (integers or booleans that "
        "a quantised network computes by comparing numbers: they may differ if LiteRT rounds one of these "
        "differently)",
    )


def check_litert_outputs(
    model: Model,
    inputs: Sequence[NDArray[Any]],
    results: list[NDArray[Any]],
    expected: list[NDArray[Any]],
    limits: ImportLimits,
    *,
    quantized: bool,
) -> tuple[str, ...]:
    """Do the same as `check_tflite_outputs`, fairly to networks that enlarge rounding.

    What is off by more than the fixed tolerance may be as far from the reference in float64 as ONNX Runtime's own runs say.
    """
    try:
        return check_tflite_outputs(model, results, expected, quantized=quantized)
    except InvalidModelError:
        fair = None if quantized else run_with_widths(model, inputs, limits)
        if fair is None:
            raise
    reference, widths = fair
    check_outputs(model, expected, reference, "LiteRT", widths=widths)
    return ()


def check_tflite_outputs(
    model: Model, results: list[NDArray[Any]], expected: list[NDArray[Any]], *, quantized: bool
) -> tuple[str, ...]:
    """Compare with LiteRT's results, and return the names of the outputs that cannot be compared.

    Raises:
        InvalidModelError: conversion-differs.
    """
    if not quantized:
        check_outputs(model, results, expected, "LiteRT")
        return ()
    if not len(model.outputs) == len(results) == len(expected):
        raise conversion_differs("LiteRT", f"{len(results)} outputs, expected {len(expected)}")
    skipped = []
    names = [spec.name for spec in model.outputs]
    comparisons = compare_outputs(names, results, expected)
    for comparison, result, wanted in zip(comparisons, results, expected, strict=True):
        alike = (result.shape, result.dtype) == (wanted.shape, wanted.dtype)
        if alike and _is_index(wanted):
            skipped.append(comparison.name)
        elif not comparison.ok and not (alike and _is_near(result, wanted)):
            name = clean(comparison.name)
            raise conversion_differs("LiteRT", f"output {name!r}: {comparison.message}", output=name)
    return tuple(skipped)


def _is_index(array: NDArray[Any]) -> bool:
    """Return whether an output's integers come from comparisons, as in an argmax: then the next integer is no small error."""
    return array.dtype.kind == "b" or (array.dtype.kind in "iu" and array.dtype.itemsize > _QUANTIZED_BYTES)


def _is_near(result: NDArray[Any], wanted: NDArray[Any]) -> bool:
    a, b = result.astype(np.float64), wanted.astype(np.float64)
    if not (np.all(np.isfinite(a)) and np.all(np.isfinite(b))):
        return False
    return bool(np.sqrt(np.mean((a - b) ** 2)) <= _QUANTIZED_SHARE * np.sqrt(np.mean(b**2)) + 1e-6)
