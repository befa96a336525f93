"""Measure what a search loses if it proposes rounds without the results of the ones before. No time passes.

    python -m benchmarks.overlap.lag [--seeds 2]

Each task of the recorded model of which enough was recorded is searched by itself, in rounds of eight. Figures: cost of the best so far over the best
of all searches of the task, geometric mean over tasks and seeds. *1 from 4*: from the fifth round on, each is proposed
without the results of the one before.
"""

from __future__ import annotations

import argparse

import numpy as np
from benchmarks.overlap.machine import RecordedKernel, recorded_kernels
from benchmarks.search.markdown import table

from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.tuner import TrialResult, make_tuner

AT = (16, 24, 32, 48, 64, 96)
ROUND_SIZE = 8
LAGS = {"each waits": (0, 0), "1 from 1": (1, 1), "1 from 4": (1, 4), "2 from 4": (2, 4)}
MIN_RECORDED = 30


def search(kernel: RecordedKernel, tuner_name: str, seed: int, lag: int, lag_from: int) -> list[float]:
    """Return the best cost after each of `AT` trials."""
    tuner = make_tuner(tuner_name, kernel.task, kernel.space, seed=seed)
    untold: list[list[TrialResult]] = []
    costs: list[float] = []
    for number in range(AT[-1] // ROUND_SIZE):
        while len(untold) > (lag if number >= lag_from else 0):
            tuner.tell(untold.pop(0))
        results = [
            TrialResult(asked=config, config=config, outcome=Outcome.OK, cost_sec=kernel.answer(config)[0])
            for config in tuner.ask(ROUND_SIZE)
        ]
        untold.append(results)
        costs += [result.cost_sec for result in results if result.cost_sec is not None]
    tuner.close()
    return [min(costs[:trials]) for trials in AT]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--tuners", nargs="+", default=["xgb", "ga"])
    args = parser.parse_args()
    kernels = [kernel for kernel in recorded_kernels() if kernel.num_recorded >= MIN_RECORDED]
    for tuner_name in args.tuners:
        best_secs = np.array(
            [
                [
                    [search(kernel, tuner_name, seed, *lag) for lag in LAGS.values()]
                    for seed in range(args.seeds)
                ]
                for kernel in kernels
            ]
        )
        ratios = np.log(best_secs / best_secs.min(axis=(1, 2, 3), keepdims=True)).mean(axis=(0, 1))
        rows = [[name, *(f"{np.exp(ratio):.3f}" for ratio in ratios[i])] for i, name in enumerate(LAGS)]
        print(f"### {tuner_name}\n\n{table(['Rounds', *map(str, AT)], rows)}\n", flush=True)


if __name__ == "__main__":
    main()
