"""Whose win is in doubt: the configs of a task that are to be measured again before the winner is named."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tunefarm_tuning.core.latency import relative_noise
from tunefarm_tuning.records.record import TuningRecord
from tunefarm_tuning.records.selection import fastest
from tunefarm_tuning.search.budget import Budget
from tunefarm_tuning.space.config import Config

MAX_CONTENDERS = 3
MAX_CONFIRMATIONS = 4
"""How often a task's best are measured again in one run: once more while a config that was not among them is best."""

MOST_FOR_CONFIRMING = 0.1
"""Share of a wall-clock budget that is kept back for it at most."""

_NOISE_FLOOR = 0.02  # relative; no timing is trusted to be better, whatever its own samples say
_MARGIN = 1.5  # in units of noise
_TIMES_A_TRIAL = 3.0  # that much longer a contender is timed than a trial
_UNKNOWN_RUN_SEC = 0.3
_LONGEST_RUN_SEC = 3600.0  # what says more is no measurement of one candidate


def contenders(records: Iterable[TuningRecord]) -> list[Config]:
    """Return the configs to be measured again, side by side, fastest first; empty where the winner is clear.

    It is clear if the fastest was confirmed, or leads the next by more than their noise. Once some config of the
    task was confirmed, a lead is not enough: the fastest is then one single timing against several.

    Args:
        records: Of one workload, target, device model, toolchain and space.
    """
    given = list(records)
    top = fastest(given, MAX_CONTENDERS)
    if len(top) < 2 or top[0].confirmed:
        return []
    if any(record.confirmed for record in given):
        return [record.config for record in top]
    best = top[0]
    close = [
        best,
        *(r for r in top[1:] if _cost(r) <= _cost(best) * (1 + _MARGIN * max(noise(best), noise(r)))),
    ]
    return [record.config for record in close] if len(close) > 1 else []


def confirming_sec(records: Iterable[TuningRecord], num_configs: int) -> float:
    """Return how long measuring so many configs again may take, told from how long their trials took."""
    told = [r.extra.get("run_sec") for r in records if r.cost_sec is not None]
    # Records come from anywhere, and what is beside their samples may be anything.
    numbers = [sec for sec in told if isinstance(sec, int | float) and not isinstance(sec, bool)]
    took = [sec for sec in numbers if 0 <= sec < _LONGEST_RUN_SEC]
    return num_configs * _TIMES_A_TRIAL * (sum(took) / len(took) if took else _UNKNOWN_RUN_SEC)


def without_confirming(budget: Budget, expected_sec: float) -> Budget:
    """Return the budget of the search alone: without the time that confirming the winners will take.

    Args:
        budget: Of the whole run.
        expected_sec: How long confirming is expected to take, over all tasks; a bounded share of the time is kept back.
    """
    if budget.wall_sec is None:
        return budget
    reserve_sec = min(expected_sec, MOST_FOR_CONFIRMING * budget.wall_sec)
    return replace(budget, wall_sec=budget.wall_sec - reserve_sec)


def noise(record: TuningRecord) -> float:
    """Return how far off the cost of a record may be, relative to it: as its samples say, and never nothing."""
    return max(relative_noise(record.samples_sec) or 0.0, _NOISE_FLOOR)


def _cost(record: TuningRecord) -> float:
    return record.cost_sec if record.cost_sec is not None else float("inf")
