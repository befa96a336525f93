"""`verify`: is an artifact's answer still the model's?"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tunefarm_tuning.artifact.access import fetch_library, manifest_of
from tunefarm_tuning.compiler.model_check import ModelComparison, compare_model
from tunefarm_tuning.compiler.session import CompileLimits
from tunefarm_tuning.core.cancellation import Cancellation
from tunefarm_tuning.core.errors import (
    DeviceLostError,
    InvalidInputError,
    InvalidModelError,
    InvariantError,
    TunefarmError,
    error_from_json,
)
from tunefarm_tuning.measure.device import RemoteDevice
from tunefarm_tuning.measure.device_run import DeviceRun, RunFailed
from tunefarm_tuning.measure.execution_device import device_kind
from tunefarm_tuning.measure.gpu.cuda_errors import is_devices_fault, setups_fault
from tunefarm_tuning.process import ChildClosed, ChildFailed, ChildLimits, ChildOutOfMemory, ChildProcess
from tunefarm_tuning.process.model_child import model_error
from tunefarm_tuning.process.scratch import ScratchDir
from tunefarm_tuning.reference.comparison import Comparison
from tunefarm_tuning.reference.onnx_runtime import InputSet, Reference
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.workload.model import Model
from tunefarm_tuning.workload.precision import Precision, parse_precision

_ARTIFACT_CHILD = "tunefarm_tuning.tvm.children.artifact"
_NO_DEVICE, _SET_UP = "no-device", "gpu-set-up"
_OUT_OF_MEMORY = re.compile("out of memory|CUDA_ERROR_OUT_OF_MEMORY", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """How an artifact's outputs compare with ONNX Runtime's.

    Attributes:
        ok: Whether all are within the tolerance.
        max_abs_error: The largest difference of two finite elements.
        max_rel_error: The same, as a share of its tensor's root mean square.
        outputs: Each output on each set of inputs.
        message: The first thing that is wrong; empty when `ok`.
    """

    ok: bool
    max_abs_error: float
    max_rel_error: float
    outputs: tuple[Comparison, ...]
    message: str

    def to_json(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "max_abs_error": self.max_abs_error,
            "max_rel_error": self.max_rel_error,
            "outputs": [one.to_json() for one in self.outputs],
            "message": self.message,
        }


def verify(
    artifact: Path | str,
    model: Model,
    *,
    device: RemoteDevice | None = None,
    seed: int = 0,
    limits: CompileLimits | None = None,
) -> VerifyReport:
    """Run an artifact and its model on equal random inputs and compare.

    Args:
        artifact: The ``.tunefarm`` file.
        model: What it was compiled from.
        device: Where to run the artifact; None is this machine, where its own loader runs it.
        seed: Of the inputs.
        limits: Of the child processes.

    Raises:
        InvalidInputError: If the file is not an artifact, damaged, made for another machine or version, or of another model
            (code other-model).
        InvalidModelError: If ONNX Runtime cannot run the model; if the artifact crashed or was over its time.
        RunFailed: The latter, on a device.
        DeviceLostError: If the device is away.
    """
    path, limits = Path(artifact), limits or CompileLimits()
    manifest = manifest_of(path)
    if manifest["model"]["sha256"] != model.sha256:
        raise InvalidInputError(f"{path.name} was compiled from another model", code="other-model")
    threads = int(manifest["threads"])
    with ExitStack() as stack:
        folder = stack.enter_context(closing(ScratchDir())).path
        reference = Reference(
            model, folder, threads=threads, memory_bytes=limits.memory_bytes, timeout_sec=limits.model_sec
        )
        stack.callback(reference.close)
        sets = reference.make(seed, rounding=_tolerance(manifest))
        reference.close()
        if device is None:
            comparison = compare_packed(path, sets, limits, Cancellation())
        else:
            fetch_library(path, folder / "lib.so")
            target = Target.from_json(manifest["target"])
            runner = DeviceRun(device, kind=device_kind(target), threads=threads, limits=ChildLimits())
            stack.callback(runner.close)
            names = [spec.name for spec in model.outputs]
            comparison = compare_model(runner, folder / "lib.so", names, sets, limits)
    found = comparison.to_json()
    return VerifyReport(
        ok=comparison.ok,
        max_abs_error=found["max_abs_error"],
        max_rel_error=found["max_rel_error"],
        outputs=tuple(comparison.outputs),
        message=comparison.message,
    )


def _tolerance(manifest: Mapping[str, Any]) -> str:
    """Return what an artifact's outputs are compared with: no more than its precision allows, whatever the manifest says."""
    # Artifacts from before there was a choice say nothing of it.
    allowed = parse_precision(manifest.get("precision")).tolerance
    plain = Precision.AS_MODEL.tolerance
    return plain if manifest.get("tolerance") == plain else allowed


