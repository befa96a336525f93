"""Grid search."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from tunefarm_tuning.config import Config
from tunefarm_tuning.config_space import ConfigSpace
from tunefarm_tuning.tuner.search import SearchTuner


class GridSearchTuner(SearchTuner):
    """Proposes every config in the space's canonical order; the seed changes nothing.

    Source: ``autotvm.tuner.GridSearchTuner`` (TVM v0.19). Good for small spaces alone.
    """

    name: ClassVar[str] = "grid"

    def __init__(self, space: ConfigSpace, *, seed: int = 0) -> None:
        super().__init__(space, seed=seed)
        self._next = 0

    def _propose(self, n: int, rng: np.random.Generator) -> Iterator[Config]:  # noqa: ARG002  (no chance here)
        while self._next < self.space.size:
            self._next += 1
            yield self.space.config_at(self._next - 1)
