"""Learn from kernels that asked for more than the GPU has which other configs would, too."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.space.config_space import ConfigSpace
from tunefarm_tuning.space.factorization import IntArray
from tunefarm_tuning.tuner.base import TrialResult

_Demands = npt.NDArray[np.float64]


class ResourceLimits:
    """Tells the configs that need no less of anything than one whose kernel spilled, or could not be launched.

    The space itself leaves out only what cannot fit by its results alone; what else a compiler keeps in registers shows in the
    machine code of the kernels that it built. A config that dominates such a kernel, of the same sketch, in all of
    `GpuTiling.demands` is not worth its build: `nvcc` takes seconds.

    Args:
        space: The task's space; nothing is learnt about spaces without tiles for a GPU.
    """

    def __init__(self, space: ConfigSpace) -> None:
        self._space = space
        self._exceeding: dict[int, _Demands] = {}

    def learn(self, results: Sequence[TrialResult]) -> None:
        """Note the configs of results that ended with `Outcome.RESOURCE_ERROR`."""
        if not self._space.gpu:
            return
        for result in results:
            row = self._space.row_of(result.config)
            if result.outcome is not Outcome.RESOURCE_ERROR or row is None:
                continue
            sketch, demands = int(row[0]), self._demands(row[None])
            if demands is not None:
                known = self._exceeding.get(sketch, demands[:0])
                self._exceeding[sketch] = np.concatenate([known, demands])

    def exceeded_by(self, config: Config) -> bool:
        """Return whether the kernel of a config is expected to spill, or not to be launched."""
        exceeding = self._exceeding.get(config.sketch)
        row = None if exceeding is None else self._space.row_of(config)
        demands = None if row is None else self._demands(row[None])
        if exceeding is None or demands is None:
            return False
        return bool((demands >= exceeding).all(axis=1).any())

    def _demands(self, rows: IntArray) -> _Demands | None:
        """Return the demands of rows of one sketch; None if its tiles are unknown."""
        sketch = int(rows[0, 0])
        tiling = self._space.gpu[sketch]
        return None if tiling is None else tiling.demands(rows, self._space.sketches[sketch].knobs)
