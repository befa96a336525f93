"""A runner without a device: answers from records, or from any function of the config."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import cycle, islice

from tunefarm_tuning.core.cancellation import Closing
from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.measure.interfaces import DeviceInfo, Failure, MeasureInput, MeasureResult
from tunefarm_tuning.measure.runner.recording import Recording
from tunefarm_tuning.measure.runner.timing import Rivals, check_one_task
from tunefarm_tuning.records.record import TuningRecord
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.workload.task import TuningTask

Answer = Callable[[TuningTask, Config], "tuple[float, ...] | Failure | MeasureResult"]
"""The samples of a config in seconds, or why there are none; or a whole measurement, which takes its `run_sec` again."""

_REACH = 3.0
"""A measurement is cut short where a single call would be (see `adaptive_timing`)."""

REPLAY_DEVICE = DeviceInfo(model="replay", num_cores=1, name="replay")


class ReplayRunner(Closing):
    """Implements `Runner` for what a `ReplayBuilder` built.

    Args:
        answer: What a measurement of the config would have said.
        device: Whose timings these are.
        shares_host: As of a device that is this machine, or of one that is not.
        wait: Lets the seconds of a measurement pass; return early from it to end it.
    """

    def __init__(
        self,
        answer: Answer,
        *,
        device: DeviceInfo = REPLAY_DEVICE,
        shares_host: bool = True,
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        self._answer = answer
        self._device = device
        self._shares_host = shares_host
        self._wait = wait

    @property
    def device(self) -> DeviceInfo:
        return self._device

    @property
    def shares_host(self) -> bool:
        return self._shares_host

    def run(self, inputs: Sequence[MeasureInput]) -> list[MeasureResult]:
        results: list[MeasureResult] = []
        rivals = Rivals()
        lost: Failure | None = None
        for one in inputs:
            result = self._measure(one, rivals.of(one)) if lost is None else _failed(lost)
            if result.failure is not None and result.failure.outcome is Outcome.INFRASTRUCTURE_ERROR:
                lost = result.failure
            rivals.add(one, result)
            results.append(result)
        return results

    def run_interleaved(self, inputs: Sequence[MeasureInput], *, rounds: int) -> list[MeasureResult]:
        """Answer as `run` does, each sample as often as it takes for `rounds` of them."""
        check_one_task(inputs)
        results = [self._measure(one, None) for one in inputs]
        if any(result.failure is not None for result in results):
            return results
        return [
            replace(result, samples_sec=tuple(islice(cycle(result.samples_sec), rounds)), truncated=False)
            for result in results
        ]

    def _measure(self, one: MeasureInput, rival_sec: float | None) -> MeasureResult:
        try:
            config = Config.from_json(json.loads(one.artifact_path.read_text(encoding="utf-8")))
        except (OSError, ValueError) as error:
            message = f"cannot load {one.artifact_path.name}: {type(error).__name__}"
            return _failed(Failure(Outcome.RUN_ERROR, message))
        answer = self._answer(one.task, config)
        if isinstance(answer, Failure):
            return _failed(answer)
        if not isinstance(answer, MeasureResult):
            return MeasureResult(run_sec=sum(answer), samples_sec=answer)
        self._wait(answer.run_sec)
        cost_sec = answer.cost_sec
        if cost_sec is None or rival_sec is None or answer.truncated or cost_sec <= _REACH * rival_sec:
            return answer
        return replace(answer, samples_sec=answer.samples_sec[:1], truncated=True)

    def release(self) -> None:
        """Do nothing: nothing is held."""

    def close(self) -> None:
        """Do nothing: nothing is held."""


def _failed(failure: Failure) -> MeasureResult:
    return MeasureResult(run_sec=0.0, failure=failure)


def answer_from_records(records: Iterable[TuningRecord]) -> Answer:
    """Return an answer that replays records at once; a config without one is a run error.

    See `Recording` for measurements that take their time.
    """
    recording = Recording(records)

    def answer(task: TuningTask, config: Config) -> tuple[float, ...] | Failure:
        found = recording.measure(task, config)
        return found if isinstance(found, Failure) else found.failure or found.samples_sec

    return answer
