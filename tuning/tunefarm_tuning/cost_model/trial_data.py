"""`TrialData`: the training data of a cost model, from a task's trials, histories of other tasks, and a prior."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tunefarm_tuning.cost_model.base import FloatArray, TrialGroup
from tunefarm_tuning.cost_model.features import FeatureMap
from tunefarm_tuning.cost_model.prior import Prior, load_prior
from tunefarm_tuning.records.transfer import TaskHistory
from tunefarm_tuning.space.config_space import ConfigSpace
from tunefarm_tuning.space.factorization import IntArray

_SAME_SPACE_WEIGHT = 0.5
_LIKE_NEST_WEIGHT = 0.2


class TrialData:
    """Turns trials on one config space, and histories of other spaces, into a cost model's data.

    A row's features are those of its config and, last, the prior's prediction, which is its margin as well. A history of another
    space has the features that both loop nests share; the others are NaN.

    Args:
        space: The space of the task that is tuned.
        use_prior: Whether to use a prior for the space's kind of loop nest, if there is one.

    Attributes:
        history_version: Grows whenever other histories are loaded.
    """

    def __init__(self, space: ConfigSpace, *, use_prior: bool = True) -> None:
        self._space = space
        self._map = FeatureMap(space)
        self._prior: Prior | None = load_prior(self._map.shared, "throughput") if use_prior else None
        self._trial_sec: Prior | None = load_prior(self._map.shared, "trial_sec") if use_prior else None
        self._histories: list[TrialGroup] = []
        self._same: list[list[tuple[float, IntArray]]] = []
        self._loaded: list[tuple[str, tuple[object, ...]]] = []
        self.history_version = 0

    @property
    def has_prior(self) -> bool:
        """Whether there is a prior for the space."""
        return self._prior is not None

    def features(self, rows: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return features and margins of rows. Shapes ``(n, f)`` and ``(n,)``."""
        features = self._map(rows)
        margins = self._margins(features)
        return np.hstack([features, margins[:, None]]), margins

    def expected_trial_sec(self, features: FloatArray) -> FloatArray:
        """Return log2 of the expected seconds of each row's trial, up to a constant; zeros without a prior. Features: shape ``(n, f)``."""
        if self._trial_sec is None:
            return np.zeros(len(features), dtype=np.float32)
        return self._trial_sec.predict(features[:, : len(self._map.shared)])

    def groups(self, trials: Sequence[tuple[IntArray, float | None]]) -> list[TrialGroup]:
        """Return the groups of the task's own trials and of the histories.

        `trials` are rows with their seconds per call; None for a failure.
        """
        own = self._own_group(trials, weight=1.0)
        return self._histories if own is None else [own, *self._histories]

    def load_history(self, histories: Sequence[TaskHistory]) -> None:
        """Replace the histories."""
        loaded = [(history.space.key, history.records) for history in histories]
        if loaded == self._loaded:
            return
        self._loaded = list(loaded)
        self._histories, self._same = [], []
        self.history_version += 1
        for history in histories:
            group = (
                self._same_space(history)
                if history.space.key == self._space.key
                else self._like_nest(history)
            )
            if group is not None:
                self._histories.append(group)

    def fastest_rows(self, n: int) -> list[list[IntArray]]:
        """Return the `n` fastest rows of each history of this same space, the fastest first."""
        return [[row for _, row in sorted(group, key=lambda pair: pair[0])[:n]] for group in self._same]

    def _same_space(self, history: TaskHistory) -> TrialGroup | None:
        trials = _rows(history, self._space)
        self._same.append([(cost, row) for row, cost in trials if cost is not None])
        return self._own_group(trials, weight=_SAME_SPACE_WEIGHT)

    def _like_nest(self, history: TaskHistory) -> TrialGroup | None:
        their_map = FeatureMap(history.space)
        if not their_map.shared or their_map.shared != self._map.shared:
            return None
        trials = _rows(history, history.space)
        throughputs = _throughputs([cost for _, cost in trials])
        if throughputs is None:
            return None
        shared = their_map(np.array([row for row, _ in trials]))[:, : len(their_map.shared)]
        features = np.full((len(trials), len(self._map.names) + 1), np.nan, dtype=np.float32)
        features[:, : shared.shape[1]] = shared
        margins = self._margins(shared)
        features[:, -1] = margins
        return TrialGroup(
            features=features, throughputs=throughputs, margins=margins, weight=_LIKE_NEST_WEIGHT
        )

    def _own_group(
        self, trials: Sequence[tuple[IntArray, float | None]], *, weight: float
    ) -> TrialGroup | None:
        throughputs = _throughputs([cost for _, cost in trials])
        if throughputs is None:
            return None
        features, margins = self.features(np.array([row for row, _ in trials]))
        return TrialGroup(features=features, throughputs=throughputs, margins=margins, weight=weight)

    def _margins(self, features: FloatArray) -> FloatArray:
        if self._prior is None:
            return np.zeros(len(features), dtype=np.float32)
        return self._prior.predict(features[:, : len(self._map.shared)])


def _rows(history: TaskHistory, space: ConfigSpace) -> list[tuple[IntArray, float | None]]:
    rows = [
        (space.row_of(record.config), record.cost_sec)
        for record in history.records
        if record.space_key == space.key
    ]
    return [(row, cost) for row, cost in rows if row is not None]


def _throughputs(costs: Sequence[float | None]) -> FloatArray | None:
    """Return throughputs relative to the best; None if all trials failed, since failures have no order."""
    best = min((cost for cost in costs if cost is not None), default=None)
    if best is None:
        return None
    return np.array([0.0 if cost is None else best / cost for cost in costs], dtype=np.float32)
