"""Compare the expected gain per minute with the gain that came, over simulated searches.

    python benchmarks/scheduling/forecast.py

A ratio of 1.0 is a true forecast; the first column is for the rounds that a task has had on average.
"""

from __future__ import annotations

import argparse
from collections import defaultdict

import numpy as np
from simulate import Search, recorded

from tunefarm_tuning.search.scheduler import TaskScheduler

ROUNDS = (1.5, 2, 3, 5, 8, 12)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", type=int, default=20)
    args = parser.parse_args()
    workloads = recorded()
    scheduler = TaskScheduler()
    for kind in ("xgb", "random"):
        forecast: dict[float, list[float]] = defaultdict(list)
        came: dict[float, list[float]] = defaultdict(list)
        for seed in range(args.models):
            rng = np.random.default_rng([7, seed])
            chosen = rng.choice(len(workloads), int(rng.integers(8, 26)), replace=False)
            searches = [Search(workloads[i], int(rng.choice([1, 1, 2, 3])), rng, kind=kind) for i in chosen]
            clock_sec, latencies, forecasts = 0.0, [], []
            while sum(len(search.rounds) for search in searches) < (ROUNDS[-1] + 12) * len(searches):
                states = [search.state for search in searches]
                gain = scheduler.gain_per_min(states)
                rounds = sum(len(search.rounds) for search in searches) / len(searches)
                latency = sum(search.weight * (search.best_sec or 0.0) for search in searches)
                latencies.append((clock_sec, latency))
                if gain is not None:
                    forecasts.append((clock_sec, rounds, gain, latency))
                picked = scheduler.next(states)
                assert picked is not None
                clock_sec += searches[picked].round()
            for at_sec, rounds, gain, latency in forecasts:
                if at_sec + 60.0 <= clock_sec:
                    bucket = max((r for r in ROUNDS if r <= rounds), default=None)
                    after = [latency_sec for sec, latency_sec in latencies if sec >= at_sec + 60.0]
                    if bucket is not None and after:
                        forecast[bucket].append(gain)
                        came[bucket].append((latency - after[0]) / latency)
        print(f"{kind}: rounds per task, said, came, ratio")
        for bucket in sorted(forecast):
            mean_said, mean_came = float(np.mean(forecast[bucket])), float(np.mean(came[bucket]))
            print(f"  {bucket:4g}  {mean_said:.4f}  {mean_came:.4f}  {mean_said / max(mean_came, 1e-9):.1f}")


if __name__ == "__main__":
    main()
