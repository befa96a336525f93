"""A synthetic machine: a formula with one hidden optimum gives the cost of every config of a space."""

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
    """An `Answer` for a `ReplayRunner` that behaves as real spaces do, without noise.

    The cost depends on the logarithm of tile factors, on tiles together, and slightly on categoricals. Some configs fail, and
    similar configs cost the same but for a few percent. It is a function of the arguments alone.

    Args:
        space: The space of the configs.
        seed: Selects the landscape.
        best_sec: Seconds per call at the optimum, but for the few percent.
        failing: Share of configs that fail.
        outcomes: The outcomes of configs that fail.
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
        """Return the seconds per call of a config.

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
        """Return the features; zero for those that a loop nest does not have."""
        return np.nan_to_num(self._features(rows), nan=0.0)

    def _chance(self, purpose: str, config: Config) -> float:
        """Return a pseudo-random number in [0, 1) that is fixed for a config."""
        text = json.dumps([purpose, self._seed, config.to_json()])
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big") / 2**48
