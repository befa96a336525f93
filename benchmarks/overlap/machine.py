"""A replayed machine: every config of a recorded task has a cost, a build time and a measuring time.

They are those of the recorded trials that are nearest to it in what a cost model sees, so that there is something to
learn, as on a real machine; and what is near to a good kernel is good.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

import numpy as np
from benchmarks.scale.record import load_recording

from tunefarm_app.engines.recorded_tasks import RecordedTask
from tunefarm_tuning.cost_model.features import FeatureMap
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.space.config_space import ConfigSpace
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.workload.task import TuningTask, Workload

_NEAREST = 3
_ROUGH = 0.1  # two configs with equal neighbours are not equally fast


class RecordedKernel:
    """One task of a recorded model."""

    def __init__(self, recorded: RecordedTask) -> None:
        self.space = ConfigSpace.from_json(recorded.space)
        workload = Workload(
            key=f"recorded-{recorded.name}", name=recorded.name, flops=recorded.flops, args=(), ir="{}"
        )
        self.task = TuningTask(workload=workload, target=Target(kind="llvm"), weight=recorded.weight)
        self._features = FeatureMap(self.space)
        rows, costs, secs = [], [], []
        for config, _, samples_sec, build_sec, run_sec, _ in recorded.trials:
            row = self.space.row_of(Config.from_json(config))
            if row is not None and samples_sec:
                rows.append(row)
                costs.append(float(np.median(samples_sec)))
                secs.append((build_sec, run_sec))
        known = self._known(np.array(rows))
        spread = known.std(axis=0)
        self._scale = np.where(spread > 0, 1 / np.maximum(spread, 1e-6), 0.0)
        self._points = known * self._scale
        self._costs = np.log(costs)
        self.num_recorded = len(costs)
        self._secs = np.array(secs)
        self.answer = lru_cache(maxsize=1 << 14)(self._answer)

    def _known(self, rows: np.ndarray) -> np.ndarray:
        return np.nan_to_num(self._features(rows), nan=0.0)

    def _answer(self, config: Config) -> tuple[float, float, float]:
        """Return a config's cost, and how long building and measuring it take, in seconds."""
        row = self.space.row_of(config)
        assert row is not None
        away = ((self._known(row[None])[0] * self._scale - self._points) ** 2).sum(axis=1)
        near = np.argsort(away, kind="stable")[:_NEAREST]
        share = 1 / (away[near] + 1e-3)
        share /= share.sum()
        chance = int.from_bytes(hashlib.sha256(config.key.encode()).digest()[:4], "big") / 2**32
        build_sec, run_sec = share @ self._secs[near]
        return (
            float(np.exp(share @ self._costs[near]) * (1 + _ROUGH * chance)),
            float(build_sec),
            float(run_sec),
        )


def recorded_kernels() -> list[RecordedKernel]:
    """Return the tasks of the recorded model that have more than one trial to tell anything by."""
    return [
        RecordedKernel(recorded_task) for recorded_task in load_recording() if len(recorded_task.trials) > 1
    ]
