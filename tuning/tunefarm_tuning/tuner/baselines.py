"""Tuners that do not learn: random search and grid search."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar

import numpy as np

from tunefarm_tuning.space.config import Config, Decision, KnobKind
from tunefarm_tuning.space.config_space import ConfigSpace
from tunefarm_tuning.tuner.search_tuner import SearchTuner


class RandomTuner(SearchTuner):
    """Proposes random configs: a sketch, then each of its knobs independently."""

    name: ClassVar[str] = "random"

    def _propose(self, n: int, rng: np.random.Generator) -> Iterable[Config]:
        return self.random_configs(rng, n)


class GridSearchTuner(SearchTuner):
    """Proposes every config in the space's canonical order, except that compute locations vary slowest.

    Many locations become equal when they are applied: if they varied fastest, whole rounds would be repetitions. The
    seed has no effect.

    Source: ``autotvm.tuner.GridSearchTuner`` (TVM v0.19). Only for small spaces.
    """

    name: ClassVar[str] = "grid"
    patience: ClassVar[int] = 1024

    def __init__(self, space: ConfigSpace, *, seed: int = 0) -> None:
        super().__init__(space, seed=seed)
        self._next = 0

    def _propose(self, n: int, rng: np.random.Generator) -> Iterator[Config]:  # noqa: ARG002  (no chance here)
        while self._next < self.space.size:
            self._next += 1
            yield self._config_at(self._next - 1)

    def _config_at(self, index: int) -> Config:
        number = 0
        while index >= self.space.sketches[number].size:
            index -= self.space.sketches[number].size
            number += 1
        knobs = self.space.sketches[number].knobs
        slowest_first = sorted(
            range(len(knobs)), key=lambda column: knobs[column].kind is not KnobKind.LOCATION
        )
        decisions: dict[int, Decision] = {}
        for column in reversed(slowest_first):
            index, choice = divmod(index, len(knobs[column]))
            decisions[column] = knobs[column].decision_at(choice)
        return Config(number, tuple(decisions[column] for column in range(len(knobs))))
