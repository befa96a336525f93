"""Runs the parts of a network that ONNX Runtime computes. Needs Python 3.11, numpy and onnxruntime.

This file is also inside every artifact, for `loader.py` there.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

if __package__:
    from tunefarm_tuning.artifact.container import ArtifactError
else:  # beside this file, in the zip
    from container import ArtifactError  # type: ignore[import-not-found,no-redef]

_NOT_INSTALLED = (
    "the artifact runs a part of its network in ONNX Runtime, which is not installed: pip install onnxruntime "
    "(or: pip install 'tunefarm[hybrid]')"
)


class OnnxRuntimeParts:
    """Runs parts of a network in ONNX Runtime.

    Concurrency: any thread, and forked processes.

    Args:
        models: The ONNX model of each part.
        threads: The number of threads within an operator.
        optimised: Whether ONNX Runtime may change the graphs, which moves roundings.

    Raises:
        ArtifactError: no-onnxruntime, if it is not installed; damaged-artifact, if it cannot load a part.
    """

    def __init__(self, models: Sequence[bytes], *, threads: int, optimised: bool = True) -> None:
        # Read by ONNX Runtime as it is imported; without it, it reports its use over the network.
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
        try:
            import onnxruntime
        except ImportError as error:
            raise ArtifactError(_NOT_INSTALLED, code="no-onnxruntime") from error
        self._runtime = onnxruntime
        self._threads, self._optimised = threads, optimised
        # With several threads, sessions have thread pools, which a forked process lacks: it opens them again.
        self._models = list(models) if threads > 1 else []
        self._sessions = [self._open(number, model) for number, model in enumerate(models)]
        self._process = os.getpid()
        self._lock = threading.Lock()
        self.seconds = [0.0] * len(models)
        """Time that each part took, of all runs together."""

    def run(self, number: int, inputs: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        if self._models and self._process != os.getpid():
            self._open_again()
        session, names, shapes = self._sessions[number]
        started = time.perf_counter()
        outputs = session.run(None, dict(zip(names, inputs, strict=True)))
        self.seconds[number] += time.perf_counter() - started
        for output, shape in zip(outputs, shapes, strict=True):
            # Kernels read tensors of the shapes that they were compiled for, and would read beyond others.
            if len(output.shape) != len(shape) or any(
                isinstance(size, int) and size != given
                for given, size in zip(output.shape, shape, strict=True)
            ):
                raise ArtifactError(
                    f"part {number + 1} returned a tensor of shape {list(output.shape)}, not {shape}",
                    code="run-failed",
                )
        return [np.asarray(output) for output in outputs]

    def _open_again(self) -> None:
        with self._lock:
            if self._process != os.getpid():
                self._sessions = [self._open(number, model) for number, model in enumerate(self._models)]
                self._process = os.getpid()

    def _open(self, number: int, model: bytes) -> tuple[Any, list[str], list[list[Any]]]:
        options = self._runtime.SessionOptions()
        options.intra_op_num_threads = self._threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 4
        if not self._optimised:
            options.graph_optimization_level = self._runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
        # Otherwise its threads spin after a run, on the cores that the compiled kernels need.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.add_session_config_entry("session.load_model_format", "ONNX")
        try:
            session = self._runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        except Exception as error:
            reason = " ".join(str(error).split())
            raise ArtifactError(
                f"ONNX Runtime {self._runtime.__version__} cannot load part {number + 1}: {reason}",
                code="damaged-artifact",
            ) from error
        names = [value.name for value in session.get_inputs()]
        return session, names, [list(value.shape) for value in session.get_outputs()]
