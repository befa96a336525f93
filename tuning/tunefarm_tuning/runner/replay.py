"""A runner without a device: answers from records, or from any function of the config."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from tunefarm_tuning.config import Config
from tunefarm_tuning.measure import Closing, DeviceInfo, Failure, MeasureInput, MeasureResult, Outcome
from tunefarm_tuning.record import TuningRecord
from tunefarm_tuning.runner.timing import check_one_task
from tunefarm_tuning.task import TuningTask

Answer = Callable[[TuningTask, Config], "tuple[float, ...] | Failure"]
"""The samples of a config in seconds, or why there are none."""

REPLAY_DEVICE = DeviceInfo(model="replay", num_cores=1, name="replay")


class ReplayRunner(Closing):
    """Implements `Runner` for what a `ReplayBuilder` built.

    Args:
        answer: What a measurement of the config would have said.
        device: Whose timings these are.
        shares_host: As of a device that is this machine, or of one that is not.
    """

    def __init__(
        self, answer: Answer, *, device: DeviceInfo = REPLAY_DEVICE, shares_host: bool = True
    ) -> None:
        self._answer = answer
        self._device = device
        self._shares_host = shares_host

    @property
    def device(self) -> DeviceInfo:
        return self._device

    @property
    def shares_host(self) -> bool:
        return self._shares_host

    def run(self, inputs: Sequence[MeasureInput]) -> list[MeasureResult]:
        results: list[MeasureResult] = []
        lost: Failure | None = None
        for one in inputs:
            answer = lost or self._measure(one)
            if isinstance(answer, Failure):
                results.append(MeasureResult(run_sec=0.0, failure=answer))
                lost = answer if answer.outcome is Outcome.INFRASTRUCTURE_ERROR else None
            else:
                results.append(MeasureResult(run_sec=sum(answer), samples_sec=answer))
        return results

    def run_interleaved(self, inputs: Sequence[MeasureInput], *, rounds: int) -> list[MeasureResult]:
        """Answer as `run` does, each sample as often as it takes for `rounds` of them."""
        check_one_task(inputs)
        results = []
        for result in self.run(inputs):
            given = result.samples_sec
            samples = tuple(given[i % len(given)] for i in range(rounds)) if given else ()
            results.append(replace(result, samples_sec=samples))
        return results

    def _measure(self, one: MeasureInput) -> tuple[float, ...] | Failure:
        try:
            config = Config.from_json(json.loads(one.artifact_path.read_text(encoding="utf-8")))
        except (OSError, ValueError) as error:
            return Failure(Outcome.RUN_ERROR, f"cannot load {one.artifact_path.name}: {type(error).__name__}")
        return self._answer(one.task, config)

    def close(self) -> None:
        """Nothing is held."""


def answer_from_records(records: Iterable[TuningRecord]) -> Answer:
    """Return an answer that replays records; a config without one is a run error.

    Where a config was measured several times, its last record counts.
    """
    held = {(r.workload_key, r.config.key): r for r in records}

    def answer(task: TuningTask, config: Config) -> tuple[float, ...] | Failure:
        record = held.get((task.workload.key, config.key))
        if record is None:
            return Failure(Outcome.RUN_ERROR, "there is no record of this config")
        if record.outcome is not Outcome.OK:
            return Failure(record.outcome, record.message)
        return record.samples_sec

    return answer
