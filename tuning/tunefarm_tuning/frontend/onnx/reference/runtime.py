"""Load a network in ONNX Runtime and run it, as a reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.core.untrusted_text import clean_message

Arrays = list[NDArray[Any]]


def new_session(
    source: str | bytes, threads: int, *, optimised: bool, timed: bool = False
) -> onnxruntime.InferenceSession:
    """Load a network, perhaps to be timed; the errors are ONNX Runtime's own."""
    options = onnxruntime.SessionOptions()
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimised else levels.ORT_DISABLE_ALL
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    # Otherwise the file's name can make ONNX Runtime read its own format.
    options.add_session_config_entry("session.load_model_format", "ONNX")
    if not timed:  # threads that wait would take the processor from the compiler
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def open_session(
    source: str | bytes, threads: int, *, optimised: bool, timed: bool = False
) -> onnxruntime.InferenceSession:
    """Load a network.

    Raises:
        InvalidModelError: reference-failed.
    """
    try:
        return new_session(source, threads, optimised=optimised, timed=timed)
    except MemoryError:
        raise
    except Exception as error:
        raise failed("load", error) from error


def run_session(
    session: onnxruntime.InferenceSession, names: Sequence[str], arrays: Sequence[NDArray[Any]]
) -> Arrays:
    """Run a network on arrays by the names of its inputs.

    Raises:
        InvalidModelError: reference-failed.
    """
    try:
        outputs = session.run(None, dict(zip(names, arrays, strict=True)))
    except MemoryError:
        raise
    except Exception as error:
        raise failed("run", error) from error
    return [np.asarray(output) for output in outputs]


def failed(action: str, error: Exception) -> InvalidModelError:
    """Return the error of a network that ONNX Runtime cannot load or run."""
    reason = clean_message(error)
    return InvalidModelError(
        f"ONNX Runtime cannot {action} the model, so its results cannot be checked: {reason}",
        code="reference-failed",
    )
