"""Baselines on a GPU: times a network with ONNX Runtime and torch.compile, if installed. A baseline never fails a compile."""

from __future__ import annotations

import importlib.util
import time
from contextlib import closing
from pathlib import Path

from tunefarm_tuning.core.cancellation import Cancellation
from tunefarm_tuning.core.errors import TunefarmError
from tunefarm_tuning.core.latency import Latency
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.measure.device_run import DeviceRun
from tunefarm_tuning.measure.timing_blocks import inferences_of_sample
from tunefarm_tuning.process import ChildClosed, ChildFailed, ChildLimits, ChildProcess
from tunefarm_tuning.workload.binding import Binding
from tunefarm_tuning.workload.model import Model

_MODULE = "tunefarm_tuning.frontend.onnx.gpu_baseline_child"
ONNXRUNTIME, TORCH_COMPILE = "onnxruntime", "torch_compile"
_PACKAGES = {ONNXRUNTIME: ("onnxruntime", "onnx"), TORCH_COMPILE: ("torch", "onnx2torch")}
BUDGET_SEC = 300.0
"""Time budget of all baselines: `torch.compile` tries kernels for minutes, and meanwhile nobody else can use the GPU."""
_SHARE = 0.25
_PACKING_SEC = 60.0
"""Baselines get a share of the compile's remaining time, after this is set aside for packing and checking the artifact."""
_MIN_SEC = 5.0
"""With less time left, a baseline is not started: an interpreter must start and import it."""
_ANSWER_SHARE, _ANSWER_SEC = 0.25, 30.0
"""A device's time limit is shorter than the caller's by this much: files travel to the device, and its answer back."""
_SAMPLES = 9
_MAX_CALLS = 1000


def not_installed(kind: str) -> str:
    """Return which packages of a baseline are not installed on this machine, in words; empty if all are."""
    missing = [name for name in _PACKAGES[kind] if importlib.util.find_spec(name) is None]
    return f"{' and '.join(missing)} not installed" if missing else ""


def budget_sec(whole_sec: float | None, elapsed_sec: float) -> float:
    """Return the time budget of all baselines, in a compile that is stopped after `whole_sec` (None: never) from its begin."""
    if whole_sec is None:
        return BUDGET_SEC
    return max(0.0, min(BUDGET_SEC, _SHARE * (whole_sec - elapsed_sec - _PACKING_SEC)))


class GpuBaseline:
    """Times one baseline (`ONNXRUNTIME` or `TORCH_COMPILE`) with one model on this machine, in a child process.

    Concurrency: one caller; `close` from any thread.
    `timeout_sec` limits all calls together.
    """

    def __init__(self, kind: str, model: Path, binding: Binding, *, timeout_sec: float) -> None:
        self._kind = kind
        self._model = model
        self._binding = binding
        self._timeout_sec = timeout_sec
        # CUDA's driver reserves far more address space than it uses. torch.compile writes and runs what it likes, so that there is
        # no sandbox here.
        self._child = ChildProcess(_MODULE, limits=ChildLimits(memory_bytes=None), access=None)

    def time(self, inputs: Path) -> Latency | str:
        """Return the latency on a file of arrays, one for each input, or a text that says why there is none."""
        if missing := not_installed(self._kind):
            return missing
        params = {
            "kind": self._kind,
            "path": str(self._model.absolute()),
            "binding": self._binding.to_json(),
            "feeds": str(inputs.absolute()),
        }
        until = time.monotonic() + self._timeout_sec
        try:
            self._child.start()
            opened = self._child.call("open", params, timeout_sec=_left_sec(until))
            if opened["missing"]:
                return str(opened["missing"])
            calls = inferences_of_sample(float(opened["first_sec"]), _MAX_CALLS)
            samples = self._child.call(
                "sample", {"number": calls, "repeat": _SAMPLES}, timeout_sec=_left_sec(until)
            )
        except ChildClosed:
            raise
        except (ChildFailed, TunefarmError) as error:
            return f"it does not run here: {clean(error.message, 200)}"
        return Latency.of(samples, 1, [calls] * _SAMPLES)

    def close(self) -> None:
        """End the child; a running call then raises `ChildClosed`."""
        self._child.close()


def time_baselines(
    model: Model,
    inputs: Path,
    why_not: str,
    budget_sec: float,
    cancellation: Cancellation,
    runner: DeviceRun | None = None,
) -> tuple[dict[str, Latency], dict[str, str]]:
    """Time all baselines, one after the other.

    Args:
        model: The network.
        inputs: A file of arrays, one for each input.
        why_not: Why no baseline is timed; empty if they are.
        budget_sec: Time budget of all baselines; a baseline for which too little is left is not started.
        cancellation: Ends the call from another thread.
        runner: Reaches the device that has the GPU; None if it is this machine's. Its session is renewed.

    Returns:
        Latencies by kind, and why the others have none, by kind.
    """
    latencies, missing = {}, {}
    until = time.monotonic() + budget_sec
    for kind in (ONNXRUNTIME, TORCH_COMPILE):
        if why_not:
            missing[kind] = why_not
            continue
        if _left_sec(until) < _MIN_SEC:
            timed: Latency | str = (
                f"no time was left for it: all others together had {budget_sec:.0f} s of this compile"
            )
        elif runner is not None:
            timed = _time_on_device(runner, kind, model, inputs, until)
        else:
            baseline = GpuBaseline(kind, model.path, model.binding, timeout_sec=_left_sec(until))
            with closing(baseline), cancellation.attach(baseline):
                timed = baseline.time(inputs)
        if isinstance(timed, str):
            missing[kind] = timed
        else:
            latencies[kind] = timed
    return latencies, missing


def _time_on_device(runner: DeviceRun, kind: str, model: Model, inputs: Path, until: float) -> Latency | str:
    """Time a baseline on a device, in its own session, whose end frees the GPU's memory."""
    try:
        runner.hang_up()
        runner.allow(model.path, inputs)
        runner.connect()
        left_sec = _left_sec(until)
        params = {
            "kind": kind,
            "model": str(model.path.absolute()),
            "binding": model.binding.to_json(),
            "names": [spec.name for spec in model.inputs],  # what devices of the release before read
            "inputs": str(inputs.absolute()),
            "timeout_sec": left_sec - min(_ANSWER_SEC, _ANSWER_SHARE * left_sec),
        }
        reply = runner.call("time_other", params, timeout_sec=left_sec)
        runner.hang_up()
    except ChildClosed:
        raise
    except TunefarmError as error:
        return f"it does not run on the device: {clean(error.message, 200)}"
    return Latency.from_json(reply["latency"]) if "latency" in reply else str(reply["missing"])


def _left_sec(until: float) -> float:
    return round(max(0.1, until - time.monotonic()), 1)