def compare_packed(
    path: Path, sets: Sequence[InputSet], limits: CompileLimits, cancellation: Cancellation
) -> ModelComparison:
    """Run an artifact on this machine by its own loader, in a child, and compare its outputs.

    See `compare_on_device` for another machine.

    Raises:
        InvalidInputError: If the loader refuses the file.
        InvalidModelError: If the child died: run-crashed, run-timeout or run-memory.
    """
    kind = device_kind(Target.from_json(manifest_of(path)["target"]))
    memory = None if kind == "cuda" else limits.memory_bytes
    with (
        ChildProcess(_ARTIFACT_CHILD, limits=ChildLimits(memory_bytes=memory)) as child,
        cancellation.attach(child),
    ):
        try:
            replies = [
                child.call(
                    "check",
                    {
                        "path": str(path.absolute()),
                        "threads": None,
                        "inputs": str(one.inputs),
                        "expected": str(one.expected),
                        "rounding": one.rounding,
                    },
                    timeout_sec=limits.model_sec,
                )
                for one in sets
            ]
        except ChildClosed:
            raise
        except ChildFailed as error:
            raise model_error("run", "running the artifact", error) from error
    return _compared(sets, replies)


def compare_on_device(
    path: Path, sets: Sequence[InputSet], limits: CompileLimits, runner: DeviceRun
) -> ModelComparison | None:
    """Run an artifact on a device's machine by its own loader, in a child there, and compare its outputs.

    Args:
        path: Of the artifact; it is uploaded.
        sets: Inputs and what is expected.
        limits: Of a run.
        runner: With the device; what it had loaded is gone then.

    Returns:
        None where the device does not offer it.

    Raises:
        InvalidInputError: If the loader refuses the file there; if the GPU's machine is set up wrongly (code gpu-set-up).
        InvalidModelError: If the child died there (code run-crashed).
        DeviceLostError: If the device went away, has no GPU now, or not enough memory; if its GPU is broken.
    """
    params = {
        "path": str(path.absolute()),
        "sets": [
            {"inputs": str(one.inputs), "expected": str(one.expected), "rounding": one.rounding}
            for one in sets
        ],
        "timeout_sec": limits.model_sec,
    }
    try:
        runner.hang_up()
        reply = runner.call("check_artifact", params, timeout_sec=limits.model_sec * (1 + len(sets)))
    except (RunFailed, InvalidInputError) as error:
        raise _on_device(error) from error
    if "not_offered" in reply:
        return None
    if "error" in reply:
        raise _on_device(error_from_json(reply["error"]))
    return _compared(sets, reply["replies"])


def _on_device(error: TunefarmError) -> TunefarmError:
    """Return what the error of a child on a device, or of a call there, means to whoever asked for the check."""
    if error.code == _SET_UP:
        return error
    text = " ".join([error.message, str(error.fields.get("detail", ""))])
    if (reason := setups_fault(text)) is not None:
        return InvalidInputError(f"{reason} ({error.message})", code=_SET_UP)
    # The network has run on that device already: what there is no room for now, somebody else has.
    room = error.code == ChildOutOfMemory.default_code or _OUT_OF_MEMORY.search(text) is not None
    if is_devices_fault(text) or room or error.code == _NO_DEVICE:
        return DeviceLostError(f"running the artifact on the device: {error.message}")
    if isinstance(error, InvalidInputError):
        return error
    return InvalidModelError(f"running the artifact on the device: {error.message}", code="run-crashed")


def _compared(sets: Sequence[InputSet], replies: Sequence[Mapping[str, Any]]) -> ModelComparison:
    return ModelComparison(
        sets=tuple(
            (one, tuple(Comparison.from_json(c) for c in reply["comparisons"]))
            for one, reply in zip(sets, replies, strict=True)
        )
    )


def packed_check(
    sets: Sequence[InputSet],
    limits: CompileLimits,
    cancellation: Cancellation,
    runner: DeviceRun | None = None,
) -> Callable[[Path], None]:
    """Return what refuses an artifact whose outputs, by its own loader, are not within the tolerance.

    Args:
        sets: Inputs and what is expected.
        limits: Of a run.
        cancellation: Ends a check on this machine.
        runner: With the device where it is to run; None is this machine.
    """

    def check(path: Path) -> None:
        if runner is None:
            comparison = compare_packed(path, sets, limits, cancellation)
        elif (found := compare_on_device(path, sets, limits, runner)) is not None:
            comparison = found
        else:
            return
        if not comparison.ok:
            raise InvariantError(
                f"the packed artifact gives other results than its library: {comparison.message}"
            )

    return check
