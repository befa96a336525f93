"""`RpcRunner`: times kernels on a device that is reached over TVM RPC."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from tunefarm_tuning.child import ChildClosed, ChildFailed, ChildProcess, ChildTimedOut
from tunefarm_tuning.device import RemoteDevice
from tunefarm_tuning.errors import TunefarmError
from tunefarm_tuning.measure import Closing, DeviceInfo, MeasureInput, MeasureResult, Outcome, TimingOption
from tunefarm_tuning.runner.own_address import is_own_address
from tunefarm_tuning.runner.timing import (
    Rivals,
    failed,
    interleaved_params,
    interleaved_results,
    measure_params,
    result_of,
)

_MODULE = "tunefarm_tuning.tvm_side.measure_child"
_GRACE_SEC = 3.0
"""The device ends an overlong session by itself; only when it has not by then is our own child killed."""


class RpcRunner(Closing):
    """Implements `Runner` (see there) for a device at a tracker.

    Each candidate gets a session of its own (12 ms), which the device gives a process of its own. When a session
    breaks, a fresh one is tried: a device that answers had a kernel crash (`Outcome.RUN_CRASH`) or hang
    (`RUN_TIMEOUT`), one that does not is lost (`INFRASTRUCTURE_ERROR`, for the rest of the batch too; the next
    batch tries again).

    Args:
        device: Nobody else may be using it: its tracker would keep us waiting.
        timing: How long each candidate is timed.
        connect_timeout_sec: How long the device may take to open a session, also after a crash.
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
        self._child = ChildProcess(_MODULE)
        # Until its tracker has told where it is, it may be here.
        self._is_here = True

    def use_lease(self, fence: int | None) -> None:
        """Open sessions under this lease of the device from now on (`RemoteDevice.fence`)."""
        self._remote = replace(self._remote, fence=fence)

    @property
    def device(self) -> DeviceInfo:
        return self._remote.info

    @property
    def shares_host(self) -> bool:
        return self._remote.kind == "cpu" and self._is_here

    def run(self, inputs: Sequence[MeasureInput]) -> list[MeasureResult]:
        rivals = Rivals()
        return self._run_all(inputs, rivals.of, rivals.add)

    def run_interleaved(self, inputs: Sequence[MeasureInput], *, rounds: int) -> list[MeasureResult]:
        if not inputs:
            return []
        params = interleaved_params(inputs, self._timing, rounds)
        timeout_sec = self._timing.timeout_sec * len(inputs)
        results: list[MeasureResult] | None = None
        if self._connect(timeout_sec) is None:
            started = time.monotonic()
            # Whatever goes wrong, the candidates' own measurements say it.
            with contextlib.suppress(TunefarmError):
                reply = self._child.call("measure_interleaved", params, timeout_sec=timeout_sec + _GRACE_SEC)
                results = interleaved_results(reply, time.monotonic() - started)
        return results if results is not None else self._run_all(inputs, lambda _: None, lambda *_: None)

    def _run_all(
        self,
        inputs: Sequence[MeasureInput],
        rival_of: Callable[[MeasureInput], float | None],
        add: Callable[[MeasureInput, MeasureResult], None],
    ) -> list[MeasureResult]:
        results: list[MeasureResult] = []
        lost: str | None = None
        for one in inputs:
            if lost is not None:
                results.append(failed(Outcome.INFRASTRUCTURE_ERROR, lost))
                continue
            result = self._run(one, rival_of(one))
            results.append(result)
            add(one, result)
            if result.failure is not None and result.failure.outcome is Outcome.INFRASTRUCTURE_ERROR:
                lost = result.failure.message
        return results

    def check(self) -> str | None:
        """Open and close a session; return what is wrong with the device, None if nothing is."""
        problem = self._connect(self._timing.timeout_sec)
        if problem is None:
            try:
                self._child.call("hang_up", {}, timeout_sec=self._connect_timeout_sec)
            except TunefarmError as error:
                problem = error.message
        return problem

    def _run(self, one: MeasureInput, rival_sec: float | None) -> MeasureResult:
        problem = self._connect(self._timing.timeout_sec)
        if problem is not None:
            return failed(Outcome.INFRASTRUCTURE_ERROR, problem)
        started = time.monotonic()
        try:
            reply = self._child.call(
                "measure",
                measure_params(one, self._timing, rival_sec),
                timeout_sec=self._timing.timeout_sec + _GRACE_SEC,
            )
        except ChildClosed:
            return failed(Outcome.INFRASTRUCTURE_ERROR, "the runner was closed")
        except ChildTimedOut:
            message = f"was not done within {self._timing.timeout_sec:g} s"
            return self._blame(failed(Outcome.RUN_TIMEOUT, message, time.monotonic() - started))
        except ChildFailed as error:
            return self._blame(failed(Outcome.RUN_CRASH, error.message, time.monotonic() - started))
        except TunefarmError as error:
            return failed(Outcome.RUN_ERROR, error.message, time.monotonic() - started)
        result = result_of(reply, time.monotonic() - started)
        return self._blame(result) if reply.get("session_lost") else result

    def _blame(self, result: MeasureResult) -> MeasureResult:
        """Return the candidate's failure if the device is well, else the device's."""
        problem = self.check()
        if problem is None:
            return result
        why = result.failure.message if result.failure is not None else ""
        return failed(
            Outcome.INFRASTRUCTURE_ERROR, f"{problem} (before that, the candidate: {why})", result.run_sec
        )

    def _connect(self, timeout_sec: float) -> str | None:
        """Open a session of `timeout_sec` in the child; return what went wrong."""
        try:
            reply = self._child.call(
                "connect",
                {
                    "address": self._remote.to_json(),
                    "timeout_sec": timeout_sec,
                    "connect_timeout_sec": self._connect_timeout_sec,
                },
                # A little more: the child knows better what it waits for.
                timeout_sec=self._connect_timeout_sec + 1.0,
            )
        except ChildClosed:
            return "the runner was closed"
        except ChildTimedOut:
            return f"device {self._remote.key} opened no session within {self._connect_timeout_sec:g} s"
        except TunefarmError as error:
            return error.message
        self._is_here = is_own_address(reply["host"])
        return None

    def close(self) -> None:
        """End the child, and with it the session. From any thread; a measurement under way then ends at once."""
        self._child.close()
