"""Learn from kernels that spilled from how many results of a thread on a GPU's kernels spill."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from math import inf
from zlib import crc32

from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.space.config_space import ConfigSpace
from tunefarm_tuning.tuner.base import TrialResult

LEAST_SPILLED = 4
"""Kernels that have to spill before others are held back: whether one does depends on more than its results."""

PROBED = 4
"""One of so many configs above the ceiling is proposed all the same, so that a ceiling that is too low is refuted."""


class ResourceLimits:
    """Tells the configs whose threads sum more results than the compiler kept in registers so far.

        The space itself leaves out only what cannot fit by its results alone; what else a compiler keeps in registers shows in the
        machine code of the kernels that it built. The ceiling lies where four kernels or more spilled, and none with as many results did
        not. It is one for each kind of cores, as tensor cores keep their results in other ways. A config's key decides whether it is one of
    the few that test the ceiling, so that tuners stay reproducible.

    Args:
            space: The task's space; nothing is learnt about spaces without tiles for a GPU.
    """

    def __init__(self, space: ConfigSpace) -> None:
        self._space = space
        self._spilled: defaultdict[int, list[float]] = defaultdict(list)
        self._most_kept: defaultdict[int, float] = defaultdict(float)

    def learn(self, results: Sequence[TrialResult]) -> None:
        """Note which configs ended with `Outcome.RESOURCE_ERROR`, and which had a kernel that was run."""
        for result in results:
            if (known := self._cores_and_results(result.config)) is None:
                continue
            cores, count = known
            if result.outcome is Outcome.RESOURCE_ERROR:
                self._spilled[cores].append(count)
            elif not result.outcome.is_build_failure:
                self._most_kept[cores] = max(self._most_kept[cores], count)

    def exceeded_by(self, config: Config) -> bool:
        """Return whether the kernel of a config is expected to spill, and the config is none that tests that."""
        if not self._spilled or (known := self._cores_and_results(config)) is None:
            return False
        cores, count = known
        return count >= self.ceiling(cores) and crc32(config.key.encode()) % PROBED != 0

    def ceiling(self, cores: int) -> float:
        """Return the results of a thread from which on kernels spill; infinite if that is not known.

        Args:
            cores: The kind of cores, `GpuTiling.tensor_cores`.
        """
        above = [count for count in self._spilled[cores] if count > self._most_kept[cores]]
        return min(above) if len(above) >= LEAST_SPILLED else inf

    def _cores_and_results(self, config: Config) -> tuple[int, float] | None:
        """Return the kind of cores of a config, and the registers that the results of a thread take; None if its tiles are unknown."""
        tiling = self._space.gpu[config.sketch] if self._space.gpu else None
        row = None if tiling is None else self._space.row_of(config)
        if tiling is None or row is None:
            return None
        use = tiling.use(row[None], self._space.sketches[int(row[0])].knobs)
        return tiling.tensor_cores, float(use.results[0])
