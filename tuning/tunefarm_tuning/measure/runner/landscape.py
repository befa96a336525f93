"""A made-up machine: the cost of every config of a space, by a formula with one hidden optimum."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

import numpy as np

from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.cost_model.features import FeatureMap
from tunefarm_tuning.measure.interfaces import Failure
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.space.config_space import ConfigSpace
from tunefarm_tuning.workload.task import TuningTask


class SyntheticLandscape:
    """An `Answer` for a `ReplayRunner` with the traits of real spaces, and without their noise.

    Tiles matter by the logarithm of their factors, tiles matter together, categoricals matter a little, some
    configs fail, and near configs are alike but for a few percent. It depends on nothing but its arguments.

    Args:
        space: Whose configs it costs.
        seed: Which landscape.
        best_sec: Cost at the optimum (but for the few percent).
        failing: Share of configs that fail, by `outcomes` in turn.
        outcomes: How they fail.
    """

    def __init__(
        self,
        space: ConfigSpace,
        *,
        seed: int = 0,
        best_sec: float = 1e-3,
        failing: float = 0.0,
        outcomes: Sequence[Outcome] = (Outcome.RUN_ERROR, Outcome.RUN_TIMEOUT, Outcome.RUN_CRASH),
    ) -> None:
        self._space = space
        self._seed = seed
        self._best_sec = best_sec
        self._failing = failing
        self._outcomes = tuple(outcomes)
        self._features = FeatureMap(space)
        rng = np.random.default_rng(seed)
        sample = self._features_of(space.sample_rows(rng, 256))
        spread = sample.std(axis=0)
        self._scale = np.where(spread > 0, 1 / np.maximum(spread, 1e-6), 0.0)
        self._weights = rng.dirichlet(np.full(sample.shape[1], 0.3)) * 2.0
        self._optimum = self._features_of(space.sample_rows(rng, 1))[0]

    def cost_sec(self, config: Config) -> float:
        """Return the cost of a config, in seconds.

        Raises:
            ValueError: If the config is of another space.
        """
        row = self._space.row_of(config)
        if row is None:
            raise ValueError(f"config {config.key} is of another space")
        away = (self._features_of(row[None])[0] - self._optimum) * self._scale
        rough = 1.0 + 0.05 * self._chance("rough", config)
        return float(self._best_sec * np.exp((self._weights * away**2).sum()) * rough)

    def __call__(self, task: TuningTask, config: Config) -> tuple[float, ...] | Failure:  # noqa: ARG002  (one landscape per task)
        if self._chance("fails", config) < self._failing:
            which = int(self._chance("how", config) * len(self._outcomes))
            return Failure(self._outcomes[which], "so the landscape has it")
        return (self.cost_sec(config),) * 3

    def _features_of(self, rows: np.ndarray) -> np.ndarray:
        """Return the features, zero where a loop nest does not have one."""
        return np.nan_to_num(self._features(rows), nan=0.0)

    def _chance(self, purpose: str, config: Config) -> float:
        """Return a number in [0, 1) that is fixed for a config."""
        text = json.dumps([purpose, self._seed, config.to_json()])
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big") / 2**48
