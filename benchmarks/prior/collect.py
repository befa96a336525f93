"""Measure configs of many workloads on this machine: the trials that the prior is fitted on.

    python -m benchmarks.prior.layers layers.onnx
    python -m benchmarks.prior.collect layers.onnx trials.jsonl

Each workload gets 20 random trials and 32 of the XGBTuner without a prior, on one core: half an hour in all. Workloads that the
file has already are skipped, so a killed run goes on.

    python -m benchmarks.prior.collect --shallow layers.onnx shallow.jsonl

adds trials of workloads that sum up little (depthwise convolutions, few channels): their good configs are rarer, and unlike those
of the others. They get 96 of the GATuner and 32 of the XGBTuner with the prior that there is. Append them to the others.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from math import prod
from pathlib import Path

import numpy as np
from benchmarks.search import json_lines
from benchmarks.search.machine import one_core_target

from tunefarm_tuning import extract_tasks, import_model
from tunefarm_tuning.measure.builder.local import LocalBuilder
from tunefarm_tuning.measure.interfaces import MeasureOption, TimingOption
from tunefarm_tuning.measure.runner.local import LocalRunner
from tunefarm_tuning.search.round import run_round
from tunefarm_tuning.search.trial_outcome import TrialOutcome
from tunefarm_tuning.space.config_space import ConfigSpace
from tunefarm_tuning.tuner import make_tuner
from tunefarm_tuning.workload.task import TuningTask

RANDOM_TRIALS, GUIDED_ROUNDS, ROUND_SIZE = 20, 4, 8
MIN_FLOPS, MIN_CONFIGS = 1e6, 200
SHALLOW, SHALLOW_TRIALS = 64, {"ga": 96, "xgb": 32}


def collect(model: Path, output: Path, *, shallow: bool) -> None:
    """Append one line per workload: its space, and its trials."""
    target = one_core_target()
    tasks = extract_tasks(import_model(model), target, alternatives=False)
    done = {line["workload"] for line in json_lines.load(output)}
    timing = TimingOption(repeat=8, min_repeat_ms=4)
    with LocalBuilder(workers=1) as builder, LocalRunner(timing=timing, threads=1) as runner:
        option = MeasureOption(builder=builder, runner=runner)
        for number in np.random.default_rng(0).permutation(len(tasks)).tolist():
            task = tasks[number]
            if task.workload.key in done or task.workload.flops < MIN_FLOPS:
                continue
            space = builder.config_space(task)
            if space.size < MIN_CONFIGS or (shallow and not _is_shallow(space)):
                continue
            trials = measure_shallow(task, number, option) if shallow else measure(task, number, option)
            line = {
                "workload": task.workload.key,
                "name": task.workload.name,
                "space": space.to_json(),
                "trials": [[t.config.to_json(), t.cost_sec] for t in trials],
            }
            json_lines.append(output, line)
            print(task.workload.name, len(trials), flush=True)


def measure(task: TuningTask, seed: int, option: MeasureOption) -> Sequence[TrialOutcome]:
    """Return random trials, then trials of a tuner that learnt from them."""
    space = option.builder.config_space(task)
    trials = list(run_round(make_tuner("random", task, space, seed=seed), task, RANDOM_TRIALS, option))
    guided = make_tuner("xgb", task, space, seed=seed, use_prior=False)
    guided.tell(trials)
    for _ in range(GUIDED_ROUNDS):
        trials += run_round(guided, task, ROUND_SIZE, option)
    return trials


def measure_shallow(task: TuningTask, seed: int, option: MeasureOption) -> Sequence[TrialOutcome]:
    """Return trials of tuners that look far."""
    space = option.builder.config_space(task)
    trials: list[TrialOutcome] = []
    for name, count in SHALLOW_TRIALS.items():
        tuner = make_tuner(name, task, space, seed=seed)
        for _ in range(count // ROUND_SIZE):
            trials += run_round(tuner, task, ROUND_SIZE, option)
    return trials


def _is_shallow(space: ConfigSpace) -> bool:
    axes = space.computation.axes if space.computation is not None else ()
    return prod(axis.extent for axis in axes if axis.reduces) <= SHALLOW


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--shallow", action="store_true")
    options = parser.parse_args()
    collect(options.model, options.output, shallow=options.shallow)
