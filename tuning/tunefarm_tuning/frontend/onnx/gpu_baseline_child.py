"""Child process: run a network on this machine's GPU in ONNX Runtime (CUDA) or `torch.compile`.

Handlers: `open` first, which says what is missing, if anything; `sample` then returns seconds per inference,
inputs and outputs on the GPU. A sample's inferences are sent off one after the other and the GPU is waited for once, after
the last, as TVM's timer does with an artifact's: else each would pay for a wait that an artifact's does not. Neither package is
one of tunefarm's: the installed one is used.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Mapping
from typing import Any

import onnx
from numpy.typing import NDArray

from tunefarm_tuning.core.array_file import load_arrays
from tunefarm_tuning.core.errors import InvariantError
from tunefarm_tuning.frontend.onnx.bound_network import bound_network, runnable_bytes
from tunefarm_tuning.workload.binding import Binding

Arrays = Mapping[str, NDArray[Any]]
Run = Callable[[int], None]
"""Starts a number of inferences, then waits until the GPU has done all."""
_run: Run | None = None


def open_(params: dict[str, Any]) -> dict[str, Any]:
    """Open one: ``{"kind" ("onnxruntime" or "torch_compile"), "path", "binding", "feeds" (a file)}``.

    Returns:
        ``missing``: a text that says why there is none; empty if it runs. ``first_sec``: how long an inference takes, roughly.
    """
    global _run
    network = bound_network(params["path"], Binding.from_json(params["binding"]))
    names = [spec.name for spec in network.inputs]
    feeds = dict(zip(names, load_arrays(params["feeds"]), strict=True))
    baseline = {"onnxruntime": _onnxruntime, "torch_compile": _torch_compile}[params["kind"]](
        network.model, feeds
    )
    if isinstance(baseline, str):
        return {"missing": baseline, "first_sec": 0.0}
    _run = baseline
    _run(1)
    return {"missing": "", "first_sec": sample({"number": 1, "repeat": 1})[0]}


def sample(params: dict[str, Any]) -> list[float]:
    """Return seconds per inference: ``{"number", "repeat"}``."""
    if _run is None:
        raise InvariantError("no model is open")
    _run(1)
    samples = []
    for _ in range(params["repeat"]):
        began = time.perf_counter()
        _run(params["number"])
        samples.append((time.perf_counter() - began) / params["number"])
    return samples


def _onnxruntime(model: onnx.ModelProto, feeds: Arrays) -> Run | str:
    import onnxruntime

    provider = "CUDAExecutionProvider"
    if provider not in onnxruntime.get_available_providers():
        return "the installed ONNX Runtime has no CUDA provider (install onnxruntime-gpu)"
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.add_session_config_entry("session.load_model_format", "ONNX")
    session = onnxruntime.InferenceSession(
        runnable_bytes(model, rounds=False), options, providers=[provider, "CPUExecutionProvider"]
    )
    if provider not in session.get_providers():  # it is left out without an error if a library is missing
        return "ONNX Runtime's CUDA provider does not start here"
    binding = session.io_binding()
    for name, array in feeds.items():
        binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(array, "cuda", 0))
    for output in session.get_outputs():
        binding.bind_output(output.name, "cuda")

    ahead = onnxruntime.RunOptions()
    ahead.add_run_config_entry("disable_synchronize_execution_providers", "1")

    def run(number: int) -> None:
        for _ in range(number - 1):
            session.run_with_iobinding(binding, ahead)
        session.run_with_iobinding(binding)  # waits for its stream, in which the other inferences precede it
        binding.synchronize_outputs()

    return run


def _torch_compile(model: onnx.ModelProto, feeds: Arrays) -> Run | str:
    import torch

    if not torch.cuda.is_available():
        return "PyTorch sees no GPU here"
    onnx2torch: Any = importlib.import_module("onnx2torch")
    module = torch.compile(onnx2torch.convert(model).eval().cuda(), mode="max-autotune")
    inputs = [torch.from_numpy(array).cuda() for array in feeds.values()]

    def run(number: int) -> None:
        with torch.inference_mode():
            for _ in range(number):
                module(*inputs)
        torch.cuda.synchronize()

    return run


HANDLERS = {"open": open_, "sample": sample}
