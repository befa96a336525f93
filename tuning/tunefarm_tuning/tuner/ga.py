"""A genetic algorithm."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from tunefarm_tuning.space.config import Config
from tunefarm_tuning.space.config_space import ConfigSpace
from tunefarm_tuning.space.factorization import IntArray
from tunefarm_tuning.tuner.search_tuner import SearchTuner


class GATuner(SearchTuner):
    """Breeds the fastest configs found so far: crossover of two parents, then mutation.

    A steady-state algorithm: its population is the `population` fastest trials of the whole run, so its state is only
    the results. The first generation is random.

    Args:
        space: Config space to search.
        seed: Seed of all random choices.
        population: Number of trials that may become parents; the first trials, as many, are random.
        mutation: Probability of each further mutation of a child, after the crossover.

    Source: ``autotvm.tuner.GATuner`` (TVM v0.19), which replaces generations of 100 as a whole.
    """

    name: ClassVar[str] = "ga"

    def __init__(
        self, space: ConfigSpace, *, seed: int = 0, population: int = 16, mutation: float = 0.6
    ) -> None:
        super().__init__(space, seed=seed)
        self._population = population
        self._mutation = mutation

    def _propose(self, n: int, rng: np.random.Generator) -> Iterator[Config]:
        if len(self._results) < self._population:
            yield from self.random_configs(rng, n)
            return
        parents = self.fastest_rows(self._population)
        if len(parents) < 2:  # at most one trial succeeded
            yield from self.random_configs(rng, n)
            return
        for _ in range(8):
            yield from self.space.configs(self._children(parents, rng, 4 * n))

    def _children(self, parents: IntArray, rng: np.random.Generator, n: int) -> IntArray:
        # Linear ranking: the best is picked twice as often as the middle one.
        odds = np.arange(len(parents), 0, -1, dtype=np.float64)
        chosen = rng.choice(len(parents), size=(2, n), p=odds / odds.sum())
        children = self.space.crossover_rows(parents[chosen[0]], parents[chosen[1]], rng)
        for _ in range(3):
            mutants = rng.random(n) < self._mutation
            children[mutants] = self.space.mutate_rows(children[mutants], rng)
        return children
