"""What others make of a network on the GPU, where they are installed beside it: a baseline, and never a reason to fail."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from tunefarm_tuning.core.cancellation import Cancellation
from tunefarm_tuning.core.errors import TunefarmError
from tunefarm_tuning.core.latency import Latency
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.measure.device_run import DeviceRun
from tunefarm_tuning.process import ChildClosed, ChildFailed, ChildLimits, ChildProcess
from tunefarm_tuning.workload.model import Model

_MODULE = "tunefarm_tuning.frontend.onnx.gpu_baseline_child"
ONNXRUNTIME, TORCH_COMPILE = "onnxruntime", "torch_compile"
_PACKAGES = {ONNXRUNTIME: ("onnxruntime", "onnx"), TORCH_COMPILE: ("torch", "onnx2torch")}
BUDGET_SEC = 300.0
"""Of all of them together: `torch.compile` tries kernels for minutes, and meanwhile nobody else has the GPU."""
_SHARE = 0.25
_PACKING_SEC = 60.0
"""They get this share of what is left of the compile beside this: the artifact is packed and run once more after them."""
_LEAST_SEC = 5.0
"""Less is not begun: an interpreter has to start, and to import them."""
_ANSWER_SHARE, _ANSWER_SEC = 0.25, 30.0
"""A device is told to be done by so much earlier than it is waited for: files have to get there, and its answer here."""
_SAMPLES = 9
_SAMPLE_SEC = 0.05
_MAX_CALLS = 1000


def not_installed(kind: str) -> str:
    """Return what this machine lacks for one of them, in words; empty where it is worth a try."""
    missing = [name for name in _PACKAGES[kind] if importlib.util.find_spec(name) is None]
    return f"{' and '.join(missing)} not installed" if missing else ""


def budget_sec(whole_sec: float | None, elapsed_sec: float) -> float:
    """Return what all of them together may take, in a compile that is stopped after `whole_sec`; None where nobody stops it."""
    if whole_sec is None:
        return BUDGET_SEC
    return max(0.0, min(BUDGET_SEC, _SHARE * (whole_sec - elapsed_sec - _PACKING_SEC)))


class GpuBaseline:
    """One of them with one model, on this machine.

    Concurrency: one caller; `close` from any thread.

    Args:
        kind: `ONNXRUNTIME` or `TORCH_COMPILE`.
        model: The network's file.
        names: Of its inputs.
        timeout_sec: Of all that it does.
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
        until = time.monotonic() + self._timeout_sec
        try:
            self._child.start()
            opened = self._child.call("open", params, timeout_sec=_left_sec(until))
            if opened["missing"]:
                return str(opened["missing"])
            calls = max(1, min(_MAX_CALLS, int(_SAMPLE_SEC / max(float(opened["first_sec"]), 1e-7))))
            samples = self._child.call(
                "sample", {"number": calls, "repeat": _SAMPLES}, timeout_sec=_left_sec(until)
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
    budget_sec: float,
    cancellation: Cancellation,
    runner: DeviceRun | None = None,
) -> tuple[dict[str, Latency], dict[str, str]]:
    """Time all of them; return latencies and, of the others, why there is none, both by kind.

    Args:
        model: The network.
        inputs: A file.
        why_not: Why none of them is timed; empty where they are.
        budget_sec: Of all of them, one after the other; who has none left is not begun.
        cancellation: Ends it from another thread.
        runner: Of the device that has the GPU; None where it is this machine's. What was loaded there is gone then.
    """
    found, missing = {}, {}
    names = [spec.name for spec in model.inputs]
    until = time.monotonic() + budget_sec
    for kind in (ONNXRUNTIME, TORCH_COMPILE):
        if why_not:
            missing[kind] = why_not
            continue
        if _left_sec(until) < _LEAST_SEC:
            timed: Latency | str = _no_time(budget_sec)
        elif runner is not None:
            timed = _time_on_device(runner, kind, model.path, names, inputs, until)
        else:
            baseline = GpuBaseline(kind, model.path, names, timeout_sec=_left_sec(until))
            with closing(baseline), cancellation.attach(baseline):
                timed = baseline.time(inputs)
        if isinstance(timed, str):
            missing[kind] = timed
        else:
            found[kind] = timed
    return found, missing


def _time_on_device(
    runner: DeviceRun, kind: str, model: Path, names: Sequence[str], inputs: Path, until: float
) -> Latency | str:
    """Have a device time one of them. It is in its own session: whatever it does to the GPU's memory ends with it."""
    try:
        runner.hang_up()
        runner.connect()
        left_sec = _left_sec(until)
        params = {
            "kind": kind,
            "model": str(model.absolute()),
            "names": list(names),
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


def _no_time(budget_sec: float) -> str:
    return f"no time was left for it: all others together had {budget_sec:.0f} s of this compile"
