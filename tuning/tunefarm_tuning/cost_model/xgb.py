"""XGBoost as a cost model. The only module that imports xgboost."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import xgboost

from tunefarm_tuning.cost_model.base import FloatArray, TrialGroup

Objective = Literal["reg:squarederror", "rank:pairwise"]

_WORST = -3.0
"""log2 of the relative throughput below which all candidates are equally bad, failures among them."""


class XGBCostModel:
    """Gradient-boosted trees over config features: what the margins leave unexplained.

    Args:
        seed: Of the row, column and pair sampling.
        objective: Regression of the logarithm of throughput was better among the best candidates, where it was
            measured, and faster to fit; ranking needs no scale at all.
        num_threads: More than one pays from some thousand rows on.
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
            # Throughputs are floats: the exponential gain of NDCG is for small whole grades.
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


class LoadedModel:
    """A model that was fitted elsewhere, on the features `names`.

    Args:
        path: As XGBoost's ``save_model`` wrote it (JSON or UBJSON), with the features' names.
    """

    def __init__(self, path: Path, *, num_threads: int = 1) -> None:
        self._booster = xgboost.Booster(params={"nthread": num_threads}, model_file=str(path))
        self.names: tuple[str, ...] = tuple(self._booster.feature_names or ())
        self._booster.feature_names = None

    def predict(self, features: FloatArray) -> FloatArray:
        """Return a prediction per row. Shape ``(n,)``."""
        scores: FloatArray = self._booster.inplace_predict(features)
        return scores


def _label(group: TrialGroup) -> FloatArray:
    """Return what to regress: log2 of throughput, moved so that the margins are right on average.

    The best of a group may be far from what its task can reach, so its scale is not that of the margins; where there
    are none, it is all that there is.
    """
    logs = np.log2(np.maximum(group.throughputs, 2.0**_WORST))
    if not group.margins.any():
        return np.asarray(logs, dtype=np.float32)
    return np.asarray(logs - (logs - group.margins).mean(), dtype=np.float32)
