"""`XGBTuner`: search led by a gradient-boosted cost model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import ClassVar

import numpy as np

from tunefarm_tuning.cost_model.base import CostModel, FloatArray
from tunefarm_tuning.cost_model.trial_data import TrialData
from tunefarm_tuning.records.transfer import TaskHistory
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.space.config_space import ConfigSpace
from tunefarm_tuning.space.factorization import IntArray
from tunefarm_tuning.space.gpu_tiling import draw_fitting
from tunefarm_tuning.space.knob import Knob
from tunefarm_tuning.tuner.annealing import anneal
from tunefarm_tuning.tuner.search_tuner import SearchTuner

_CHAINS = 256
_STEPS = 12
_PER_RANDOM_PICK = 16

_THRIFT = 0.15
"""Doublings of throughput that compensate for a doubled trial time, in the first batch."""

_THRIFT_HALVES_AFTER = 32
"""Trials after which seconds count half as much: the very fastest kernels may be among those that take long to build."""


class XGBTuner(SearchTuner):
    """Fits a cost model to the trials so far, anneals over its predictions, and proposes the best predicted configs.

    If there is neither a prior for this kind of loop nest nor history, the first batch is spread over the space. A share of
    each batch explores: random configs, and the best predicted of a few random ones. Among the other configs no two differ
    in one knob only, if there are enough others. Configs whose trials should take long (mostly to build far unrolled loops)
    are put off while quicker ones promise about as much; ever less so as trials accumulate.

    Args:
        num_initial: Configs to spread over the space before the model can be fitted, which is after the first batch.
        epsilon: Share of a batch that explores; at least one config of a batch of four or more.
        num_threads: Number of threads of the model.
        model: Cost model; XGBoost's regression by default.
        use_prior: Whether to start from the prior of loop nests in general (`cost_model.prior`).

    Source: ``autotvm.tuner.XGBTuner`` (TVM v0.19): there, 64 blind trials come first. Weighing seconds less and less:
    Lee et al., "Cost-aware Bayesian optimization" (2020).
    """

    name: ClassVar[str] = "xgb"
    learns_from_others = True

    def __init__(
        self,
        space: ConfigSpace,
        *,
        seed: int = 0,
        num_initial: int = 16,
        epsilon: float = 0.25,
        num_threads: int = 1,
        model: CostModel | None = None,
        use_prior: bool = True,
    ) -> None:
        super().__init__(space, seed=seed)
        self._num_initial = num_initial
        self._epsilon = epsilon
        if model is None:
            from tunefarm_tuning.cost_model.xgb import XGBCostModel

            model = XGBCostModel(seed=seed, num_threads=num_threads)
        self._model: CostModel = model
        self._data = TrialData(space, use_prior=use_prior)
        self._next_sketch = 0
        self._fitted_on: tuple[int, int] | None = None
        self._fitted = False

    def load_history(self, histories: Sequence[TaskHistory]) -> None:
        """Learn from records of this space on other devices and of similar loop nests; other histories are ignored."""
        self._data.load_history(histories)

    def _propose(self, n: int, rng: np.random.Generator) -> Iterator[Config]:
        self._fit()
        if not self._fitted and not self._data.has_prior:
            plan = space_filling_rows(self.space, self._num_initial, np.random.default_rng(self.seed))
            yield from self.space.configs(plan)
            return
        if len(self._results) < n:
            yield from islice(self._unknown(self._fastest_of_history()), n // 2)
        num_explored = round(self._epsilon * n) or int(n >= 4)
        yield from islice(self._unknown(self._predicted_best(n, rng)), n - num_explored)
        yield from self._explored(num_explored, rng)

    def _unknown(self, configs: Iterable[Config]) -> Iterator[Config]:
        return (config for config in configs if config.key not in self._known)

    def _fastest_of_history(self) -> Iterator[Config]:
        """Yield the fastest of each history of this space, then the second fastest of each, and so on."""
        ranked = self._data.fastest_rows(_CHAINS)
        for rank in range(max(map(len, ranked), default=0)):
            yield from self.space.configs(np.array([rows[rank] for rows in ranked if rank < len(rows)]))

    def _explored(self, n: int, rng: np.random.Generator) -> Iterator[Config]:
        """Yield `n` random configs: alternately any config, and the best predicted of a few.

        The first kind reaches regions that a wrong prior predicts to be slow. On a GPU, whose prior is fitted to nothing, the second
        kind takes the sketches in turn, so that each (tensor cores by WMMA, by MMA, none) is measured early.
        """
        for number in range(n):
            rows = self.space.sample_rows(rng, 1 if number % 2 == 0 else _PER_RANDOM_PICK)
            if self.space.gpu and number % 2:
                of_sketch = rows[rows[:, 0] == self._next_sketch % len(self.space.sketches)]
                rows = of_sketch if len(of_sketch) else rows
                self._next_sketch += 1
            yield from islice(
                self._unknown(self.space.configs(rows[np.argsort(-self._score(rows), kind="stable")])), 1
            )

    def _predicted_best(self, n: int, rng: np.random.Generator) -> Iterator[Config]:
        """Yield configs from the best prediction down; those that differ in one knob only from an earlier one come last."""
        starts = self.space.sample_rows(rng, _CHAINS)
        fastest = self.fastest_rows(_CHAINS // 8)
        if len(fastest):
            half = rng.integers(len(fastest), size=_CHAINS // 2)
            starts[: _CHAINS // 2] = fastest[half]
        best = anneal(self.space, self._score, starts, rng, steps=_STEPS, keep=32 * n)
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
        """Return the objective: the predicted log2 of throughput, minus a share of the expected log2 of a trial's seconds."""
        features, margins = self._data.features(rows)
        scores = self._model.predict(features, margins) if self._fitted else margins
        thrift = _THRIFT / (1 + len(self._results) / _THRIFT_HALVES_AFTER)
        return np.asarray(scores - thrift * self._data.expected_trial_sec(features), dtype=np.float32)

    def _fit(self) -> None:
        """Fit the model to all data, if there are new ones."""
        state = (len(self._results), self._data.history_version)
        if self._fitted_on == state:
            return
        here = [(self.space.row_of(r.config), r.cost_sec) for r in self._results.values()]
        groups = self._data.groups([(row, cost) for row, cost in here if row is not None])
        self._fitted = sum(len(group.throughputs) for group in groups) > 1
        if self._fitted:
            self._model.fit(groups)
        self._fitted_on = state


