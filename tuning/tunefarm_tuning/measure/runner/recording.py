"""Measurements that were made once, to be made again without a device: what they said, and how long they took."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.measure.interfaces import Failure, MeasureResult
from tunefarm_tuning.records.record import TuningRecord
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.workload.task import TuningTask

_OF_THE_BUILD = (
    Outcome.INSTANTIATION_ERROR,
    Outcome.BUILD_ERROR,
    Outcome.BUILD_TIMEOUT,
    Outcome.BUILD_CRASH,
)


class Recording:
    """Records by workload and config, as a `ReplayBuilder` (`build`) and a `ReplayRunner` (`measure`) ask for them.

    Where a config was measured several times, its last record counts.

    Args:
        records: What was measured. ``run_sec`` in a record's `extra` is what the measurement took.
        scale: What the seconds of building and of measuring are multiplied by; samples stay as they are.
        stand_ins: A config without a record gets one of the workload's others, always the same: then a tuner may
            propose what it likes. Otherwise its measurement ends in a run error.
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
        """Return the record that answers for a config; None where none does."""
        key = config.key
        record = self._held.get(task.workload.key, {}).get(key)
        if record is not None or not self._stand_ins or not (others := self._all.get(task.workload.key)):
            return record
        return others[int.from_bytes(hashlib.sha256(key.encode()).digest()[:6], "big") % len(others)]

    def build(self, task: TuningTask, config: Config) -> tuple[float, Failure | None]:
        """Return what building the config took, and why it failed if it did; nothing where there is no record."""
        record = self.find(task, config)
        if record is None:
            return 0.0, None
        failed = record.outcome in _OF_THE_BUILD
        return (
            record.build_sec * self._scale,
            Failure(record.outcome, record.message) if failed else None,
        )

    def measure(self, task: TuningTask, config: Config) -> MeasureResult | Failure:
        """Return what measuring the config said and took: an `Answer`."""
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
