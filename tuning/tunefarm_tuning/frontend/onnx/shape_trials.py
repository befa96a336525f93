"""Run a network once in ONNX Runtime with each further set of shapes, so that a fault is found before the search is paid for."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tunefarm_convert import FileFormat, file_format
from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.frontend.onnx.binding import bind_inputs
from tunefarm_tuning.frontend.onnx.bound_network import (
    BoundNetwork,
    bind_model,
    bound_network,
    runnable_bytes,
)
from tunefarm_tuning.frontend.onnx.control_flow.flatten import has_control_flow
from tunefarm_tuning.frontend.onnx.model_file import read_model
from tunefarm_tuning.frontend.onnx.trial_run import name_nodes, run_on_drawn_inputs
from tunefarm_tuning.workload.binding import Binding

Load = Callable[[bytes], Any]
"""Makes a session of ONNX Runtime."""


def run_until(session: Any, network: BoundNetwork, until: float, failures: list[str] | None = None) -> bool:
    """Run a network on drawn inputs. It is stopped, and cannot run, when the time is over.

    Args:
        session: Of ONNX Runtime.
        network: The bound network.
        until: When the time is over.
        failures: Takes what ONNX Runtime says of each run that fails.

    Returns:
        Whether it ran; False if the values of the drawn inputs may be why it did not.

    Raises:
        InvalidModelError: As `run_on_drawn_inputs`.
    """
    import onnxruntime

    options = onnxruntime.RunOptions()
    options.log_severity_level = 4
    timer = threading.Timer(max(0.0, until - time.monotonic()), lambda: setattr(options, "terminate", True))
    timer.daemon = True

    def run(feeds: dict[str, Any]) -> object:
        try:
            return session.run(None, feeds, options)
        except Exception as error:
            if failures is not None:
                failures.append(str(error))
            raise

    timer.start()
    try:
        return run_on_drawn_inputs(run, network)
    finally:
        timer.cancel()


def run_further_shapes(path: str, bindings: Sequence[Binding], load: Load, *, budget_sec: float) -> int:
    """Run a network once with each binding, the smallest first; stop when the time is over.

    One session runs all shapes of a file that leaves them open. A file with control flow, or a TFLite file, is another network
    for each.

    Args:
        path: The file.
        bindings: They have equal values.
        load: Makes a session.
        budget_sec: No run begins later, and one that runs is stopped.

    Returns:
        The number of bindings with which it has run. It ends early where the memory does not suffice, too: another network of the
        same weights may be in it.

    Raises:
        InvalidModelError: Of the first binding with which it cannot run; the message names the shapes.
    """
    until = time.monotonic() + budget_sec
    ordered = sorted(bindings, key=_elements)
    count = 0
    try:
        run_open = _open_run(path, ordered, load, until)
        for binding in ordered:
            if time.monotonic() >= until:
                break
            try:
                if run_open is None or not run_open(binding):
                    _run_alone(path, binding, load, until)
            except InvalidModelError as error:
                if time.monotonic() >= until:
                    break
                raise with_shapes(error, binding) from error
            count += 1
    except MemoryError:
        pass  # the compile decides
    return count


def with_shapes(error: InvalidModelError, binding: Binding) -> InvalidModelError:
    """Return an error of a network in one of several sets of shapes; its message names them."""
    shapes = "; ".join(
        f"{clean(name, 60)}={','.join(map(str, shape))}" for name, shape in binding.shapes.items()
    )
    return InvalidModelError(
        f"with the shapes {clean(shapes, 300)}: {error.message}", code=error.code, **error.fields
    )


def _elements(binding: Binding) -> int:
    return sum(math.prod(shape) for shape in binding.shapes.values())


def _run_alone(path: str, binding: Binding, load: Load, until: float) -> None:
    network = bound_network(path, binding)
    if network.unresolved is not None:
        raise network.unresolved
    name_nodes(network.model)
    run_until(load(runnable_bytes(network.model)), network, until)


def _open_run(
    path: str, bindings: Sequence[Binding], load: Load, until: float
) -> Callable[[Binding], bool] | None:
    """Return what runs a binding in the session of all shapes, and says whether it did; None if there is no such session."""
    if len(bindings) < 2 or file_format(Path(path).read_bytes()) is FileFormat.TFLITE:
        return None
    model = read_model(path)
    if has_control_flow(model.graph):
        return None
    try:
        specs = {
            id(binding): bind_inputs(model.graph, binding.shapes, set(binding.values)) for binding in bindings
        }
        bind_model(model, bindings[0])
        for position, value in enumerate(model.graph.input):
            for axis, dim in enumerate(value.type.tensor_type.shape.dim):
                if len({inputs[position].shape[axis] for inputs in specs.values()}) > 1:
                    dim.ClearField("dim_value")
        del model.graph.value_info[:]
        name_nodes(model)
        session = load(runnable_bytes(model))
    except InvalidModelError:  # each by itself says why, and with which shapes
        return None

    def run(binding: Binding) -> bool:
        try:
            run_until(session, BoundNetwork(model=model, inputs=specs[id(binding)]), until)
        except InvalidModelError:
            return False
        return True

    return run
