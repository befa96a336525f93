"""Child process: ONNX Runtime, as the reference for results and as the baseline for latency.

Results are checked against it with graph optimisations off: optimised, it can itself be off by half a percent
(packed 8-bit weights). It is timed with its best settings.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

from tunefarm_tuning.core.array_file import load_arrays, save_arrays
from tunefarm_tuning.core.errors import InvalidModelError, InvariantError
from tunefarm_tuning.core.latency import wait_until_idle
from tunefarm_tuning.core.untrusted_text import clean_message
from tunefarm_tuning.frontend.onnx.bfloat16 import uses_bfloat16
from tunefarm_tuning.frontend.onnx.bound_network import BoundNetwork, bound_network, runnable_bytes
from tunefarm_tuning.reference.random_inputs import InputKind, random_inputs
from tunefarm_tuning.workload.binding import Binding
from tunefarm_tuning.workload.task import TensorSpec

_timed: tuple[onnxruntime.InferenceSession, dict[str, NDArray[Any]]] | None = None


def make_reference(params: dict[str, Any]) -> dict[str, Any]:
    """Run the model on random inputs; write inputs and outputs.

    Args:
        params: ``path``, ``binding``, ``seed``, ``threads``, and ``sets``: of ``{"kind", "inputs", "outputs"}``, the
            last two being files to write.

    Returns:
        ``outputs``: their names; ``integers``: how integer inputs were drawn: ``"random"``, ``"zero"``, ``"one"``;
        ``rounds``: whether the network rounds activations to integers; ``bfloat16``: whether it computes in bfloat16.

    Raises:
        InvalidModelError: ``"reference-failed"``: ONNX Runtime cannot run the model on such inputs.
    """
    network = _network(params)
    session = _session(network.model, params["threads"], optimised=False)
    integers = "random"
    for number, input_set in enumerate(params["sets"]):
        arrays = random_inputs(
            network.inputs, seed=params["seed"] + number, kind=InputKind(input_set["kind"])
        )
        drawn, arrays, outputs = _run_on_some(session, network.inputs, arrays)
        integers = drawn if drawn != "random" else integers
        save_arrays(Path(input_set["inputs"]), arrays)
        save_arrays(Path(input_set["outputs"]), outputs)
    graph = network.model.graph
    return {
        "outputs": [output.name for output in session.get_outputs()],
        "integers": integers,
        "rounds": rounds_values(graph),
        "bfloat16": uses_bfloat16(graph),
    }


def rounds_values(graph: onnx.GraphProto) -> bool:
    """Return whether a graph quantises activations; quantised weights do not count."""
    constants = {tensor.name for tensor in graph.initializer}
    constants |= {name for node in graph.node if node.op_type == "Constant" for name in node.output}
    return any(
        node.op_type.startswith("QLinear")
        or (node.op_type in ("QuantizeLinear", "DynamicQuantizeLinear") and node.input[0] not in constants)
        for node in graph.node
    )


def run_once(params: dict[str, Any]) -> None:
    """Run the model, optimisations off, on inputs of a file: ``{"path", "binding", "feeds", "outputs"}``, the last two being files.

    Raises:
        InvalidModelError: ``"reference-failed"``.
    """
    network = _network(params)
    session = _session(network.model, 1, optimised=False)
    save_arrays(Path(params["outputs"]), _run(session, network.inputs, load_arrays(params["feeds"])))


def _run_on_some(
    session: onnxruntime.InferenceSession, specs: Sequence[TensorSpec], arrays: list[NDArray[Any]]
) -> tuple[str, list[NDArray[Any]], list[NDArray[Any]]]:
    """Run on the arrays; if that fails, with all integers 0, then with all integers 1.

    A random index may be out of range, which 0 never is; a divisor must not be 0.
    """
    attempts = {"random": arrays}
    if any(array.dtype.kind in "iu" for array in arrays):
        for name, value in (("zero", 0), ("one", 1)):
            attempts[name] = [np.full_like(a, value) if a.dtype.kind in "iu" else a for a in arrays]
    failure: InvalidModelError | None = None
    for name, attempt in attempts.items():
        try:
            return name, attempt, _run(session, specs, attempt)
        except InvalidModelError as error:
            failure = failure or error
    assert failure is not None
    raise failure


def open_timed(params: dict[str, Any]) -> dict[str, Any]:
    """Load the model with the best settings and run it once: ``{"path", "binding", "feeds" (a file), "threads"}``.

    Returns:
        ``first_sec``: how long one inference takes after that, roughly.
    """
    global _timed
    network = _network(params)
    session = _session(network.model, params["threads"], optimised=True)
    feeds = dict(zip([spec.name for spec in network.inputs], load_arrays(params["feeds"]), strict=True))
    _timed = (session, feeds)
    session.run(None, feeds)
    started = time.perf_counter()
    session.run(None, feeds)
    first_sec = time.perf_counter() - started
    wait_until_idle()
    return {"first_sec": first_sec}


def sample(params: dict[str, Any]) -> list[float]:
    """Return seconds per inference, once its threads are idle: ``{"number", "repeat"}``."""
    if _timed is None:
        raise InvariantError("no model is open")
    session, feeds = _timed
    session.run(None, feeds)  # so that its threads sleep between our calls
    samples = []
    for _ in range(params["repeat"]):
        started = time.perf_counter()
        for _ in range(params["number"]):
            session.run(None, feeds)
        samples.append((time.perf_counter() - started) / params["number"])
    wait_until_idle()
    return samples


def _network(params: dict[str, Any]) -> BoundNetwork:
    return bound_network(params["path"], Binding.from_json(params["binding"]))


def _session(model: onnx.ModelProto, threads: int, *, optimised: bool) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimised else levels.ORT_DISABLE_ALL
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    # Otherwise the first bytes can make ONNX Runtime read its own format.
    options.add_session_config_entry("session.load_model_format", "ONNX")
    source = runnable_bytes(model, rounds=not optimised)
    try:
        return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    except MemoryError:
        raise
    except Exception as error:
        raise _failed("load", error) from error


def _run(
    session: onnxruntime.InferenceSession, specs: Sequence[TensorSpec], arrays: Sequence[NDArray[Any]]
) -> list[NDArray[Any]]:
    feeds = dict(zip([spec.name for spec in specs], arrays, strict=True))
    try:
        outputs = session.run(None, feeds)
    except MemoryError:
        raise
    except Exception as error:
        raise _failed("run", error) from error
    return [np.asarray(output) for output in outputs]


def _failed(action: str, error: Exception) -> InvalidModelError:
    reason = clean_message(error)
    return InvalidModelError(
        f"ONNX Runtime cannot {action} the model, so its results cannot be checked: {reason}",
        code="reference-failed",
    )


HANDLERS = {
    "make_reference": make_reference,
    "open_timed": open_timed,
    "run_once": run_once,
    "sample": sample,
}
