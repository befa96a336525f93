"""Child process: write a StableHLO file as ONNX, and run one in XLA. The one place where MLIR and XLA are loaded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tunefarm_convert.stablehlo.convert import convert
from tunefarm_convert.stablehlo.file_form import module_bytes
from tunefarm_convert.stablehlo.operators.control import is_harmless
from tunefarm_convert.stablehlo.program import Program, bad_program
from tunefarm_convert.stablehlo.reading import custom_calls, parse_module, read_program
from tunefarm_tuning.core.array_file import load_arrays, save_arrays
from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.core.output_file import writing
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.frontend.onnx.bfloat16 import uses_bfloat16
from tunefarm_tuning.frontend.onnx.model_file import onnx_bytes


def convert_file(params: dict[str, Any]) -> dict[str, Any]:
    """Convert ``path`` into the file ``to``; errors say ``name`` for that.

    Returns:
        ``bfloat16``: whether it computes in that.

    Raises:
        InvalidModelError: not-stablehlo, or a code of `tunefarm_convert.stablehlo.convert`.
        InvalidInputError: cannot-write.
    """
    model = convert(_program(parse_module(module_bytes(Path(params["path"]).read_bytes()))))
    found = onnx_bytes(model)
    with writing(params["name"]):
        Path(params["to"]).write_bytes(found)
    return {"bfloat16": uses_bfloat16(model.graph)}


def _program(module: Any) -> Program:
    """Return what a parsed module says; a damaged file can parse, and hold texts and numbers that are none."""
    try:
        return read_program(module)
    except (MemoryError, RecursionError, InvalidModelError):
        raise
    except Exception as error:
        reason = clean(" ".join(str(error).split()) or type(error).__name__, 300)
        raise bad_program(f"the file is probably damaged ({reason}); export it again") from error


def run_once(params: dict[str, Any]) -> None:
    """Run a file on inputs: ``{"path", "feeds", "outputs"}``, the last two being files of arrays.

    Not one that names a function of the process's, be it in a part that the conversion never looked at: XLA would call it.

    Raises:
        InvalidModelError: ``"reference-failed"``.
    """
    from tunefarm_convert.stablehlo.xla import run

    module = parse_module(module_bytes(Path(params["path"]).read_bytes()))
    foreign = sorted(one for one in custom_calls(module) if not is_harmless(one))
    if foreign:
        raise InvalidModelError(
            f"it names functions that are not in the file, which XLA would call: {clean(', '.join(foreign), 300)}",
            code="reference-failed",
        )
    try:
        outputs = run(module, load_arrays(Path(params["feeds"])))
    except MemoryError:
        raise
    except Exception as error:
        raise InvalidModelError(
            f"XLA cannot run the program: {clean(' '.join(str(error).split()), 300)}", code="reference-failed"
        ) from error
    save_arrays(Path(params["outputs"]), outputs)


HANDLERS: dict[str, Callable[[dict[str, Any]], Any]] = {"convert_file": convert_file, "run_once": run_once}
