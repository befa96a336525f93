"""Calibrating a device: a kernel whose answer is known, and whose time should not change."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass

from tunefarm_tuning.core.cancellation import Cancellation
from tunefarm_tuning.core.errors import DeviceLostError
from tunefarm_tuning.measure.device import RemoteDevice
from tunefarm_tuning.process import ChildFailed, ChildProcess, ChildTimedOut
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.target.toolchain import toolchain_key

_MODULE = "tunefarm_tuning.tvm.children.calibrate"
_KERNEL = "matmul-1"
_BUILD_SEC = 120.0
_CONNECT_SEC = 15.0
_RUN_SEC = 20.0
_GRACE_SEC = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationRun:
    """What one run of the calibration kernel said.

    Attributes:
        key: What was run; times under different keys cannot be compared.
        time_sec: Its time per call, the shortest of many: what the device can do when nothing disturbs it.
        all_cores_sec: Its time per call on each core while all cores are at it, the median of many: what they slow each
            other down by is in there. None of a device with one core, or of a GPU.
        wrong: What was wrong with its answer; None if it was right.
        clock_mhz: A GPU's clock right after it, where the device tells.
    """

    key: str
    time_sec: float
    all_cores_sec: float | None = None
    wrong: str | None = None
    clock_mhz: float | None = None


def calibration_key(target: Target) -> str:
    """Return what times of the calibration kernel have to share to be compared."""
    return f"{_KERNEL}/{target.key}/{toolchain_key()}"


def calibrate(
    device: RemoteDevice, target: Target, *, cancellation: Cancellation | None = None
) -> CalibrationRun:
    """Run the calibration kernel on a device. Nobody else may be using it.

    The kernel is a product of two matrices of small whole numbers on one core: its answer is exact in whatever order
    it is summed up. Then every core computes it at once, for a third of a second.

    Args:
        device: The device.
        target: What it runs.
        cancellation: Ends the call within seconds.

    Raises:
        DeviceLostError: If the device cannot be reached, its session crashed, or it was not done in time; ``device-busy`` if
            it is a GPU on which another process computes.
        InvalidInputError: If the kernel cannot be built for the target here.
    """
    # Its package brings NumPy, which the API, that only keeps what a calibration said, has no need of.
    from tunefarm_tuning.process.scratch import ScratchDir

    with (
        closing(ScratchDir()) as scratch,
        closing(ChildProcess(_MODULE)) as child,
        (cancellation or Cancellation()).attach(child),
    ):
        built_in = {"target": target.to_json(), "work_dir": str(scratch.path)}
        cores = int(child.call("build", built_in, timeout_sec=_BUILD_SEC))
        try:
            reply = child.call(
                "run",
                {
                    "address": device.to_json(),
                    "kind": device.kind,
                    "cores": cores,
                    "timeout_sec": _RUN_SEC,
                    "connect_timeout_sec": _CONNECT_SEC,
                },
                timeout_sec=_CONNECT_SEC + _RUN_SEC + _GRACE_SEC,
            )
        except ChildTimedOut as error:
            raise DeviceLostError("it was not done with the calibration kernel in time") from error
        except ChildFailed as error:
            raise DeviceLostError(f"the calibration kernel failed: {error.message}") from error
    return CalibrationRun(
        key=calibration_key(target),
        time_sec=float(reply["time_sec"]),
        all_cores_sec=reply["all_cores_sec"],
        wrong=reply["wrong"],
        clock_mhz=reply["clock_mhz"],
    )
