"""Search led by a gradient-boosted cost model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import ClassVar

import numpy as np

from tunefarm_tuning.config import Config
from tunefarm_tuning.config_space import ConfigSpace
from tunefarm_tuning.cost_model.base import CostModel, FloatArray
from tunefarm_tuning.cost_model.features import FeatureMap
from tunefarm_tuning.factorization import IntArray
from tunefarm_tuning.record import TuningRecord
from tunefarm_tuning.tuner.annealing import anneal
from tunefarm_tuning.tuner.search import SearchTuner
from tunefarm_tuning.tuner.space_filling import space_filling_rows

_CHAINS = 1024
_STEPS = 24


class XGBTuner(SearchTuner):
    """Fits a ranking of the trials so far, anneals over its predictions, and measures the best of them.

    The first batch fills the space; with history there is none. A share of each batch is random, and no two of
    a batch differ in one knob alone.

    Args:
        space: What to search.
        seed: Of all chance.
        num_initial: Trials before the model is first asked.
        epsilon: Random share of a batch; one at least where the batch has four or more.
        num_threads: Of the model.
        model: Another cost model; XGBoost's ranking if left out.

    Source: ``autotvm.tuner.XGBTuner`` (TVM v0.19): there, 64 blind trials come first.
    """

    name: ClassVar[str] = "xgb"

    def __init__(
        self,
        space: ConfigSpace,
        *,
        seed: int = 0,
        num_initial: int = 16,
        epsilon: float = 0.1,
        num_threads: int = 1,
        model: CostModel | None = None,
    ) -> None:
        super().__init__(space, seed=seed)
        self._num_initial = num_initial
        self._epsilon = epsilon
        if model is None:
            from tunefarm_tuning.cost_model.xgb import XGBCostModel

            model = XGBCostModel(seed=seed, num_threads=num_threads)
        self._model: CostModel = model
        self._features = FeatureMap(space)
        self._history: dict[tuple[str, str, str], dict[str, tuple[IntArray, float | None]]] = {}
        self._fitted_on: tuple[int, int] | None = None

    def load_history(self, records: Iterable[TuningRecord]) -> None:
        """Learn from records on this very space, of whatever device; others are left out."""
        for record in records:
            row = self.space.row_of(record.config) if record.space_key == self.space.key else None
            if row is not None:
                group = (record.target_key, record.device_model, record.toolchain)
                self._history.setdefault(group, {})[record.config.key] = (row, record.cost_sec)

    def _propose(self, n: int, rng: np.random.Generator) -> Iterator[Config]:
        if not self._history and len(self._results) < self._num_initial:
            plan = space_filling_rows(self.space, self._num_initial, np.random.default_rng(self.seed))
            yield from self.space.configs(plan)
            return
        if not self._fit():
            return
        num_random = round(self._epsilon * n) or int(n >= 4)
        if len(self._results) < n:
            yield from islice(self._fastest_of_history(), n // 2)
        yield from islice(self._unknown(self._predicted_best(n, rng)), n - num_random)
        yield from self.random_configs(rng, num_random)

    def _unknown(self, configs: Iterable[Config]) -> Iterator[Config]:
        return (config for config in configs if config.key not in self._known)

    def _fastest_of_history(self) -> Iterator[Config]:
        """Yield the best of each group of the history in turn: what was fast elsewhere is worth a try here."""
        ranked = []
        for group in self._history.values():
            timed = [(cost, row) for row, cost in group.values() if cost is not None]
            ranked.append([row for _, row in sorted(timed, key=lambda pair: pair[0])[:_CHAINS]])
        for place in range(max(map(len, ranked), default=0)):
            yield from self.space.configs(np.array([rows[place] for rows in ranked if place < len(rows)]))

    def _predicted_best(self, n: int, rng: np.random.Generator) -> Iterator[Config]:
        """Yield configs from the best prediction down, leaving out those that are almost one already yielded."""
        starts = self.space.sample_rows(rng, _CHAINS)
        tried = self.fastest_rows(_CHAINS // 32)
        if len(tried):
            half = rng.integers(len(tried), size=_CHAINS // 2)
            starts[: _CHAINS // 2] = tried[half]
        best = anneal(self.space, self._score, starts, rng, steps=_STEPS, keep=64 * n)
        yielded = best[:0]
        late = []
        for row in best:
            if len(yielded) and self.space.distances(row[None], yielded).min() < 2:
                late.append(row)
                continue
            config = self.space.configs(row[None])[0]
            if config.key not in self._known:
                yielded = np.concatenate([yielded, row[None]])
                yield config
        if late:  # a small space
            yield from self.space.configs(np.array(late))

    def _score(self, rows: IntArray) -> FloatArray:
        return self._model.predict(self._features(rows))

    def _fit(self) -> bool:
        """Fit the model to all that is known; False where nothing was ever timed."""
        state = (len(self._results), sum(len(group) for group in self._history.values()))
        if self._fitted_on == state:
            return True
        groups = [list(group.values()) for group in self._history.values()]
        here = [(self.space.row_of(r.config), r.cost_sec) for r in self._results.values()]
        groups.append([(row, cost) for row, cost in here if row is not None])
        rows, throughputs, numbers = [], [], []
        for number, group in enumerate(groups):
            costs = [cost for _, cost in group if cost is not None]
            if not costs:  # nothing but failures: no order within the group
                continue
            best = min(costs)
            for row, cost in group:
                rows.append(row)
                throughputs.append(0.0 if cost is None else best / cost)
                numbers.append(number)
        if len(rows) < 2:
            return False
        self._model.fit(
            self._features(np.array(rows)),
            np.array(throughputs, dtype=np.float32),
            np.array(numbers, dtype=np.int64),
        )
        self._fitted_on = state
        return True
