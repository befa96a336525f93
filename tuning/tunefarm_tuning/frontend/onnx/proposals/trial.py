"""Try proposed bindings in ONNX Runtime until the network runs with one."""

from __future__ import annotations

import json
import time
from collections import deque
from pathlib import Path
from typing import Any

import onnx

from tunefarm_convert import FileFormat, file_format, inputs_alone
from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.frontend.onnx.binding import fitting_binding
from tunefarm_tuning.frontend.onnx.bound_network import bind_model, runnable_bytes
from tunefarm_tuning.frontend.onnx.model_file import read_model
from tunefarm_tuning.frontend.onnx.proposals.propose import corrections, propose, takes_images
from tunefarm_tuning.frontend.onnx.rules import check_input_sizes
from tunefarm_tuning.frontend.onnx.shape_trials import Load, run_until
from tunefarm_tuning.workload.binding import Binding

_TRIES_SEC = 30.0
"""Time budget; the network has to be a quick one, or the first guess is proposed."""
_MAX_TRIES = 80
_TRIES_OF_UNDECIDED = 24
"""Bindings that are tried in all where one fails by the values of drawn inputs, perhaps."""


def tried_binding(path: str, given: Binding, load: Load, *, max_tensor_bytes: int) -> dict[str, Any] | None:
    """Return a binding with which ONNX Runtime runs a network.

    Proposals and corrections of those that failed take turns. Of images, all proposals come first: a height that was made to fit one
    node, 28 for a line of text, may run and mean nothing.

    Args:
        path: The file.
        given: What the caller gave. What does not fit an input of the file is left out.
        load: Makes a session.
        max_tensor_bytes: Limit of an input.

    Returns:
        ``binding``, and whether it ``runs``: otherwise it is the likeliest of those that were not tried. None if there is
        no idea of one.
    """
    data = Path(path).read_bytes()
    is_tflite = file_format(data) is FileFormat.TFLITE
    file = inputs_alone(data) if is_tflite else read_model(path)
    given = fitting_binding(file.graph, given, resizable=is_tflite)
    until = time.monotonic() + _TRIES_SEC
    first: Binding | None = None
    undecided: Binding | None = None
    proposals, in_turns = propose(file, given), not takes_images(file, given)
    corrected: deque[Binding] = deque()
    tried: set[str] = set()
    while time.monotonic() < until and len(tried) < (
        _MAX_TRIES if undecided is None else _TRIES_OF_UNDECIDED
    ):
        binding = corrected.popleft() if in_turns and corrected and len(tried) % 2 else next(proposals, None)
        if binding is None and corrected:
            binding = corrected.popleft()
        if binding is None:
            break
        first = first or binding
        text = json.dumps(binding.to_json())
        if text in tried:
            continue
        tried.add(text)
        failures: list[str] = []
        try:
            network = bind_model(read_model(path, binding.shapes) if is_tflite else _copy(file), binding)
            check_input_sizes(network.inputs, max_bytes=max_tensor_bytes)
            if run_until(load(runnable_bytes(network.model)), network, until, failures):
                return {"binding": binding.to_json(), "runs": True}
            undecided = undecided or binding
        except MemoryError:
            continue
        except InvalidModelError as error:
            failures.append(error.message)
        corrected.extend(corrections(file, given, binding, failures[0]))
    if undecided is not None:
        return {"binding": undecided.to_json(), "runs": True}
    return None if first is None else {"binding": first.to_json(), "runs": False}


def _copy(model: onnx.ModelProto) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy
