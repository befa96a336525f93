"""Print the table of `benchmarks.overlap.run`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from benchmarks.search.markdown import table

HEAD = [
    "Regime",
    "Search",
    "Side",
    "trials/s",
    "device idle",
    "latency after equal trials",
    "time to the latency of off",
]


def table_of(runs: Sequence[dict[str, Any]]) -> str:
    """Return one row per regime, search and side: means over seeds, latency and time relative to *off*."""
    rows = []
    for regime, search in dict.fromkeys((run["regime"], run["search"]) for run in runs):
        here = {
            (run["side"], run["seed"]): run
            for run in runs
            if (run["regime"], run["search"]) == (regime, search)
        }
        for side in dict.fromkeys(side for side, _ in here):
            seeds = [seed for other, seed in here if other == side and ("off", seed) in here]
            pairs = [(here[side, seed], here["off", seed]) for seed in seeds]
            if not pairs:
                continue
            equal_trials = [_last(mine) / _last(off) for mine, off in pairs]
            times = [_reached(mine, off) / _reached(off, off) for mine, off in pairs]
            rows.append(
                [
                    regime,
                    search,
                    side,
                    f"{np.mean([mine['trials'] / mine['wall_sec'] for mine, _ in pairs]):.2f}",
                    f"{1 - np.mean([mine['busy_sec'] / mine['wall_sec'] for mine, _ in pairs]):.0%}",
                    f"{np.exp(np.mean(np.log(equal_trials))):.3f}",
                    f"{np.exp(np.mean(np.log(times))):.3f}",
                ]
            )
    return table(HEAD, rows)


def _last(run: dict[str, Any]) -> float:
    return float(run["curve"][-1][2])


def _reached(run: dict[str, Any], off: dict[str, Any]) -> float:
    """Return when the latency that `off` ends with was reached, within a percent; the end where it was not."""
    wanted = 1.01 * _last(off)
    return float(next((sec for sec, _, latency in run["curve"] if latency <= wanted), run["wall_sec"]))
