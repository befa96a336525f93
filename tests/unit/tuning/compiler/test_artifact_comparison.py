"""Failed checks of an artifact on a device: its GPU and memory are the device's fault, the rest the model's."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from tunefarm_tuning.compiler.artifact_comparison import compare_on_device
from tunefarm_tuning.compiler.session import CompileLimits
from tunefarm_tuning.core.errors import (
    DeviceLostError,
    InvalidInputError,
    InvalidModelError,
    InvariantError,
    TunefarmError,
)
from tunefarm_tuning.measure.device_run import DeviceRun, RunFailed
from tunefarm_tuning.process import ChildCrashed, ChildOutOfMemory


class Answers:
    """A device that answers so; `raised` comes of the call itself."""

    def __init__(self, error: TunefarmError, *, raised: bool = False) -> None:
        self._error = error
        self._raised = raised

    def hang_up(self) -> None:
        pass

    def allow(self, *files: Path) -> None:
        pass

    def call(self, *_args: Any, **_named: Any) -> dict[str, Any]:
        if self._raised:
            raise self._error
        return {"error": self._error.to_json()}


def blamed(error: TunefarmError, *, raised: bool = False) -> TunefarmError:
    runner = cast("DeviceRun", Answers(error, raised=raised))
    with pytest.raises(TunefarmError) as info:
        compare_on_device(Path("a.tunefarm"), [], CompileLimits(), runner)
    return info.value


@pytest.mark.parametrize(
    "error",
    [
        InvariantError("RuntimeError: CUDA: out of memory"),
        InvariantError("CUDA error: CUDA_ERROR_OUT_OF_MEMORY"),
        InvariantError("CUDA error: CUDA_ERROR_ECC_UNCORRECTABLE"),
        ChildOutOfMemory("the artifact_child process ran out of memory: CUDA: out of memory"),
        ChildCrashed("the artifact_child process died: SIGABRT", detail="CUDA: GPU is lost"),
        InvalidInputError(
            "lib.so cannot be run: CUDA: uncorrectable ECC error encountered", code="run-failed"
        ),
        InvalidInputError("the artifact needs a cuda device; there is none here", code="no-device"),
    ],
    ids=lambda error: error.message[:40],
)
def test_a_gpus_trouble_is_the_devices(error: TunefarmError) -> None:
    error_of_device = blamed(error)
    assert isinstance(error_of_device, DeviceLostError)
    assert error.message in error_of_device.message


def test_so_is_trouble_of_the_call() -> None:
    assert isinstance(blamed(RunFailed("CUDA: out of memory"), raised=True), DeviceLostError)
    gone = InvalidInputError("h100 has no cuda device", code="no-device")
    assert isinstance(blamed(gone, raised=True), DeviceLostError)


def test_what_is_set_up_wrongly_is_named() -> None:
    error = blamed(InvariantError("CUDA error: CUDA driver version is insufficient for CUDA runtime version"))
    assert isinstance(error, InvalidInputError)
    assert error.code == "gpu-set-up"
    assert "install a newer driver" in error.message
    assert blamed(error, raised=True) is error


def test_what_the_model_does_is_the_models() -> None:
    for error in (ChildCrashed("the artifact_child process died: SIGSEGV"), RunFailed("was not done")):
        error_of_model = blamed(error, raised=isinstance(error, RunFailed))
        assert isinstance(error_of_model, InvalidModelError)
        assert error_of_model.code == "run-crashed"
    refused = blamed(InvalidInputError("the library's size is wrong", code="damaged-artifact"))
    assert (type(refused), refused.code) == (InvalidInputError, "damaged-artifact")
