"""Child process: LiteRT, TFLite's own interpreter, where its package is installed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tunefarm_tuning.core.array_file import load_arrays, save_arrays
from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.core.untrusted_text import clean


def run_once(params: dict[str, Any]) -> None:
    """Run a file on inputs: ``{"path", "feeds", "outputs"}``, the last two being files of arrays.

    Raises:
        InvalidModelError: ``"reference-failed"``.
    """
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    try:
        # Without delegates: their kernels for some processors round otherwise.
        interpreter = Interpreter(
            model_path=params["path"],
            experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
        )
        interpreter.allocate_tensors()
        for place, array in zip(
            interpreter.get_input_details(), load_arrays(Path(params["feeds"])), strict=True
        ):
            interpreter.set_tensor(place["index"], array)
        interpreter.invoke()
        outputs = [interpreter.get_tensor(place["index"]) for place in interpreter.get_output_details()]
    except MemoryError:
        raise
    except Exception as error:
        raise InvalidModelError(
            f"LiteRT cannot run the model: {clean(' '.join(str(error).split()), 300)}",
            code="reference-failed",
        ) from error
    save_arrays(Path(params["outputs"]), outputs)


HANDLERS: dict[str, Callable[[dict[str, Any]], Any]] = {"run_once": run_once}
