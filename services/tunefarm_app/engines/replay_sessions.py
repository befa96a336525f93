"""Replayed measurements behind real sessions: everything on the way to a device is used, and only the kernels' times are not its own."""

from __future__ import annotations

from collections.abc import Sequence

from tunefarm_tuning.core.cancellation import Cancellation, Closing
from tunefarm_tuning.core.errors import DeviceLostError
from tunefarm_tuning.measure.device import RemoteDevice
from tunefarm_tuning.measure.interfaces import DeviceInfo, Failure, MeasureInput, MeasureResult, Runner
from tunefarm_tuning.measure.runner.rpc import RpcRunner


class SessionRunner(Closing):
    """Implements `Runner`: before each batch it opens a session on the device, as a runner of kernels does, then lets another answer.

    The session takes a ticket of the device's lease, goes through the gateway, and asks a GPU for its state. If it is not opened,
    the batch has that infrastructure error.

    Args:
        remote: The device, under a lease of the caller's.
        answers: Gives the results.
    """

    def __init__(self, remote: RemoteDevice, answers: Runner) -> None:
        self._sessions = RpcRunner(remote)
        self._answers = answers

    @property
    def device(self) -> DeviceInfo:
        return self._answers.device

    @property
    def shares_host(self) -> bool:
        return self._answers.shares_host

    def run(self, inputs: Sequence[MeasureInput]) -> list[MeasureResult]:
        problem = self._sessions.find_problem()
        return self._answers.run(inputs) if problem is None else _lost(problem, len(inputs))

    def run_interleaved(self, inputs: Sequence[MeasureInput], *, rounds: int) -> list[MeasureResult]:
        problem = self._sessions.find_problem()
        if problem is not None:
            return _lost(problem, len(inputs))
        return self._answers.run_interleaved(inputs, rounds=rounds)

    def release(self) -> None:
        self._sessions.release()
        self._answers.release()

    def close(self) -> None:
        """End the session's child, from any thread."""
        self._sessions.close()
        self._answers.close()


def check_session(remote: RemoteDevice, cancellation: Cancellation) -> None:
    """Open and close a session on a device.

    Raises:
        DeviceLostError: If it opens none.
    """
    with RpcRunner(remote) as sessions, cancellation.attach(sessions):
        problem = sessions.check()
    if problem is not None:
        raise DeviceLostError(problem)


def _lost(problem: Failure, count: int) -> list[MeasureResult]:
    return [MeasureResult(run_sec=0.0, failure=problem)] * count
