"""Cost models with XGBoost. No other module imports xgboost."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import xgboost

from tunefarm_tuning.cost_model.base import FloatArray, TrialGroup

Objective = Literal["reg:squarederror", "rank:pairwise"]

_WORST = -3.0
"""log2 of the relative throughput below which all candidates count as equally bad, as failures do."""


class XGBCostModel:
    """Implements `CostModel` with gradient-boosted trees, which predict what the margins do not explain.

    Args:
        seed: Seed of the sampling of rows, columns and pairs.
        objective: Regression of the logarithm of throughput, or ranking. In our measurements regression was better among the best
            candidates, and faster to fit; ranking needs no scale.
        num_rounds: Number of trees.
        max_depth: Depth of a tree.
        eta: Learning rate.
        num_threads: More than one is faster from a few thousand rows on.
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        objective: Objective = "reg:squarederror",
        num_rounds: int = 60,
        max_depth: int = 4,
        eta: float = 0.15,
        num_threads: int = 1,
    ) -> None:
        self._num_rounds = num_rounds
        self._ranks = objective.startswith("rank:")
        self._params: dict[str, Any] = {
            "objective": objective,
            "base_score": 0.0,
            "max_depth": max_depth,
            "eta": eta,
            "min_child_weight": 0 if self._ranks else 1.0,
            "subsample": 0.9,
            "colsample_bytree": 0.5,
            "tree_method": "hist",
            "nthread": num_threads,
            "seed": seed,
            "verbosity": 0,
        }
        if self._ranks:
            # Throughputs are floats; NDCG's exponential gain is for small integer grades.
            self._params |= {
                "ndcg_exp_gain": False,
                "lambdarank_pair_method": "mean",
                "lambdarank_num_pair_per_sample": 16,
            }
        self._booster: Any = None

    @property
    def fitted(self) -> bool:
        return self._booster is not None

    def fit(self, groups: list[TrialGroup]) -> None:
        weights = [
            [group.weight] if self._ranks else [group.weight] * len(group.throughputs) for group in groups
        ]
        data = xgboost.DMatrix(
            np.concatenate([group.features for group in groups]),
            label=np.concatenate([group.throughputs if self._ranks else _label(group) for group in groups]),
            base_margin=np.concatenate([group.margins for group in groups]),
            weight=np.concatenate(weights),
            nthread=self._params["nthread"],
        )
        if self._ranks:
            data.set_group([len(group.throughputs) for group in groups])
        self._booster = xgboost.train(self._params, data, num_boost_round=self._num_rounds)

    def predict(self, features: FloatArray, margins: FloatArray) -> FloatArray:
        scores: FloatArray = self._booster.inplace_predict(features, base_margin=margins)
        return scores


class LoadedBooster:
    """A fitted model, with its features' names, read from a file of XGBoost's ``save_model`` (JSON or UBJSON)."""

    def __init__(self, path: Path, *, num_threads: int = 1) -> None:
        self._booster = xgboost.Booster(params={"nthread": num_threads}, model_file=str(path))
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
