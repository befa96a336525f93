"""Run a TFLite file in LiteRT, TFLite's own interpreter, if its package is installed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.core.untrusted_text import clean_message


def run(path: Path, inputs: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """Run a TFLite file once.

    Raises:
        InvalidModelError: reference-failed.
    """
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    try:
        # Without delegates: their kernels for some processors round differently.
        interpreter = Interpreter(
            model_path=str(path),
            experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
        )
        for details, array in zip(interpreter.get_input_details(), inputs, strict=True):
            if tuple(details["shape"]) != array.shape:
                interpreter.resize_tensor_input(details["index"], array.shape)
        interpreter.allocate_tensors()
        for details, array in zip(interpreter.get_input_details(), inputs, strict=True):
            interpreter.set_tensor(details["index"], array)
        interpreter.invoke()
        return [interpreter.get_tensor(details["index"]) for details in interpreter.get_output_details()]
    except MemoryError:
        raise
    except Exception as error:
        raise InvalidModelError(
            f"LiteRT cannot run the model: {clean_message(error)}", code="reference-failed"
        ) from error
