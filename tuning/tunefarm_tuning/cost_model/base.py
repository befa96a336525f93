"""Interfaces of cost models: features of configs, groups of trials, and the model itself."""

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
        features: Shape ``(n, f)``; NaN for an unknown feature.
        throughputs: Throughput of each trial relative to the group's best: 1 for the best, 0 for a failure. Shape ``(n,)``.
        margins: The prior's expectation of each trial: log2 of its throughput, up to a constant. Shape ``(n,)``.
        weight: The weight of a trial of this group.
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
        """Fit the model to two or more measurements; earlier data are forgotten."""
        ...

    def predict(self, features: FloatArray, margins: FloatArray) -> FloatArray:
        """Return a score per row, shape ``(n,)``. Only the order of scores has a meaning: higher is better.

        `features` has shape ``(n, f)``, `margins` (see `TrialGroup`) ``(n,)``.
        """
        ...
