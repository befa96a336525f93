"""The cost model interface."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float32]


class CostModel(Protocol):
    """Learns to order configs.

    Determinism: equal data and seed give equal scores.
    Concurrency: one caller at a time.
    """

    def fit(self, features: FloatArray, throughputs: FloatArray, groups: npt.NDArray[np.int64]) -> None:
        """Learn from measurements; what was learnt before is forgotten.

        Args:
            features: Shape ``(n, f)``, ``n >= 2``.
            throughputs: Goodness of each row within its group, 1 for the group's best, 0 for a failure. Shape ``(n,)``.
            groups: Which rows can be compared: one number per task or device. Shape ``(n,)``.
        """
        ...

    def predict(self, features: FloatArray) -> FloatArray:
        """Return a score per row, higher is better; only the order means something. Shape ``(n,)``."""
        ...
