"""What others make of a network on the GPU, where they are installed beside it: a baseline, and never a reason to fail."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from tunefarm_tuning.cancellation import Cancellation
from tunefarm_tuning.child import ChildClosed, ChildFailed, ChildLimits, ChildProcess
from tunefarm_tuning.device_run import DeviceRun
from tunefarm_tuning.errors import TunefarmError
from tunefarm_tuning.latency import Latency
from tunefarm_tuning.model import Model
from tunefarm_tuning.untrusted_text import clean

_MODULE = "tunefarm_tuning.onnx_side.gpu_baseline_child"
ONNXRUNTIME, TORCH_COMPILE = "onnxruntime", "torch_compile"
_PACKAGES = {ONNXRUNTIME: ("onnxruntime", "onnx"), TORCH_COMPILE: ("torch", "onnx2torch")}
_ON_DEVICE_SEC = 300.0
"""Of opening one on a device: no session there, and no step of a job, lasts for long."""
_CALL_FACTOR = 2.0
"""Beside opening it, a device has to get the files, to start an interpreter and to take samples."""
_SAMPLES = 9
_SAMPLE_SEC = 0.05
_MAX_CALLS = 1000


def not_installed(kind: str) -> str:
    """Return what this machine lacks for one of them, in words; empty where it is worth a try."""
    missing = [name for name in _PACKAGES[kind] if importlib.util.find_spec(name) is None]
    return f"{' and '.join(missing)} not installed" if missing else ""


class GpuBaseline:
    """One of them with one model, on this machine.

    Concurrency: one caller; `close` from any thread.

    Args:
        kind: `ONNXRUNTIME` or `TORCH_COMPILE`.
        model: The network's file.
        names: Of its inputs.
        timeout_sec: Of opening it; `torch.compile` tries kernels for minutes.
    """

    def __init__(self, kind: str, model: Path, names: Sequence[str], *, timeout_sec: float) -> None:
        self._kind = kind
        self._model = model
        self._names = list(names)
        self._timeout_sec = timeout_sec
        # CUDA's driver reserves far more address space than it uses.
        self._child = ChildProcess(_MODULE, limits=ChildLimits(memory_bytes=None))

    def time(self, inputs: Path) -> Latency | str:
        """Return its latency; in words why there is none.

        Args:
            inputs: A file of arrays, one for each name.
        """
        if missing := not_installed(self._kind):
            return missing
        params = {
            "kind": self._kind,
            "path": str(self._model.absolute()),
            "names": self._names,
            "feeds": str(inputs.absolute()),
        }
        try:
            opened = self._child.call("open", params, timeout_sec=self._timeout_sec)
            if opened["missing"]:
                return str(opened["missing"])
            calls = max(1, min(_MAX_CALLS, int(_SAMPLE_SEC / max(float(opened["first_sec"]), 1e-7))))
            samples = self._child.call(
                "sample", {"number": calls, "repeat": _SAMPLES}, timeout_sec=self._timeout_sec
            )
        except ChildClosed:
            raise
        except (ChildFailed, TunefarmError) as error:
            return f"it does not run here: {clean(error.message, 200)}"
        return Latency.of(samples, 1, [calls] * _SAMPLES)

    def close(self) -> None:
        """End the child; a call under way then raises `ChildClosed`."""
        self._child.close()


def time_others(
    model: Model,
    inputs: Path,
    why_not: str,
    timeout_sec: float,
    cancellation: Cancellation,
    runner: DeviceRun | None = None,
) -> tuple[dict[str, Latency], dict[str, str]]:
    """Time all of them; return latencies and, of the others, why there is none, both by kind.

    Args:
        model: The network.
        inputs: A file.
        why_not: Why none of them is timed; empty where they are.
        timeout_sec: Of opening each.
        cancellation: Ends it from another thread.
        runner: Of the device that has the GPU; None where it is this machine's. What was loaded there is gone then.
    """
    found, missing = {}, {}
    names = [spec.name for spec in model.inputs]
    for kind in (ONNXRUNTIME, TORCH_COMPILE):
        if why_not:
            missing[kind] = why_not
            continue
        if runner is not None:
            timed = _time_on_device(runner, kind, model.path, names, inputs, min(timeout_sec, _ON_DEVICE_SEC))
        else:
            baseline = GpuBaseline(kind, model.path, names, timeout_sec=timeout_sec)
            with closing(baseline), cancellation.attach(baseline):
                timed = baseline.time(inputs)
        if isinstance(timed, str):
            missing[kind] = timed
        else:
            found[kind] = timed
    return found, missing


def _time_on_device(
    runner: DeviceRun, kind: str, model: Path, names: Sequence[str], inputs: Path, timeout_sec: float
) -> Latency | str:
    """Have a device time one of them. It is in its own session: whatever it does to the GPU's memory ends with it."""
    params = {
        "kind": kind,
        "model": str(model.absolute()),
        "names": list(names),
        "inputs": str(inputs.absolute()),
        "timeout_sec": timeout_sec,
    }
    try:
        runner.hang_up()
        reply = runner.call("time_other", params, timeout_sec=_CALL_FACTOR * timeout_sec)
        runner.hang_up()
    except ChildClosed:
        raise
    except TunefarmError as error:
        return f"it does not run on the device: {clean(error.message, 200)}"
    return Latency.from_json(reply["latency"]) if "latency" in reply else str(reply["missing"])
