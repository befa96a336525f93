"""`LocalRunner`: times kernels on this machine, in a child process."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence

from tunefarm_tuning.core.cancellation import Closing
from tunefarm_tuning.core.errors import DeviceLostError, TunefarmError
from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.measure.interfaces import DeviceInfo, MeasureInput, MeasureResult, TimingOption
from tunefarm_tuning.measure.runner.timing import (
    Rivals,
    failed,
    interleaved_params,
    interleaved_results,
    measure_params,
    result_of,
)
from tunefarm_tuning.process import ChildClosed, ChildFailed, ChildLimits, ChildProcess, ChildTimedOut
from tunefarm_tuning.target.host import host_device_model, num_cores

_MODULE = "tunefarm_tuning.tvm.children.measure"
_DRIVER_SEC = 60.0
"""A GPU's driver without persistence mode takes seconds to wake up; one in trouble never answers."""


class LocalRunner(Closing):
    """Implements `Runner` (see there) for this machine.

    The child lives as long as its kernels behave. A kernel that crashes is tried again in a fresh child: one
    before it may have spoilt the memory of the old one. A GPU is asked how it is beside every measurement, as one of a
    device is: nothing is measured while another process computes on it, and samples of a throttled one are taken again.

    Args:
        timing: How long each candidate is timed.
        threads: Threads of a kernel; all physical cores that this process may use by default.
    """

    def __init__(self, timing: TimingOption = TimingOption(), threads: int | None = None) -> None:  # noqa: B008
        self._timing = timing
        threads = threads or num_cores()
        self._device = DeviceInfo(model=host_device_model(), num_cores=threads)
        # No limit on address space: each thread reserves much more than it uses, and CUDA reserves it all.
        self._child = ChildProcess(
            _MODULE,
            limits=ChildLimits(memory_bytes=None),
            env={"TVM_NUM_THREADS": str(threads)},
        )
        self._measured_since_start = 0
        self._met_gpu: int | None = None  # by which child

    @property
    def device(self) -> DeviceInfo:
        return self._device

    @property
    def shares_host(self) -> bool:
        return True

    def run(self, inputs: Sequence[MeasureInput]) -> list[MeasureResult]:
        rivals = Rivals()
        results: list[MeasureResult] = []
        for candidate in inputs:
            results.append(self._run(candidate, rivals.of(candidate)))
            rivals.add(candidate, results[-1])
        return results

    def run_interleaved(self, inputs: Sequence[MeasureInput], *, rounds: int) -> list[MeasureResult]:
        if not inputs:
            return []
        params = interleaved_params(inputs, self._timing, rounds)
        results: list[MeasureResult] | None = None
        # Whatever goes wrong, the candidates' own measurements say it.
        with contextlib.suppress(TunefarmError):
            self._start(inputs[0])
            started = time.monotonic()
            reply = self._child.call(
                "measure_interleaved_here", params, timeout_sec=self._timing.timeout_sec * len(inputs)
            )
            results = interleaved_results(reply, time.monotonic() - started)
            if reply.get("poisoned"):
                self._child.kill()
        return results if results is not None else [self._run(candidate, None) for candidate in inputs]

    def _run(self, candidate: MeasureInput, rival_sec: float | None) -> MeasureResult:
        result = self._measure(candidate, rival_sec)
        crashed = result.failure is not None and result.failure.outcome is Outcome.RUN_CRASH
        if crashed and self._measured_since_start > 0:
            self._measured_since_start = 0
            result = self._measure(candidate, rival_sec)
        if self._child.alive:
            self._measured_since_start += 1
        else:
            self._measured_since_start = 0
        return result

    def _measure(self, candidate: MeasureInput, rival_sec: float | None) -> MeasureResult:
        try:
            self._start(candidate)
        except TunefarmError as error:
            return failed(Outcome.INFRASTRUCTURE_ERROR, error.message)
        started = time.monotonic()
        try:
            reply = self._child.call(
                "measure_here",
                measure_params(candidate, self._timing, rival_sec),
                timeout_sec=self._timing.timeout_sec,
            )
        except ChildClosed:
            return failed(Outcome.INFRASTRUCTURE_ERROR, "the runner was closed")
        except ChildTimedOut as error:
            return failed(Outcome.RUN_TIMEOUT, error.message, time.monotonic() - started)
        except ChildFailed as error:
            return failed(Outcome.RUN_CRASH, error.message, time.monotonic() - started)
        except TunefarmError as error:
            return failed(Outcome.RUN_ERROR, error.message, time.monotonic() - started)
        if reply.get("poisoned"):
            self._child.kill()  # its CUDA context is of no use any more
        return result_of(reply, time.monotonic() - started)

    def _start(self, candidate: MeasureInput) -> None:
        """Have a child that is ready to measure: what that takes is not of the candidate's time."""
        self._child.start()
        if candidate.task.target.kind != "cuda" or self._met_gpu == self._child.pid:
            return
        try:
            self._child.call("meet_gpu", {}, timeout_sec=_DRIVER_SEC)
        except ChildTimedOut as error:
            raise DeviceLostError(f"the GPU's driver has not answered within {_DRIVER_SEC:g} s") from error
        self._met_gpu = self._child.pid

    def release(self) -> None:
        """Do nothing: nobody else waits for this process."""

    def close(self) -> None:
        """End the child. From any thread; a measurement under way then ends at once."""
        self._child.close()