def space_filling_rows(space: ConfigSpace, n: int, rng: np.random.Generator) -> IntArray:
    """Return a Latin hypercube of `n` rows: every knob's choices, in canonical order, are covered evenly. Two rows may be equal.

    Points far apart from each other would cover more of the space, but they are its corners, and corners are bad
    kernels: with them the first batch is worse than a random one.
    """
    rows = np.zeros((n, space.width), dtype=np.int64)
    rows[:, 0] = rng.permutation(n) % len(space.sketches)
    strata = np.stack([rng.permutation(n) for _ in range(space.width)], axis=1)
    quantiles = (strata + rng.random(strata.shape)) / n
    for number, sketch in enumerate(space.sketches):
        chosen = np.flatnonzero(rows[:, 0] == number)
        for column, knob in enumerate(sketch.knobs, start=1):
            rows[chosen, column] = _at_quantiles(knob, quantiles[chosen, column])
    if space.gpu:  # there, almost none of such a plan would be legal
        rows = draw_fitting(space, rows, lambda count: space.sample_rows(rng, count))
    return rows


def _at_quantiles(knob: Knob, quantiles: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> IntArray:
    if not knob.weights:
        return np.asarray(quantiles * len(knob), dtype=np.int64)
    steps = np.cumsum(knob.weights) / sum(knob.weights)
    return np.minimum(np.searchsorted(steps, quantiles, side="right"), len(knob) - 1).astype(np.int64)
