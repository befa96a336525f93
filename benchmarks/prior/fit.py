"""Fit the priors that ship with the engine: throughput, and seconds per trial.

    python -m benchmarks.prior.fit                 # tell how well they order workloads that they were not fitted on
    python -m benchmarks.prior.fit --write         # fit them on all, and put them where the engine finds them

It reads `trials.jsonl.xz` and `build_times.jsonl.xz` beside this file, as `collect` and `build_times` wrote them (then
``xz``).
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

from tunefarm_tuning.cost_model import prior
from tunefarm_tuning.cost_model.nest_features import NestFeatures
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.space.config_space import ConfigSpace
from tunefarm_tuning.space.factorization import IntArray

TRIALS = Path(__file__).with_name("trials.jsonl.xz")
BUILD_TIMES = Path(__file__).with_name("build_times.jsonl.xz")
MEASURE_SEC = 0.1  # of a trial, beside its build
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
    """The trials of one workload: nest features, and the values to predict."""

    names: tuple[str, ...]
    features: np.ndarray
    labels: np.ndarray


def throughput_groups() -> list[Group]:
    """Return, labelled, log2 of each trial's throughput relative to the best of its workload."""
    groups = []
    for space, trials in _trials().values():
        rows = [(space.row_of(config), cost) for config, cost in trials]
        known = [(row, cost) for row, cost in rows if row is not None]
        best = min(cost for _, cost in known if cost is not None)
        throughputs = np.array([0.0 if cost is None else best / cost for _, cost in known])
        groups.append(_group(space, [row for row, _ in known], np.log2(np.maximum(throughputs, 2.0**WORST))))
    return groups


def trial_sec_groups() -> list[Group]:
    """Return, labelled, log2 of the seconds of some trials."""
    every = _trials()
    groups = []
    with lzma.open(BUILD_TIMES, "rt", encoding="utf-8") as lines:
        for data in map(json.loads, lines):
            space, trials = every[data["workload"]]
            rows = [(space.row_of(trials[index][0]), sec) for index, sec in data["build_sec"]]
            known = [(row, sec) for row, sec in rows if row is not None]
            seconds = np.array([sec for _, sec in known]) + MEASURE_SEC
            groups.append(_group(space, [row for row, _ in known], np.log2(seconds)))
    return groups


def _trials() -> dict[str, tuple[ConfigSpace, list[tuple[Config, float | None]]]]:
    """Return the space and all trials of each workload, those of its later lines after those of its first."""
    recorded: dict[str, tuple[ConfigSpace, list[tuple[Config, float | None]]]] = {}
    with lzma.open(TRIALS, "rt", encoding="utf-8") as lines:
        for data in map(json.loads, lines):
            trials = [(Config.from_json(config), cost) for config, cost in data["trials"]]
            recorded.setdefault(data["workload"], (ConfigSpace.from_json(data["space"]), []))[1].extend(
                trials
            )
    return recorded


def _group(space: ConfigSpace, rows: list[IntArray], labels: np.ndarray) -> Group:
    nest = NestFeatures(space)
    return Group(names=nest.names, features=nest(np.array(rows)), labels=labels)


def fit(groups: list[Group]) -> xgboost.Booster:
    features = np.concatenate([group.features for group in groups])
    labels = np.concatenate([group.labels for group in groups])
    data = xgboost.DMatrix(features, label=labels, feature_names=list(groups[0].names))
    return xgboost.train(PARAMETERS, data, ROUNDS)


def left_out(groups: list[Group]) -> list[np.ndarray]:
    """Return predictions for each workload by a fit to the others."""
    fold_of = np.random.default_rng(0).permutation(len(groups)) % FOLDS
    predicted: list[np.ndarray] = [np.zeros(0)] * len(groups)
    for fold in range(FOLDS):
        booster = fit([group for group, of in zip(groups, fold_of, strict=True) if of != fold])
        for i in np.flatnonzero(fold_of == fold):
            predicted[i] = booster.predict(
                xgboost.DMatrix(groups[i].features, feature_names=list(groups[i].names))
            )
    return predicted


def judge_throughput(groups: list[Group]) -> None:
    """Print the share of the best trial that the predicted best trials reach."""
    predicted = left_out(groups)
    for count in (1, 4, 8):
        reached = [
            float(2 ** group.labels[np.argsort(-guess)[:count]].max())
            for group, guess in zip(groups, predicted, strict=True)
        ]
        print(f"best of the {count} predicted best: {mean(reached):.3f} of the workload's best trial")


def judge_trial_sec(groups: list[Group]) -> None:
    """Print how well seconds are told."""
    predicted = left_out(groups)
    errors = [np.abs(group.labels - guess) for group, guess in zip(groups, predicted, strict=True)]
    orders = [np.corrcoef(group.labels, guess)[0, 1] for group, guess in zip(groups, predicted, strict=True)]
    print(
        f"seconds of a trial: off by a factor of {2 ** np.median(np.concatenate(errors)):.2f}, in the median"
    )
    print(f"correlation within a workload: {np.mean(orders):.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--write", action="store_true")
    throughputs, seconds = throughput_groups(), trial_sec_groups()
    print(len(throughputs), "workloads,", sum(len(group.labels) for group in throughputs), "trials")
    if parser.parse_args().write:
        prior.FOLDER.mkdir(exist_ok=True)
        fit(throughputs).save_model(prior.path_of(throughputs[0].names, "throughput"))
        fit(seconds).save_model(prior.path_of(seconds[0].names, "trial_sec"))
    else:
        judge_throughput(throughputs)
        judge_trial_sec(seconds)
