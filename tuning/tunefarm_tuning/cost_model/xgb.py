"""Cost models with XGBoost. No other module imports xgboost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import xgboost

from tunefarm_tuning.cost_model.base import FloatArray, TrialGroup

_TREES = 60
_WORST = -3.0
"""log2 of the relative throughput below which all candidates count as equally bad, as failures do."""


class XGBCostModel:
    """Implements `CostModel` with gradient-boosted trees, which predict what the margins do not explain.

    Args:
        seed: Seed of the sampling of rows and columns.
        num_threads: More than one is faster from a few thousand rows on.
    """

    def __init__(self, *, seed: int = 0, num_threads: int = 1) -> None:
        self._params: dict[str, Any] = {
            # The logarithm of throughput: ranking was worse among the best candidates, and slower to fit.
            "objective": "reg:squarederror",
            "base_score": 0.0,
            "max_depth": 4,
            "eta": 0.15,
            "min_child_weight": 1.0,
            "subsample": 0.9,
            "colsample_bytree": 0.5,
            "tree_method": "hist",
            "nthread": num_threads,
            "seed": seed,
            "verbosity": 0,
        }
        self._booster: Any = None

    def fit(self, groups: list[TrialGroup]) -> None:
        weights = [[group.weight] * len(group.throughputs) for group in groups]
        data = xgboost.DMatrix(
            np.concatenate([group.features for group in groups]),
            label=np.concatenate([_label(group) for group in groups]),
            base_margin=np.concatenate([group.margins for group in groups]),
            weight=np.concatenate(weights),
            nthread=self._params["nthread"],
        )
        self._booster = xgboost.train(self._params, data, num_boost_round=_TREES)

    def predict(self, features: FloatArray, margins: FloatArray) -> FloatArray:
        scores: FloatArray = self._booster.inplace_predict(features, base_margin=margins)
        return scores


class LoadedBooster:
    """A fitted model, with its features' names, read from a file of XGBoost's ``save_model`` (JSON or UBJSON)."""

    def __init__(self, path: Path) -> None:
        self._booster = xgboost.Booster(params={"nthread": 1}, model_file=str(path))
        self.names: tuple[str, ...] = tuple(self._booster.feature_names or ())
        self._booster.feature_names = None

    def predict(self, features: FloatArray) -> FloatArray:
        """Return a prediction per row. Shape ``(n,)``."""
        scores: FloatArray = self._booster.inplace_predict(features)
        return scores


def _label(group: TrialGroup) -> FloatArray:
    """Return the labels of a regression: log2 of throughput, shifted so that the margins are right on average.

    The best trial of a group may be far from the best possible one, so throughputs and margins differ by a constant. Without
    margins, labels are not shifted.
    """
    logs = np.log2(np.maximum(group.throughputs, 2.0**_WORST))
    if not group.margins.any():
        return np.asarray(logs, dtype=np.float32)
    return np.asarray(logs - (logs - group.margins).mean(), dtype=np.float32)
