"""Take a network through the whole way, and return what came of it as a line of the results."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.corpus.listing import Network
from benchmarks.models.run import result_of
from benchmarks.models.timing import time_network
from benchmarks.search.machine import child_environment, cores_target

from tunefarm_tuning.core.errors import InvariantError, TunefarmError
from tunefarm_tuning.process import ChildFailed, ChildLimits, ChildProcess, ChildTimedOut
from tunefarm_tuning.workload.task import TensorSpec

IMPORT_SEC = 900.0
EXTRACT_SEC = 900.0
COMPILE_SEC = 3600.0


LIBRARIES = {"openvino": "openvino", "litert": "ai_edge_litert"}
"""The runtimes that are timed if they are installed, and their modules."""


class Status(StrEnum):
    """What came of a network."""

    RIGHT = "right"  # compiled, and its outputs are those of ONNX Runtime
    WRONG = "wrong"  # compiled, and refused by the comparison
    REFUSED = "refused"  # refused with an error that names the reason
    FAILED = "failed"  # an error of ours, a crash, or out of time
    UNAVAILABLE = "unavailable"  # there is no file to try


@dataclass(frozen=True, slots=True, kw_only=True)
class WayOptions:
    """How networks are run.

    Attributes:
        threads: Of the kernels, and of each runtime.
        rounds: In each, every runtime is timed once; 0 times none.
    """

    threads: int = 1
    rounds: int = 3


def run_network(network: Network, file: Path, options: WayOptions) -> dict[str, Any]:
    """Import, extract, compile and time a network, the first three in one child process.

    Returns:
        ``status``, ``seconds`` by stage, and what the stages returned; on a failure ``stage``, ``code``, ``message``.
    """
    line: dict[str, Any] = {"status": Status.RIGHT.value, "seconds": {}}
    target = cores_target(options.threads).key
    child = ChildProcess(
        "benchmarks.corpus.network_child",
        limits=ChildLimits(memory_bytes=None),
        access=None,
        env=child_environment(options.threads),
    )
    with closing(child), tempfile.TemporaryDirectory(prefix="tunefarm-corpus-") as scratch:
        artifact = Path(scratch, "network.tunefarm")
        way = _Way(child, line)
        try:
            line |= way.take("import", "import_network", import_params(network, file), IMPORT_SEC)
            line["tasks"] = way.take("extract", "extract", {"target": target}, EXTRACT_SEC)
            params = {"target": target, "path": str(artifact)}
            line |= way.take("compile", "compile_untuned", params, COMPILE_SEC)
            if options.rounds:
                line |= way.timed(lambda: _time(network, file, artifact, line["inputs"], child, options))
        except TunefarmError as error:
            line |= {"status": status_of(error).value, "code": error.code, "message": error.message}
            if isinstance(error, ChildFailed) and error.detail:
                line["detail"] = error.detail
    return line


def status_of(error: TunefarmError) -> Status:
    """Return what an error says of a network."""
    if isinstance(error, InvariantError | ChildFailed):
        return Status.FAILED
    return Status.WRONG if error.code == "wrong-output" else Status.REFUSED


class _Way:
    """The stages of a network; the line always says which one is the last begun, and how long each took."""

    def __init__(self, child: ChildProcess, line: dict[str, Any]) -> None:
        self._child = child
        self._line = line

    def take(self, stage: str, method: str, params: Mapping[str, Any], timeout_sec: float) -> Any:
        self._line["stage"] = stage
        began = time.monotonic()
        try:
            return self._child.call(method, params, timeout_sec=timeout_sec)
        except ChildTimedOut as error:
            raise ChildTimedOut(f"no end after {timeout_sec:g} s", code="out-of-time") from error
        finally:
            self._line["seconds"][stage] = round(time.monotonic() - began, 2)

    def timed(self, measure: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
        """Return the timings; the network is right without them, too."""
        began = time.monotonic()
        try:
            return measure()
        except TunefarmError as error:
            return {"not_timed": error.message}
        finally:
            self._line["seconds"]["time"] = round(time.monotonic() - began, 2)


def import_params(network: Network, file: Path) -> dict[str, Any]:
    """Return the parameters of the child's import."""
    shapes = network.shapes
    if network.is_architecture:
        shapes = {}  # exported with it
    return {"path": str(file), "shapes": shapes, "values": dict(network.values)}


def _time(
    network: Network,
    file: Path,
    artifact: Path,
    inputs: list[dict[str, Any]],
    child: ChildProcess,
    options: WayOptions,
) -> dict[str, Any]:
    """Time the artifact beside the runtimes that are installed. ONNX Runtime runs a TFLite file as the equivalent ONNX model."""
    files = {"artifact": artifact, "onnxruntime": file, "openvino": file}
    left_out = {"litert": "reads TFLite files only"}
    if network.suffix == ".tflite":
        files |= {"onnxruntime": artifact.with_name("network.onnx"), "litert": file}
        params = {"path": str(file), "to": str(files["onnxruntime"])}
        child.call("convert", params, timeout_sec=IMPORT_SEC)
        left_out = {}
    for kind, library in LIBRARIES.items():
        if kind in files and find_spec(library) is None:
            left_out[kind] = "not installed"
            del files[kind]
    timing = time_network(
        files,
        [TensorSpec.from_json(spec) for spec in inputs],
        threads=options.threads,
        folder=artifact.parent,
        rounds=options.rounds,
        left_out=left_out,
        constants={name: constant_array(value) for name, value in network.values.items()},
    )
    return result_of(timing)


def constant_array(value: float) -> np.ndarray:
    """Return the array of a value that the corpus binds an input to."""
    return np.asarray(value, dtype=np.float32 if isinstance(value, float) else None)
