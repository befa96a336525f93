"""Child process that runs models with ONNX Runtime, optimisations off; handler `run` as in `benchmarks.conformance.child`."""

from __future__ import annotations

from typing import Any

import onnxruntime
from benchmarks.conformance.compare import first_difference

from tunefarm_tuning.core.array_file import load_arrays
from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.process import Handlers


def run(params: dict[str, Any]) -> str | None:
    """Run one model; return in what its outputs differ.

    Raises:
        InvalidModelError: ONNX Runtime cannot run it.
    """
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(params["path"], options, providers=["CPUExecutionProvider"])
        feeds = zip([value.name for value in session.get_inputs()], load_arrays(params["feeds"]), strict=True)
        outputs = session.run(None, dict(feeds))
    except Exception as error:
        raise InvalidModelError(clean(" ".join(str(error).split()), 300)) from error
    return first_difference(outputs, load_arrays(params["expected"]), params["rtol"], params["atol"])


HANDLERS: Handlers = {"run": run}
