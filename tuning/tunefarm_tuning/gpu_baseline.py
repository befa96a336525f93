"""What others make of a network on this machine's GPU, where they are installed: a baseline, and never a reason to fail."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from tunefarm_tuning.cancellation import Cancellation
from tunefarm_tuning.child import ChildClosed, ChildFailed, ChildLimits, ChildProcess
from tunefarm_tuning.errors import TunefarmError
from tunefarm_tuning.latency import Latency
from tunefarm_tuning.model import Model
from tunefarm_tuning.untrusted_text import clean

_MODULE = "tunefarm_tuning.onnx_side.gpu_baseline_child"
ONNXRUNTIME, TORCH_COMPILE = "onnxruntime", "torch_compile"
_SAMPLES = 9
_SAMPLE_SEC = 0.05
_MAX_CALLS = 1000


class GpuBaseline:
    """One of them with one model.

    Concurrency: one caller; `close` from any thread.

    Args:
        kind: `ONNXRUNTIME` or `TORCH_COMPILE`.
        model: The network.
        timeout_sec: Of opening it; `torch.compile` tries kernels for minutes.
    """

    def __init__(self, kind: str, model: Model, *, timeout_sec: float) -> None:
        self._kind = kind
        self._model = model
        self._timeout_sec = timeout_sec
        # CUDA's driver reserves far more address space than it uses.
        self._child = ChildProcess(_MODULE, limits=ChildLimits(memory_bytes=None))

    def time(self, inputs: Path) -> Latency | str:
        """Return its latency; in words why there is none."""
        params = {
            "kind": self._kind,
            "path": str(self._model.path.absolute()),
            "names": [spec.name for spec in self._model.inputs],
            "feeds": str(inputs),
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
    model: Model, inputs: Path, why_not: str, timeout_sec: float, cancellation: Cancellation
) -> tuple[dict[str, Latency], dict[str, str]]:
    """Time all of them; return latencies and, of the others, why there is none, both by kind.

    Args:
        model: The network.
        inputs: A file.
        why_not: Why none of them is timed; empty where they are.
        timeout_sec: Of opening each.
        cancellation: Ends it from another thread.
    """
    found, missing = {}, {}
    for kind in (ONNXRUNTIME, TORCH_COMPILE):
        if why_not:
            missing[kind] = why_not
            continue
        baseline = GpuBaseline(kind, model, timeout_sec=timeout_sec)
        with closing(baseline), cancellation.attach(baseline):
            timed = baseline.time(inputs)
        if isinstance(timed, str):
            missing[kind] = timed
        else:
            found[kind] = timed
    return found, missing
