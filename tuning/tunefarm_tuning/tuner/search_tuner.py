"""The base of all tuners: no config is proposed twice, and random choices depend only on seed and progress."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.space.config_space import ConfigSpace
from tunefarm_tuning.space.factorization import IntArray
from tunefarm_tuning.tuner.base import TrialResult, Tuner
from tunefarm_tuning.tuner.resources import ResourceLimits

_ENUMERABLE = 1 << 16


class SearchTuner(Tuner):
    """A tuner whose proposals depend only on its arguments and on the results that it was told.

    Each `ask` starts a new random stream from the seed and the number of configs known so far:
    a tuner that was rebuilt from results in another process continues exactly like the original.
    """

    def __init__(self, space: ConfigSpace, *, seed: int = 0) -> None:
        super().__init__(space, seed=seed)
        self._known: set[str] = set()
        self._results: dict[str, TrialResult] = {}
        self._again: list[Config] = []
        self._resources = ResourceLimits(space)

    @property
    def results(self) -> Sequence[TrialResult]:
        """The first result of every config as applied, in telling order."""
        return list(self._results.values())

    def result_of(self, config: Config) -> TrialResult | None:
        return self._results.get(config.key)

    def ask(self, n: int) -> list[Config]:
        if n < 1:
            return []
        proposals, self._again = self._again[:n], self._again[n:]
        self._known.update(config.key for config in proposals)
        if len(proposals) < n:
            rng = np.random.default_rng([self.seed, len(self._known)])
            wanted = n - len(proposals)
            fresh = self._take(self._propose(wanted, rng), wanted)
            fresh += self._take(self.random_configs(rng, wanted - len(fresh)), wanted - len(fresh))
            proposals += fresh
        return proposals

    def tell(self, results: Sequence[TrialResult]) -> None:
        new_results = []
        for result in results:
            if result.outcome is Outcome.INFRASTRUCTURE_ERROR:
                if result.asked.key in self._known and result.asked.key not in self._results:
                    self._known.discard(result.asked.key)
                    self._again.append(result.asked)
                continue
            self._known.update((result.asked.key, result.config.key))
            if result.config.key not in self._results:
                self._results[result.config.key] = result
                new_results.append(result)
        if new_results:
            self._resources.learn(new_results)
            self._learn(new_results)

    def set_aside(self, configs: Sequence[Config]) -> None:
        keys = {config.key for config in configs}
        self._known |= keys
        self._again = [config for config in self._again if config.key not in keys]

    @abstractmethod
    def _propose(self, n: int, rng: np.random.Generator) -> Iterable[Config]:
        """Yield configs, best first; known ones are dropped by the caller, who takes `n` of the rest."""

    def _learn(self, results: Sequence[TrialResult]) -> None:
        """Process new results, each with another applied config. `self.results` contains them already."""

    def fastest_rows(self, n: int) -> IntArray:
        """Return the rows of the fastest results, best first. Shape ``(<= n, width)``."""
        timed = [(r.cost_sec, r.config) for r in self._results.values() if r.cost_sec is not None]
        timed.sort(key=lambda pair: pair[0])
        rows = [self.space.row_of(config) for _, config in timed[:n]]
        kept = [row for row in rows if row is not None]
        return np.array(kept) if kept else np.zeros((0, self.space.width), dtype=np.int64)

    def random_configs(self, rng: np.random.Generator, n: int) -> Iterator[Config]:
        """Yield at least `n` unknown configs, or all that are left in the space."""
        if n < 1:
            return
        for _ in range(8):
            for config in self.space.configs(self.space.sample_rows(rng, 2 * n)):
                if config.key not in self._known:
                    yield config
        if self.space.size <= _ENUMERABLE:
            for index in rng.permutation(self.space.size).tolist():
                yield self.space.config_at(index)

    def _take(self, proposals: Iterable[Config], n: int) -> list[Config]:
        """Return the first `n` configs that are not known yet and should fit the GPU, and note them as known."""
        taken: list[Config] = []
        if n < 1:
            return taken
        for config in proposals:
            if config.key not in self._known and not self._resources.exceeded_by(config):
                self._known.add(config.key)
                taken.append(config)
                if len(taken) == n:
                    break
        return taken
