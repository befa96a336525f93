"""`LocalRunner`: times kernels on this machine, in a child process."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence

from tunefarm_tuning.core.cancellation import Closing
from tunefarm_tuning.core.errors import DeviceLostError, TunefarmError
from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.measure.gpu.nvml_recorded import recorded_folders
from tunefarm_tuning.measure.interfaces import DeviceInfo, Failure, MeasureInput, MeasureResult, TimingOption
from tunefarm_tuning.measure.runner.timing import (
    failed,
    folders_of,
    interleaved_params,
    interleaved_results,
    measure_each,
    measure_params,
    result_of,
)
from tunefarm_tuning.process import Access, ChildClosed, ChildFailed, ChildLimits, ChildProcess, ChildTimedOut
from tunefarm_tuning.target.host import host_device_model, num_cores

_MODULE = "tunefarm_tuning.tvm.children.measure"
_DRIVER_SEC = 60.0
"""Time limit for a GPU's driver: it takes seconds to start without persistence mode, and a broken one never answers."""


class LocalRunner(Closing):
    """Implements `Runner` (see there) for this machine.

    The child is used until a kernel crashes it. A kernel that crashes is tried again in a new child: an earlier kernel may have
    corrupted the memory of the old one. A GPU's state is read beside every measurement: nothing is measured while another process
    computes on it, and samples of a throttled GPU are taken again.

    Args:
        timing: How long each candidate is timed.
        threads: The number of threads of a kernel; by default all physical cores that this process may use.
    """

    def __init__(self, timing: TimingOption = TimingOption(), threads: int | None = None) -> None:  # noqa: B008
        self._timing = timing
        threads = threads or num_cores()
        self._device = DeviceInfo(model=host_device_model(), num_cores=threads)
        # No limit on address space: each thread reserves much more than it uses, and so does CUDA.
        self._child = ChildProcess(
            _MODULE,
            limits=ChildLimits(memory_bytes=None),
            access=Access(reads=recorded_folders(), gpu=True),
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
        self._allow(inputs)
        return measure_each(inputs, self._run, until_lost=False)

    def run_interleaved(self, inputs: Sequence[MeasureInput], *, rounds: int) -> list[MeasureResult]:
        if not inputs:
            return []
        self._allow(inputs)
        params = interleaved_params(inputs, self._timing, rounds)
        results: list[MeasureResult] | None = None
        # If anything fails, each candidate is measured by itself, which tells its failure.
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

    def _allow(self, inputs: Sequence[MeasureInput]) -> None:
        """Let the child read the kernels: those of a builder are in one folder."""
        if self._child.allow(*folders_of(inputs)):
            self._measured_since_start = 0

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
            return MeasureResult(run_sec=0.0, failure=Failure.of(error))
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
            self._child.kill()  # its CUDA context can no longer be used
        return result_of(reply, time.monotonic() - started)

    def _start(self, candidate: MeasureInput) -> None:
        """Start a child that is ready to measure: this time does not count as the candidate's."""
        self._child.start()
        if candidate.task.target.kind != "cuda" or self._met_gpu == self._child.pid:
            return
        try:
            self._child.call("meet_gpu", {}, timeout_sec=_DRIVER_SEC)
        except ChildTimedOut as error:
            raise DeviceLostError(f"the GPU's driver has not answered within {_DRIVER_SEC:g} s") from error
        self._met_gpu = self._child.pid

    def release(self) -> None:
        """Do nothing: no other process waits for this machine."""

    def close(self) -> None:
        """End the child, from any thread. A running measurement then ends at once."""
        self._child.close()
