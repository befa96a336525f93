"""Calibration of a device: runs a kernel whose result is known, and whose time should not change."""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import dataclass

from tunefarm_tuning.core.cancellation import Cancellation
from tunefarm_tuning.core.errors import DeviceLostError
from tunefarm_tuning.measure.away import raise_lost_or_failed
from tunefarm_tuning.measure.device import RemoteDevice
from tunefarm_tuning.process import Access, ChildFailed, ChildProcess, ChildTimedOut
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.target.toolchain import toolchain_key

_MODULE = "tunefarm_tuning.tvm.children.calibrate"
_KERNEL = "matmul-1"
_BUILD_SEC = 120.0
_CONNECT_SEC = 15.0
FIRST_CALL_SEC = 20.0
"""Limit for loading the kernel and calling it once. The slowest board that can join multiplies two matrices of 320 x 320 on one core
in that time: 2 million multiply-adds per second, less than a hundredth of what a Raspberry Pi of 2012 does."""
_SLOWEST = f" (a device has to multiply two matrices of 320 x 320 on one core within {FIRST_CALL_SEC:.0f} s)"
_REST_SEC = 20.0
_CALLS = (
    16  # as many calls as follow on a board that needs seconds for each, those on all cores counted twice
)
_GRACE_SEC = 3.0


def rest_limit_sec(first_call_sec: float) -> float:
    """Return the limit for what follows the kernel's first call, by how long that took."""
    return _REST_SEC + _CALLS * first_call_sec


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationRun:
    """The result of one run of the calibration kernel.

    Attributes:
        key: `calibration_key`; times with different keys cannot be compared.
        time_sec: Seconds per call on one core, the shortest of many: the device's time when nothing disturbs it.
        all_cores_sec: Seconds per call on each core while all cores run the kernel, the median of many: it shows how much they
            slow each other down. None for a device with one core, and for a GPU.
        wrong: What is wrong with the kernel's result; None if it is right.
        clock_mhz: A GPU's clock right after the run, in MHz; None if the device does not tell.
    """

    key: str
    time_sec: float
    all_cores_sec: float | None = None
    wrong: str | None = None
    clock_mhz: float | None = None


def calibration_key(target: Target) -> str:
    """Return the key that two times of the calibration kernel must share to be comparable."""
    return f"{_KERNEL}/{target.key}/{toolchain_key()}"


def calibrate(
    device: RemoteDevice, target: Target, *, cancellation: Cancellation | None = None
) -> CalibrationRun:
    """Run the calibration kernel on a device that nobody else uses. `cancellation` ends the call within seconds.

    The kernel multiplies two matrices of small whole numbers on one core: its result is exact in any order of summation. Then a CPU
    runs an instruction of each feature that kernels are made for, and all cores run the kernel at once, for a third of a second.

    Raises:
        DeviceLostError: If the device cannot be reached, its session crashed, or it exceeded its time; with code device-busy
            if it is a GPU on which another process computes; with the field ``away`` if its connection was lost.
        InvalidInputError: If the kernel cannot be built for the target here.
    """
    # Imported late, since it imports NumPy: the API, which only stores calibrations, runs without NumPy.
    from tunefarm_tuning.process.scratch import ScratchDir

    cancellation = cancellation or Cancellation()
    with closing(ScratchDir()) as scratch, ExitStack() as stack:
        access = Access(writes=(scratch.path,), device=device.address, programs=True)
        # nvcc writes temporary files even to list what it can build for.
        child = ChildProcess(_MODULE, access=access, env={"TMPDIR": str(scratch.path)})
        stack.enter_context(closing(child))
        stack.enter_context(cancellation.attach(child))
        built_in = {"target": target.to_json(), "work_dir": str(scratch.path)}
        cores = int(child.call("build", built_in, timeout_sec=_BUILD_SEC))
        limit_sec, slowest = _CONNECT_SEC + FIRST_CALL_SEC, _SLOWEST
        try:
            first_call_sec = float(
                child.call(
                    "first_call",
                    {
                        "address": device.opening(child.relay_key),
                        "kind": device.kind,
                        "timeout_sec": FIRST_CALL_SEC + rest_limit_sec(FIRST_CALL_SEC),
                        "connect_timeout_sec": _CONNECT_SEC,
                    },
                    timeout_sec=limit_sec + _GRACE_SEC,
                )
            )
            limit_sec, slowest = rest_limit_sec(first_call_sec), ""
            params = {"cores": cores, "first_call_sec": first_call_sec}
            reply = child.call("run", params, timeout_sec=limit_sec + _GRACE_SEC)
        except ChildTimedOut as error:
            raise DeviceLostError(
                f"the calibration kernel did not end within {limit_sec:.0f} s: the device is frozen, or too slow{slowest}"
            ) from error
        except ChildFailed as error:
            raise DeviceLostError(f"the calibration kernel failed: {error.message}") from error
        except DeviceLostError as error:
            raise_lost_or_failed(error, device, cancellation)
    return CalibrationRun(
        key=calibration_key(target),
        time_sec=float(reply["time_sec"]),
        all_cores_sec=reply["all_cores_sec"],
        wrong=reply["wrong"],
        clock_mhz=reply["clock_mhz"],
    )
