"""Confirmation: time the few best configs of a task again, in turn, before its winner is named.

The best of many noisy measurements is too good to be true: it was also the luckiest. Timed again in turn, the few
best meet the same machine, and their order can be trusted.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace

from tunefarm_tuning.core.latency import relative_noise
from tunefarm_tuning.measure.interfaces import BuildInput, MeasureInput, MeasureOption
from tunefarm_tuning.records.record import TuningRecord
from tunefarm_tuning.records.selection import fastest
from tunefarm_tuning.search.budget import Budget
from tunefarm_tuning.search.measuring import trial_outcome
from tunefarm_tuning.search.trial_outcome import TrialOutcome
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.workload.task import TuningTask

MAX_CONFIGS = 3
"""Maximum number of configs per confirmation."""

MAX_CONFIRMATIONS = 4
"""Maximum number of confirmations of a task per run: a second one if a config that was not confirmed is best."""

MAX_SHARE_OF_TIME = 0.1
"""Maximum share of a wall-clock budget that is reserved for confirmation."""

ROUNDS = 10
"""Samples of each config."""

_NOISE_FLOOR = 0.02  # relative; the least assumed error of a timing, even if its samples agree better
_MARGIN = 1.5  # in units of noise
_TIMES_A_TRIAL = 3.0  # times longer than in a trial
_UNKNOWN_RUN_SEC = 0.3
_LONGEST_RUN_SEC = 3600.0  # a larger value in a record cannot be about one candidate


def configs_to_confirm(records: Iterable[TuningRecord]) -> list[Config]:
    """Return the configs to confirm in turn, fastest first; empty if the winner is clear.

    The winner is clear if the fastest was confirmed, or leads the next by more than their noise. Once some config of
    the task was confirmed, a lead is not enough: the fastest is then one single timing against several.

    Args:
        records: Records of one workload, target, device model, toolchain and space.
    """
    all_records = list(records)
    top = fastest(all_records, MAX_CONFIGS)
    if len(top) < 2 or top[0].confirmed:
        return []
    if any(record.confirmed for record in all_records):
        return [record.config for record in top]
    best = top[0]
    close = [
        record
        for record in top[1:]
        if _cost(record) <= _cost(best) * (1 + _MARGIN * max(noise(best), noise(record)))
    ]
    return [record.config for record in (best, *close)] if close else []


def confirming_sec(records: Iterable[TuningRecord], num_configs: int) -> float:
    """Return the expected seconds of confirming so many configs, estimated from their trials."""
    claims = [record.extra.get("run_sec") for record in records if record.cost_sec is not None]
    # Records may come from anywhere: `extra` can contain anything.
    numbers = [sec for sec in claims if isinstance(sec, int | float) and not isinstance(sec, bool)]
    run_secs = [sec for sec in numbers if 0 <= sec < _LONGEST_RUN_SEC]
    mean_sec = sum(run_secs) / len(run_secs) if run_secs else _UNKNOWN_RUN_SEC
    return num_configs * _TIMES_A_TRIAL * mean_sec


def search_budget(budget: Budget, expected_sec: float) -> Budget:
    """Return the budget of the search without the time of confirmation.

    Args:
        budget: Budget of the whole run.
        expected_sec: How long confirmation is expected to take, over all tasks; a bounded share of the time is kept
            back for it.
    """
    if budget.wall_sec is None:
        return budget
    reserve_sec = min(expected_sec, MAX_SHARE_OF_TIME * budget.wall_sec)
    return replace(budget, wall_sec=budget.wall_sec - reserve_sec)


def confirm_best(
    task: TuningTask,
    configs: Sequence[Config],
    option: MeasureOption,
    *,
    space_key: str,
    rounds: int = ROUNDS,
) -> tuple[TrialOutcome, ...]:
    """Build and measure configs again, in turn: A B C, A B C, ...

    Args:
        task: Task of the configs.
        configs: The best configs of the task, as applied.
        option: Builder and runner. Recently built kernels are not built again.
        space_key: Key of the configs' space.
        rounds: Number of samples of each config.

    Returns:
        One outcome per config, in order, with all its samples. Its record has ``extra["confirmed"]`` (unless the
        device failed), and the config is judged by it from then on.
    """
    builds = option.builder.build([BuildInput(task=task, config=config) for config in configs])
    try:
        inputs = {
            number: MeasureInput(task=task, artifact_path=build.artifact_path)
            for number, build in enumerate(builds)
            if build.artifact_path is not None
        }
        results = option.runner.run_interleaved(list(inputs.values()), rounds=rounds)
        measured = dict(zip(inputs, results, strict=True))
    finally:
        for build in builds:
            build.delete_artifact()
    now = time.time()
    return tuple(
        trial_outcome(
            config, build, measured.get(number), measured_at=now, space_key=space_key, confirmed=True
        )
        for number, (config, build) in enumerate(zip(configs, builds, strict=True))
    )


def noise(record: TuningRecord) -> float:
    """Return the relative error of a record's cost, from its samples, with a lower bound."""
    return max(relative_noise(record.samples_sec) or 0.0, _NOISE_FLOOR)


def _cost(record: TuningRecord) -> float:
    return record.cost_sec if record.cost_sec is not None else float("inf")
