"""The cost model interface."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialGroup:
    """Trials that can be compared with each other: those of one task on one device.

    Attributes:
        features: Shape ``(n, f)``; NaN where a feature is not known.
        throughputs: Goodness of each trial relative to the group's best: 1 for the best, 0 for a failure. Shape ``(n,)``.
        margins: What is expected of each trial before anything is learnt here: log2 of its throughput, up to a
            constant. Shape ``(n,)``.
        weight: How much a trial of this group counts.
    """

    features: FloatArray
    throughputs: FloatArray
    margins: FloatArray
    weight: float = 1.0


class CostModel(Protocol):
    """Learns to order configs.

    Determinism: equal data and seed give equal scores.
    Concurrency: one caller at a time.
    """

    def fit(self, groups: list[TrialGroup]) -> None:
        """Learn from measurements, two at least; what was learnt before is forgotten."""
        ...

    def predict(self, features: FloatArray, margins: FloatArray) -> FloatArray:
        """Return a score per row, higher is better; only the order means something. Shape ``(n,)``.

        Args:
            features: Shape ``(n, f)``.
            margins: As in `TrialGroup`. Shape ``(n,)``.
        """
        ...
