"""Functions that a device offers to a session beside running kernels; `tvm.children.run` calls them.

Every device tells what else its machine does, and which libraries it has (`WATCH_FUNCTIONS`), and times other runtimes (`BASELINE`). A GPU's device also times baselines and checks artifacts
(`FUNCTIONS`), each in a child process of the session, so that a crash ends neither. The caller may be on another machine: all
files are uploaded. Nobody else uses the GPU meanwhile, since a device has one session at a time and the caller holds the lease.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from tunefarm_tuning.artifact.onednn_library import ONEDNN, load_onednn
from tunefarm_tuning.core.errors import TunefarmError
from tunefarm_tuning.measure.gpu.baseline import GpuBaseline, not_installed
from tunefarm_tuning.measure.machine_watch import machine_state, yardstick_loop_sec
from tunefarm_tuning.process import Access, ChildLimits, ChildProcess, EarlyChild
from tunefarm_tuning.process.scratch import ScratchDir
from tunefarm_tuning.workload.binding import Binding

NOT_INSTALLED = "tunefarm.not_installed"
TIME_OTHER = "tunefarm.time_other"
CHECK_ARTIFACT = "tunefarm.check_artifact"
MACHINE_STATE = "tunefarm.machine_state"
YARDSTICK_LOOP = "tunefarm.reference_loop"  # the name under which agents of earlier releases offer it
BASELINE = "tunefarm.baseline"
LIBRARIES = "tunefarm.libraries"
RECEIVE_FILE = "tunefarm.receive_file"
"""The names under which a session calls them; older devices know the same names."""

ARRAY_FILES = ("inputs", "expected", "widths")
"""The files of an input set; the last may be missing."""

_ARTIFACT_CHILD = "tunefarm_tuning.tvm.children.artifact"


def time_other(request: str) -> str:
    """Time a baseline (see `measure.gpu.baseline`).

    `request` is JSON: ``{"kind", "model" (a file), "binding", "inputs" (a file), "timeout_sec"}``. A caller of a release before sends no
    binding, and bound shapes alone do not change what is timed.

    Returns:
        JSON: ``{"latency"}``; or ``{"missing"}``, the reason why there is none.
    """
    params = json.loads(request)
    binding = Binding.from_json(params.get("binding", {}))
    baseline = GpuBaseline(params["kind"], Path(params["model"]), binding, timeout_sec=params["timeout_sec"])
    with closing(baseline):
        timed = baseline.time(Path(params["inputs"]))
    return json.dumps({"missing": timed} if isinstance(timed, str) else {"latency": timed.to_json()})


def early_artifact_child() -> EarlyChild:
    """Start a child for `artifact_child`, which loads meanwhile what it needs: TVM takes it most of a second."""
    return EarlyChild(_ARTIFACT_CHILD, "tvm")


@contextmanager
def artifact_child(
    reads: Iterable[Path], limits: ChildLimits, early: EarlyChild | None = None
) -> Iterator[ChildProcess]:
    """Yield `tvm.children.artifact`, which reads these files and folders, and unpacks in a folder of its own."""
    with closing(ScratchDir()) as scratch:
        access = Access(reads=tuple(reads), writes=(scratch.path,), gpu=True)
        env = {"TMPDIR": str(scratch.path)}
        with ChildProcess(_ARTIFACT_CHILD, limits=limits, access=access, env=env, early=early) as child:
            yield child


def check_artifact(request: str) -> str:
    """Run an artifact by its own loader and compare its outputs.

    `request` is JSON: ``{"path" (a file), "sets": [{"inputs", "expected", "widths", "rounding"}], "timeout_sec"}``.

    Returns:
        JSON: ``{"replies"}`` of ``check`` in `tvm.children.artifact`; or ``{"error"}``, the loader's or that of a child that died.
    """
    params = json.loads(request)
    path = str(Path(params["path"]).absolute())
    folders = {Path(file).absolute().parent for input_set in params["sets"] for file in _files(input_set)}
    # CUDA's driver reserves far more address space than it uses.
    with artifact_child([Path(path), *folders], ChildLimits(memory_bytes=None)) as child:
        try:
            replies = [
                child.call(
                    "check",
                    {**_absolute(input_set), "path": path, "threads": None},
                    timeout_sec=params["timeout_sec"],
                )
                for input_set in params["sets"]
            ]
        except TunefarmError as error:
            return json.dumps({"error": error.to_json()})
    return json.dumps({"replies": replies})


def _files(input_set: dict[str, Any]) -> Iterator[str]:
    yield from (input_set[name] for name in ARRAY_FILES if input_set.get(name))
    for part in input_set.get("recorded", ()):
        yield from part.values()


def _absolute(input_set: dict[str, Any]) -> dict[str, Any]:
    files = {name: str(Path(input_set[name]).absolute()) for name in ARRAY_FILES if input_set.get(name)}
    recorded = [
        {end: str(Path(file).absolute()) for end, file in part.items()}
        for part in input_set.get("recorded", ())  # farms of older releases name none
    ]
    return {**files, "rounding": input_set["rounding"], "recorded": recorded}


FUNCTIONS = {NOT_INSTALLED: not_installed, TIME_OTHER: time_other, CHECK_ARTIFACT: check_artifact}
"""The functions that a GPU's device offers, by name. To add one, write it above and register it here: it takes and returns JSON text."""


def machine_state_text() -> str:
    """Return `MachineState` of this process's machine as JSON; null if it has none."""
    state = machine_state()
    return json.dumps(None if state is None else state.to_json())


def libraries_text() -> str:
    """Load the libraries that kernels may call; return the versions of those that are installed, by name, as JSON."""
    version = load_onednn()
    return json.dumps({ONEDNN: version} if version else {})


WATCH_FUNCTIONS = {
    MACHINE_STATE: machine_state_text,
    YARDSTICK_LOOP: yardstick_loop_sec,
    LIBRARIES: libraries_text,
}
"""The functions that every device offers, by name."""
