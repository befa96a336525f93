"""Fit the prior that ships with the engine.

    python -m benchmarks.prior.fit                 # tell how well it orders workloads that it was not fitted on
    python -m benchmarks.prior.fit --write         # fit it on all of them, and put it where the engine finds it

It reads `trials.jsonl.xz` beside this file, as `collect` wrote it (then ``xz``).
"""

from __future__ import annotations

import argparse
import json
import lzma
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import numpy as np
import xgboost

from tunefarm_tuning.config import Config
from tunefarm_tuning.config_space import ConfigSpace
from tunefarm_tuning.cost_model import prior
from tunefarm_tuning.cost_model.nest_features import NestFeatures

TRIALS = Path(__file__).with_name("trials.jsonl.xz")
WORST = -3.0  # log2 of the relative throughput below which all are equally bad
ROUNDS, FOLDS = 150, 6
PARAMETERS = {
    "objective": "reg:squarederror",
    "max_depth": 5,
    "eta": 0.1,
    "subsample": 0.8,
    "colsample_bytree": 0.4,
    "min_child_weight": 2,
    "tree_method": "hist",
    "nthread": 2,
    "seed": 0,
}


@dataclass(frozen=True)
class Group:
    """The trials of one workload: nest features, and throughput relative to the best of them."""

    names: tuple[str, ...]
    features: np.ndarray
    throughputs: np.ndarray


def load(path: Path) -> list[Group]:
    groups = []
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            data = json.loads(line)
            space = ConfigSpace.from_json(data["space"])
            nest = NestFeatures(space)
            found = [(space.row_of(Config.from_json(config)), cost) for config, cost in data["trials"]]
            known = [(row, cost) for row, cost in found if row is not None]
            best = min(cost for _, cost in known if cost is not None)
            groups.append(
                Group(
                    names=nest.names,
                    features=nest(np.array([row for row, _ in known])),
                    throughputs=np.array([0.0 if cost is None else best / cost for _, cost in known]),
                )
            )
    return groups


def fit(groups: list[Group]) -> xgboost.Booster:
    labels = [np.log2(np.maximum(group.throughputs, 2.0**WORST)) for group in groups]
    features = np.concatenate([group.features for group in groups])
    data = xgboost.DMatrix(features, label=np.concatenate(labels), feature_names=list(groups[0].names))
    return xgboost.train(PARAMETERS, data, ROUNDS)


def cross_validate(groups: list[Group]) -> None:
    """Print what the best predicted of a workload's trials reach, where the workload was left out of the fit."""
    fold_of = np.random.default_rng(0).permutation(len(groups)) % FOLDS
    reached: dict[int, list[float]] = {1: [], 4: [], 8: []}
    for fold in range(FOLDS):
        booster = fit([group for group, f in zip(groups, fold_of, strict=True) if f != fold])
        for group, of in zip(groups, fold_of, strict=True):
            if of == fold:
                data = xgboost.DMatrix(group.features, feature_names=list(group.names))
                order = np.argsort(-booster.predict(data))
                for count, values in reached.items():
                    values.append(float(group.throughputs[order[:count]].max()))
    for count, values in reached.items():
        print(f"best of the {count} predicted best: {mean(values):.3f} of the workload's best trial")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--write", action="store_true")
    every = load(TRIALS)
    print(len(every), "workloads,", sum(len(group.throughputs) for group in every), "trials")
    if parser.parse_args().write:
        prior.FOLDER.mkdir(exist_ok=True)
        fit(every).save_model(prior.path_of(every[0].names))
    else:
        cross_validate(every)
