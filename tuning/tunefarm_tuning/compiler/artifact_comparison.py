"""A written artifact's outputs compared with the reference: by its own loader, in a child process, here or on a device."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tunefarm_tuning.artifact.reading import manifest_of
from tunefarm_tuning.compiler.model_comparison import ModelComparison
from tunefarm_tuning.compiler.session import CompileLimits
from tunefarm_tuning.core.cancellation import Cancellation
from tunefarm_tuning.core.errors import (
    DeviceLostError,
    InvalidInputError,
    InvalidModelError,
    InvariantError,
    TunefarmError,
)
from tunefarm_tuning.measure.device import device_kind
from tunefarm_tuning.measure.device_functions import artifact_child
from tunefarm_tuning.measure.device_run import DeviceRun, RunFailed
from tunefarm_tuning.measure.gpu.cuda_errors import is_devices_fault, setups_fault
from tunefarm_tuning.process import ChildClosed, ChildFailed, ChildLimits, ChildOutOfMemory, EarlyChild
from tunefarm_tuning.process.errors import stated_error
from tunefarm_tuning.process.model_child import model_error
from tunefarm_tuning.reference.onnx_runtime import InputSet
from tunefarm_tuning.target.target import Target

_NO_DEVICE, _SET_UP = "no-device", "gpu-set-up"
_OUT_OF_MEMORY = re.compile("out of memory|CUDA_ERROR_OUT_OF_MEMORY", re.IGNORECASE)


def compare_packed(
    path: Path,
    sets: Sequence[InputSet],
    limits: CompileLimits,
    cancellation: Cancellation,
    early: EarlyChild | None = None,
) -> ModelComparison:
    """Run an artifact on this machine by its own loader, in a child process, and compare its outputs.

    See `compare_on_device` for another machine. The child may be one that `early_artifact_child` started.

    Raises:
        InvalidInputError: If the loader refuses the file.
        InvalidModelError: If the child died (codes run-crashed, run-timeout, run-memory).
    """
    kind = device_kind(Target.from_json(manifest_of(path)["target"]))
    memory = None if kind == "cuda" else limits.memory_bytes
    folders = {folder for input_set in sets for folder in input_set.folders}
    with (
        artifact_child([path, *folders], ChildLimits(memory_bytes=memory), early) as child,
        cancellation.attach(child),
    ):
        try:
            replies = [
                child.call(
                    "check",
                    {"path": str(path.absolute()), "threads": None, **_files(input_set)},
                    timeout_sec=limits.model_sec,
                )
                for input_set in sets
            ]
        except ChildClosed:
            raise
        except ChildFailed as error:
            raise model_error("run", "running the artifact", error) from error
    return ModelComparison.from_replies(sets, replies)


def compare_on_device(
    path: Path, sets: Sequence[InputSet], limits: CompileLimits, runner: DeviceRun
) -> ModelComparison | None:
    """Run an artifact on a device's machine by its own loader, in a child process there, and compare its outputs.

    Args:
        path: The artifact; it is uploaded.
        sets: Inputs and expected outputs.
        limits: `model_sec` limits each run.
        runner: Reaches the device. Its session is renewed: what was loaded in it is gone.

    Returns:
        None if the device does not offer the check.

    Raises:
        InvalidInputError: If the loader refuses the file there; if the GPU's machine is set up wrongly (code gpu-set-up).
        InvalidModelError: If the child died there (code run-crashed).
        DeviceLostError: If the device went away, has no GPU now, or too little memory; if its GPU is broken.
    """
    params = {
        "path": str(path.absolute()),
        "sets": [_files(input_set) for input_set in sets],
        "timeout_sec": limits.model_sec,
    }
    try:
        runner.hang_up()
        runner.allow(path)
        reply = runner.call("check_artifact", params, timeout_sec=limits.model_sec * (1 + len(sets)))
    except (RunFailed, InvalidInputError) as error:
        raise _on_device(error) from error
    if "not_offered" in reply:
        return None
    if "error" in reply:
        raise _on_device(stated_error(reply["error"], may_blame_device=True))
    return ModelComparison.from_replies(sets, reply["replies"])


def _on_device(error: TunefarmError) -> TunefarmError:
    """Return the error to raise for an error on a device: it may blame the artifact, the device or the device's set-up."""
    if error.code == _SET_UP:
        return error
    text = " ".join([error.message, str(error.fields.get("detail", ""))])
    if (reason := setups_fault(text)) is not None:
        return InvalidInputError(f"{reason} ({error.message})", code=_SET_UP)
    # The network has run on that device already: if memory is short now, another process took it.
    room = error.code == ChildOutOfMemory.default_code or _OUT_OF_MEMORY.search(text) is not None
    if is_devices_fault(text) or room or error.code == _NO_DEVICE:
        return DeviceLostError(f"running the artifact on the device: {error.message}")
    if isinstance(error, InvalidInputError):
        return error
    return InvalidModelError(f"running the artifact on the device: {error.message}", code="run-crashed")


def artifact_check(
    sets: Sequence[InputSet],
    limits: CompileLimits,
    cancellation: Cancellation,
    runner: DeviceRun | None = None,
    early: EarlyChild | None = None,
) -> Callable[[Path], None]:
    """Return a function that refuses an artifact whose outputs, by its own loader, are outside of the tolerance.

    It runs on the device that `runner` reaches; None is this machine, where `early` may be the child.
    """

    def check(path: Path) -> None:
        """Check one artifact.

        Raises:
            InvariantError: If its outputs differ from those of the library that it was made of.
        """
        comparison = (
            compare_packed(path, sets, limits, cancellation, early)
            if runner is None
            else compare_on_device(path, sets, limits, runner)
        )
        if comparison is not None and not comparison.ok:
            raise InvariantError(
                f"the packed artifact gives different results than its library: {comparison.message}"
            )

    return check


def _files(input_set: InputSet) -> dict[str, Any]:
    return {
        "inputs": str(input_set.inputs),
        "expected": str(input_set.expected),
        "rounding": input_set.rounding,
        **({} if input_set.widths is None else {"widths": str(input_set.widths)}),
        "recorded": [part.to_json() for part in input_set.parts],
    }
