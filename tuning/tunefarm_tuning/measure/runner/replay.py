"""`ReplayRunner`: a runner without a device. It answers from records (`Recording`), or from any function of the config."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import cycle, islice

from tunefarm_tuning.core.cancellation import Closing
from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.measure.interfaces import DeviceInfo, Failure, MeasureInput, MeasureResult
from tunefarm_tuning.measure.runner.timing import check_one_task, measure_each
from tunefarm_tuning.records.record import TuningRecord
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.workload.task import TuningTask

Answer = Callable[[TuningTask, Config], "tuple[float, ...] | Failure | MeasureResult"]
"""Given a config, returns its samples in seconds, or a failure, or a complete measurement, which is replayed in its `run_sec`."""

_HOPELESS_RATIO = 3.0
"""A measurement is cut short if a single call shows that the kernel is hopeless (see `kernel_timing`)."""

REPLAY_DEVICE = DeviceInfo(model="replay", num_cores=1, name="replay")


class ReplayRunner(Closing):
    """Implements `Runner` for the artifacts of a `ReplayBuilder`.

    Args:
        answer: The measurement of a config.
        device: The device that the timings are recorded under.
        shares_host: `Runner.shares_host`.
        wait: Waits for the seconds of a measurement; a test's own may return early.
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
        return measure_each(inputs, self._measure)

    def run_interleaved(self, inputs: Sequence[MeasureInput], *, rounds: int) -> list[MeasureResult]:
        """Answer as `run` does; samples are repeated until there are `rounds` of them."""
        check_one_task(inputs)
        results = [self._measure(candidate, None) for candidate in inputs]
        if any(result.failure is not None for result in results):
            return results
        return [
            replace(result, samples_sec=tuple(islice(cycle(result.samples_sec), rounds)), truncated=False)
            for result in results
        ]

    def _measure(self, candidate: MeasureInput, rival_sec: float | None) -> MeasureResult:
        try:
            config = Config.from_json(json.loads(candidate.artifact_path.read_text(encoding="utf-8")))
        except (OSError, ValueError) as error:
            message = f"cannot load {candidate.artifact_path.name}: {type(error).__name__}"
            return _failed(Failure(Outcome.RUN_ERROR, message))
        answer = self._answer(candidate.task, config)
        if isinstance(answer, Failure):
            return _failed(answer)
        if not isinstance(answer, MeasureResult):
            return MeasureResult(run_sec=sum(answer), samples_sec=answer)
        self._wait(answer.run_sec)
        cost_sec = answer.cost_sec
        if (
            cost_sec is None
            or rival_sec is None
            or answer.truncated
            or cost_sec <= _HOPELESS_RATIO * rival_sec
        ):
            return answer
        return replace(answer, samples_sec=answer.samples_sec[:1], truncated=True)

    def release(self) -> None:
        """Do nothing: nothing is held."""

    def close(self) -> None:
        """Do nothing: nothing is held."""


def _failed(failure: Failure) -> MeasureResult:
    return MeasureResult(run_sec=0.0, failure=failure)


class Recording:
    """Records by workload and config, for a `ReplayBuilder` (`build`) and a `ReplayRunner` (`measure`).

    If a config was measured several times, its last record counts.

    Args:
        records: The records. ``run_sec`` in a record's `extra` is the wall-clock of its measurement.
        scale: Factor for the seconds of building and of measuring; samples are not scaled.
        stand_ins: Whether a config without a record gets another record of its workload, always the same one, so that a tuner may
            propose any config. Otherwise its measurement is a run error.
    """

    def __init__(
        self, records: Iterable[TuningRecord], *, scale: float = 1.0, stand_ins: bool = False
    ) -> None:
        self._scale = scale
        self._stand_ins = stand_ins
        self._held: dict[str, dict[str, TuningRecord]] = {}
        for record in records:
            self._held.setdefault(record.workload_key, {})[record.config.key] = record
        self._all = {key: tuple(held.values()) for key, held in self._held.items()}

    def find(self, task: TuningTask, config: Config) -> TuningRecord | None:
        """Return the record that answers for a config; None if there is none."""
        key = config.key
        record = self._held.get(task.workload.key, {}).get(key)
        if record is not None or not self._stand_ins or not (others := self._all.get(task.workload.key)):
            return record
        return others[int.from_bytes(hashlib.sha256(key.encode()).digest()[:6], "big") % len(others)]

    def build(self, task: TuningTask, config: Config) -> tuple[float, Failure | None]:
        """Return the seconds of building a config, and its failure; zero and None if there is no record."""
        record = self.find(task, config)
        if record is None:
            return 0.0, None
        failed = record.outcome.is_build_failure
        return (record.build_sec * self._scale, Failure(record.outcome, record.message) if failed else None)

    def measure(self, task: TuningTask, config: Config) -> MeasureResult | Failure:
        """Return the measurement of a config, with the seconds that it took: an `Answer`."""
        record = self.find(task, config)
        if record is None:
            return Failure(Outcome.RUN_ERROR, "there is no record of this config")
        run_sec = record.extra.get("run_sec")
        took_sec = float(run_sec) if isinstance(run_sec, int | float) else sum(record.samples_sec)
        return MeasureResult(
            run_sec=took_sec * self._scale,
            samples_sec=record.samples_sec,
            failure=None if record.outcome is Outcome.OK else Failure(record.outcome, record.message),
            truncated=record.extra.get("truncated") is True,
        )
