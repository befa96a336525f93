"""Random search."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import numpy as np

from tunefarm_tuning.space.config import Config
from tunefarm_tuning.tuner.search import SearchTuner


class RandomTuner(SearchTuner):
    """Proposes configs at random: a sketch, then each of its knobs on its own."""

    name: ClassVar[str] = "random"

    def _propose(self, n: int, rng: np.random.Generator) -> Iterable[Config]:
        return self.random_configs(rng, n)
