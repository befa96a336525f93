"""What a GPU's device does for a session beside running kernels: it times others with a network, and runs a whole artifact.

Each in a child process of the session's, so that a fault there ends neither. It may be on another machine than whoever asks: all that
it needs is uploaded. And the GPU is nobody else's meanwhile: a device has one session at a time, and whoever has it has the lease.
The functions are the device's; `tvm.children.run` calls them.
"""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

from tunefarm_tuning.core.errors import TunefarmError
from tunefarm_tuning.measure.gpu.baseline import GpuBaseline, not_installed
from tunefarm_tuning.process import ChildLimits, ChildProcess

NOT_INSTALLED = "tunefarm.not_installed"
TIME_OTHER = "tunefarm.time_other"
CHECK_ARTIFACT = "tunefarm.check_artifact"
"""Names under which a session finds them."""

_ARTIFACT_CHILD = "tunefarm_tuning.tvm.children.artifact"


def time_other(request: str) -> str:
    """Time one of `gpu_baseline`: ``{"kind", "model" (a file), "names", "inputs" (a file), "timeout_sec"}``, as JSON.

    Returns:
        JSON: ``{"latency"}``, or ``{"missing"}``, why there is none.
    """
    params = json.loads(request)
    baseline = GpuBaseline(
        params["kind"], Path(params["model"]), params["names"], timeout_sec=params["timeout_sec"]
    )
    with closing(baseline):
        timed = baseline.time(Path(params["inputs"]))
    return json.dumps({"missing": timed} if isinstance(timed, str) else {"latency": timed.to_json()})


def check_artifact(request: str) -> str:
    """Run an artifact: ``{"path" (a file), "sets": [{"inputs", "expected", "rounding"}], "timeout_sec"}``, as JSON.

    Returns:
        JSON: ``{"replies"}``, those of `artifact_child.check`, or ``{"error"}``: of a child that died, or the loader's.
    """
    params = json.loads(request)
    path = str(Path(params["path"]).absolute())
    # CUDA's driver reserves far more address space than it uses.
    with ChildProcess(_ARTIFACT_CHILD, limits=ChildLimits(memory_bytes=None)) as child:
        try:
            replies = [
                child.call(
                    "check",
                    {**_absolute(one), "path": path, "threads": None},
                    timeout_sec=params["timeout_sec"],
                )
                for one in params["sets"]
            ]
        except TunefarmError as error:
            return json.dumps({"error": error.to_json()})
    return json.dumps({"replies": replies})


def _absolute(one: dict[str, Any]) -> dict[str, Any]:
    files = {name: str(Path(one[name]).absolute()) for name in ("inputs", "expected")}
    return {**files, "rounding": one["rounding"]}


OFFERS = {NOT_INSTALLED: not_installed, TIME_OTHER: time_other, CHECK_ARTIFACT: check_artifact}
