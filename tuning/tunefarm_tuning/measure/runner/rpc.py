"""`RpcRunner`: times kernels on a device that is reached over TVM RPC."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tunefarm_tuning.core.cancellation import Closing
from tunefarm_tuning.core.errors import BROKE_PROTOCOL, DeviceLostError, TunefarmError
from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.measure.device import RemoteDevice
from tunefarm_tuning.measure.device_run import RunFailed
from tunefarm_tuning.measure.interfaces import (
    DeviceInfo,
    Failure,
    MeasureInput,
    MeasureResult,
    SessionOrigin,
    TimingOption,
)
from tunefarm_tuning.measure.runner.timing import (
    failed,
    folders_of,
    interleaved_params,
    interleaved_results,
    measure_each,
    measure_params,
    result_of,
)
from tunefarm_tuning.process import Access, ChildClosed, ChildFailed, ChildProcess, ChildTimedOut
from tunefarm_tuning.process.device_address import is_own_address

_MODULE = "tunefarm_tuning.tvm.children.measure"
_CANDIDATES_PER_SESSION = 8
_GRACE_SEC = 3.0
"""The device ends a session that takes too long; if it has not done so by then, the child on this machine is killed."""


class RpcRunner(Closing):
    """Implements `Runner` (see there) for a device behind a TVM tracker or a farm's gateway.

    A session costs 12 ms or more, and runs in a process of its own on the device. The server of a device under a lease
    (`RemoteDevice.fence`) notices that a session is closed even while a kernel runs: there up to 8 candidates share a session. A
    candidate that fails in a shared session is measured again in a session of its own. On any other device each candidate has its
    own session.

    When a session breaks, a new one is opened. If that succeeds, the kernel crashed (`Outcome.RUN_CRASH`) or hung
    (`RUN_TIMEOUT`). If it fails, or if the server of a device under a lease is another one by then, the device is lost
    (`INFRASTRUCTURE_ERROR`, also for the rest of the batch); the next batch tries again.

    Args:
        device: The device, which nobody else may be using: its tracker would let this runner wait.
        timing: How long each candidate is timed.
        connect_timeout_sec: Seconds that the device may take to open a session, also after a crash.
    """

    def __init__(
        self,
        device: RemoteDevice,
        timing: TimingOption = TimingOption(),  # noqa: B008  (frozen)
        *,
        connect_timeout_sec: float = 15.0,
    ) -> None:
        self._remote = device
        self._timing = timing
        self._connect_timeout_sec = connect_timeout_sec
        self._child = ChildProcess(_MODULE, access=Access(device=device.address))
        # How many more candidates the open session may take (0 if none is open), and until when.
        self._left = 0
        self._until = 0.0
        # The device may be this machine until its tracker has told its address.
        self._is_here = True
        self._address: tuple[str, int] | None = None
        self._origin: SessionOrigin | None = None  # of the open session

    def use_lease(self, fence: int | None, *, clock_mhz: float | None = None) -> None:
        """Use another lease of the device from now on: its `RemoteDevice.fence`, and the device's `clock_mhz`."""
        self.release()
        self._remote = replace(
            self._remote, fence=fence, clock_mhz=clock_mhz
        )  # a ticket is asked for by the fence

    def spawn(self, kernels: Path) -> None:
        """Start the child that measures, without waiting; it will read the kernels of this folder."""
        self._child.allow(kernels.absolute())
        self._child.spawn()

    @property
    def device(self) -> DeviceInfo:
        return self._remote.info

    @property
    def shares_host(self) -> bool:
        return self._remote.kind == "cpu" and self._is_here

    def run(self, inputs: Sequence[MeasureInput]) -> list[MeasureResult]:
        self._allow(inputs)
        return measure_each(inputs, self._run)

    def run_interleaved(self, inputs: Sequence[MeasureInput], *, rounds: int) -> list[MeasureResult]:
        if not inputs:
            return []
        self._allow(inputs)
        params = interleaved_params(inputs, self._timing, rounds, self._remote.clock_mhz)
        timeout_sec = self._timing.timeout_sec * len(inputs)
        results: list[MeasureResult] | None = None
        if self._connect(timeout_sec) is None:
            started = time.monotonic()
            # If anything fails, each candidate is measured by itself, which tells its failure.
            with contextlib.suppress(TunefarmError):
                reply = self._child.call("measure_interleaved", params, timeout_sec=timeout_sec + _GRACE_SEC)
                results = interleaved_results(reply, time.monotonic() - started, self._origin)
                if results is None and _is_attack(failure := Failure.from_json(reply["failure"])):
                    return [MeasureResult(run_sec=0.0, failure=failure)] * len(inputs)
        if results is None:
            results = measure_each(inputs, lambda candidate, _: self._run(candidate, None))
            self.release()
        return results

    def time_network(
        self, library: Path, inputs: Path, *, sampling_sec: float, timeout_sec: float
    ) -> dict[str, Any]:
        """Time a whole network on the device, in a session of its own.

        Args:
            library: The network's library.
            inputs: The file of its inputs.
            sampling_sec: Seconds of sampling, after a first inference; a slow network gets three samples all the same.
            timeout_sec: Seconds that the session may last.

        Returns:
            The reply of ``time_network`` of `tvm.children.measure`.

        Raises:
            DeviceLostError: If the device is away.
            RunFailed: If the network crashed, or exceeded its time.
        """
        self.release()
        self._child.allow(library.absolute().parent, inputs.absolute().parent)
        if (problem := self._connect(timeout_sec)) is not None:
            raise DeviceLostError(problem.message)
        params = {
            "path": str(library),
            "inputs": str(inputs),
            "kind": self._remote.kind,
            "threads": self._remote.info.num_cores,
            "sampling_sec": sampling_sec,
        }
        try:
            reply: dict[str, Any] = self._child.call(
                "time_network", params, timeout_sec=timeout_sec + _GRACE_SEC
            )
        except ChildClosed:
            raise
        except ChildTimedOut:
            raise RunFailed(f"it was not timed within {timeout_sec:g} s", code="run-timeout") from None
        except ChildFailed as error:
            raise RunFailed(error.message, code="run-crashed") from error
        if "failure" not in reply:
            return reply
        failure = Failure.from_json(reply["failure"])
        if failure.outcome is Outcome.INFRASTRUCTURE_ERROR:
            raise DeviceLostError(failure.message, code=BROKE_PROTOCOL if _is_attack(failure) else None)
        crashed = failure.outcome is Outcome.RUN_CRASH
        raise RunFailed(failure.message, code="run-crashed" if crashed else "run-failed")

    def check(self) -> str | None:
        """Open and close a session; return what is wrong with the device, in words, or None."""
        problem = self.find_problem()
        return None if problem is None else problem.message

    def find_problem(self) -> Failure | None:
        """Open and close a session; return what is wrong with the device, or None."""
        return self._connect(self._timing.timeout_sec) or self._hang_up()

    def release(self) -> None:
        if self._left > 0:
            self._hang_up()

    def _hang_up(self) -> Failure | None:
        self._left = 0
        try:
            self._child.call("hang_up", {}, timeout_sec=self._connect_timeout_sec)
        except TunefarmError as error:
            return Failure.of(error)
        return None

    def _allow(self, inputs: Sequence[MeasureInput]) -> None:
        """Let the child read the kernels: those of a builder are in one folder."""
        if self._child.allow(*folders_of(inputs)):
            self._left = 0  # its session ended with it

    def _run(self, candidate: MeasureInput, rival_sec: float | None) -> MeasureResult:
        if self._left > 0 and time.monotonic() + self._timing.timeout_sec < self._until:
            result, _ = self._measure(candidate, rival_sec)
            if result.failure is None or _is_attack(result.failure):
                return result
            # An earlier candidate may have broken the session: measure again in a new one.
        sharing = 1 if self._remote.fence is None else _CANDIDATES_PER_SESSION
        timeout_sec = sharing * self._timing.timeout_sec
        problem = self._connect(timeout_sec)
        if problem is not None:
            return MeasureResult(run_sec=0.0, failure=problem)
        self._left, self._until = sharing, time.monotonic() + timeout_sec
        result, is_device_suspected = self._measure(candidate, rival_sec)
        return self._blame(result) if is_device_suspected else result

    def _measure(self, candidate: MeasureInput, rival_sec: float | None) -> tuple[MeasureResult, bool]:
        """Measure in the open session; return the result, and whether the device may have caused a failure.

        The session stays open for the next candidate unless this one failed.
        """
        self._left -= 1
        params = measure_params(candidate, self._timing, rival_sec, self._remote.clock_mhz)
        params["keep"] = self._left > 0
        started = time.monotonic()
        result, is_device_suspected = self._ask(params, started)
        if result.failure is not None:
            self._left = 0
        return replace(result, origin=self._origin), is_device_suspected

    def _ask(self, params: dict[str, Any], started: float) -> tuple[MeasureResult, bool]:
        timeout_sec = self._timing.timeout_sec
        try:
            reply = self._child.call("measure", params, timeout_sec=timeout_sec + _GRACE_SEC)
        except ChildClosed:
            return failed(Outcome.INFRASTRUCTURE_ERROR, "the runner was closed"), False
        except ChildTimedOut:
            message = f"was not done within {timeout_sec:g} s"
            return failed(Outcome.RUN_TIMEOUT, message, time.monotonic() - started), True
        except ChildFailed as error:
            return failed(Outcome.RUN_CRASH, error.message, time.monotonic() - started), True
        except DeviceLostError as error:
            return MeasureResult(run_sec=time.monotonic() - started, failure=Failure.of(error)), False
        except TunefarmError as error:
            return failed(Outcome.RUN_ERROR, error.message, time.monotonic() - started), False
        return result_of(reply, time.monotonic() - started), bool(reply.get("session_lost"))

    def _blame(self, result: MeasureResult) -> MeasureResult:
        """Return the candidate's failure if the device works, else the device's."""
        address = self._address
        problem = self.find_problem()
        if problem is None and self._remote.fence is not None and self._address != address:
            # The server of a device under a lease runs once, and outlives any crash of a session.
            problem = _lost("the device's server was restarted during the measurement")
        if problem is None:
            return result
        why = result.failure.message if result.failure is not None else ""
        message = f"{problem.message} (before that, the candidate: {why})"
        return MeasureResult(run_sec=result.run_sec, failure=replace(problem, message=message))

    def _connect(self, timeout_sec: float) -> Failure | None:
        """Open a session of `timeout_sec` in the child; return what went wrong, or None."""
        try:
            self._child.start()  # a ticket does not last long
            opening = self._remote.opening(self._child.relay_key)
            reply = self._child.call(
                "connect",
                {
                    "address": opening,
                    "timeout_sec": timeout_sec,
                    "connect_timeout_sec": self._connect_timeout_sec,
                },
                # A little longer than the child's own limit: its message says more.
                timeout_sec=self._connect_timeout_sec + 1.0,
            )
            self._origin = self._remote.origin_of(opening, reply.get("receipt"))
        except ChildClosed:
            return _lost("the runner was closed")
        except ChildTimedOut:
            return _lost(
                f"device {self._remote.key} opened no session within {self._connect_timeout_sec:g} s"
            )
        except TunefarmError as error:
            return Failure.of(error)
        self._address = (reply["host"], reply["port"])
        self._is_here = is_own_address(reply["host"])
        return None

    def close(self) -> None:
        """End the child and its session, from any thread. A running measurement then ends at once."""
        self._child.close()


def _lost(message: str) -> Failure:
    return Failure(Outcome.INFRASTRUCTURE_ERROR, message)


def _is_attack(failure: Failure) -> bool:
    return failure.code == BROKE_PROTOCOL
