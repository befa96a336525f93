"""XGBoost as a cost model. The only module that imports xgboost."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import xgboost

from tunefarm_tuning.cost_model.base import FloatArray

Objective = Literal["rank:pairwise", "reg:squarederror"]


class XGBCostModel:
    """Gradient-boosted trees over config features; ranks within groups, or regresses throughput.

    Args:
        seed: Of the row and pair sampling.
        objective: Ranking needs no common scale between groups, and was the better one where it was measured.
        num_threads: More than one pays from some thousand rows on.
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        objective: Objective = "rank:pairwise",
        num_rounds: int = 120,
        max_depth: int = 4,
        num_threads: int = 1,
    ) -> None:
        self._num_rounds = num_rounds
        self._params: dict[str, Any] = {
            "objective": objective,
            "max_depth": max_depth,
            "eta": 0.1,
            "min_child_weight": 0,
            "subsample": 0.9,
            "colsample_bytree": 0.7,
            "tree_method": "hist",
            "nthread": num_threads,
            "seed": seed,
            "verbosity": 0,
        }
        if objective == "rank:pairwise":
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

    def fit(self, features: FloatArray, throughputs: FloatArray, groups: npt.NDArray[np.int64]) -> None:
        order = np.argsort(groups, kind="stable")
        data = xgboost.DMatrix(features[order], label=throughputs[order], nthread=self._params["nthread"])
        if self._params["objective"].startswith("rank:"):
            data.set_group(np.unique(groups, return_counts=True)[1])
        self._booster = xgboost.train(self._params, data, num_boost_round=self._num_rounds)

    def predict(self, features: FloatArray) -> FloatArray:
        scores: FloatArray = self._booster.inplace_predict(features)
        return scores
