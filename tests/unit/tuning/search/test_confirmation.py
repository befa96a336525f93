"""Re-measurement before the winner is named: the configs are built again, measured in turn and marked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tuning_records import RECORD

from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.measure.builder.replay import ReplayBuilder
from tunefarm_tuning.measure.interfaces import Failure, MeasureOption
from tunefarm_tuning.measure.runner.replay import REPLAY_DEVICE, ReplayRunner
from tunefarm_tuning.records.record import TuningRecord
from tunefarm_tuning.search.confirmation import (
    configs_to_confirm,
    confirm_best,
    confirming_sec,
    noise,
)
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.testing.synthetic import synthetic_task, tiny_space
from tunefarm_tuning.workload.task import TuningTask

TASK = synthetic_task()
SPACE = tiny_space()
CONFIGS = [SPACE.config_at(i) for i in range(4)]


def record(number: int, cost_sec: float, **extra: object) -> TuningRecord:
    return replace(RECORD, config=Config(0, (number,)), samples_sec=(cost_sec,) * 3, extra=extra)


def configs(*numbers: int) -> list[Config]:
    return [Config(0, (number,)) for number in numbers]


def test_a_clear_winner_is_left_alone() -> None:
    assert configs_to_confirm([]) == []
    assert configs_to_confirm([record(1, 1.0e-3)]) == []
    assert configs_to_confirm([record(1, 1.0e-3), record(2, 1.2e-3)]) == []


def test_the_best_within_noise_are_measured_again() -> None:
    close = [record(1, 1.0e-3), record(2, 1.01e-3), record(3, 1.02e-3), record(4, 1.021e-3), record(5, 2e-3)]
    assert configs_to_confirm(close) == configs(1, 2, 3)  # three are enough
    assert configs_to_confirm([*close[:2], close[4]]) == configs(1, 2)


def test_noisy_measurements_bring_in_more() -> None:
    quiet = record(2, 1.2e-3)
    loud = replace(quiet, samples_sec=(1.04e-3, 1.2e-3, 1.36e-3))
    assert configs_to_confirm([record(1, 1.0e-3), quiet]) == []
    assert configs_to_confirm([record(1, 1.0e-3), loud]) == configs(1, 2)


def test_a_confirmed_winner_is_not_confirmed_again() -> None:
    won, second = record(1, 1.0e-3, confirmed=True), record(2, 1.01e-3, confirmed=True)
    assert configs_to_confirm([won, second, record(3, 1.02e-3)]) == []


def test_one_that_was_not_among_them_and_is_best_now_is_confirmed_too() -> None:
    slower = [record(1, 1.05e-3, confirmed=True), record(2, 1.06e-3, confirmed=True)]
    assert configs_to_confirm([*slower, record(3, 1.04e-3)]) == configs(3, 1, 2)


def test_a_lead_over_confirmed_ones_is_not_enough() -> None:
    slower = [record(1, 1.05e-3, confirmed=True), record(2, 1.06e-3, confirmed=True)]
    assert configs_to_confirm([*slower, record(3, 0.5e-3)]) == configs(3, 1, 2)


def test_noise_is_what_the_samples_say_and_never_nothing() -> None:
    assert noise(record(1, 1e-3)) == 0.02
    assert noise(replace(RECORD, samples_sec=(1e-3, 2e-3))) == 0.02  # too few to tell
    assert noise(replace(RECORD, samples_sec=(0.9e-3, 1e-3, 1.1e-3))) == pytest.approx(0.14826)


def test_how_long_confirming_takes_is_told_by_sensible_facts_alone() -> None:
    known = record(1, 1e-3, run_sec=0.1)
    expected = confirming_sec([known], 2)
    assert expected == pytest.approx(0.6)
    for nonsense in ("x", None, [1], True, -5, float("nan"), 1e300, 10**400):
        assert confirming_sec([known, record(2, 1e-3, run_sec=nonsense)], 2) == expected


def answer(task: TuningTask, config: Config) -> tuple[float, ...] | Failure:
    if config == CONFIGS[2]:
        return Failure(Outcome.RUN_CRASH, "died")
    return (1e-3, 2e-3, 3e-3)


def test_one_outcome_per_config_and_records_that_say_so(tmp_path: Path) -> None:
    def fail(task: TuningTask, config: Config) -> Failure | None:
        return Failure(Outcome.BUILD_ERROR, "no") if config == CONFIGS[1] else None

    builder = ReplayBuilder({TASK.workload.key: SPACE}, work_dir=tmp_path, fail=fail)
    option = MeasureOption(builder=builder, runner=ReplayRunner(answer))
    outcomes = confirm_best(TASK, CONFIGS, option, space_key=SPACE.key, rounds=5)
    assert [o.config for o in outcomes] == CONFIGS
    assert [o.outcome for o in outcomes] == [
        Outcome.OK,
        Outcome.BUILD_ERROR,
        Outcome.RUN_CRASH,
        Outcome.OK,
    ]
    assert len(outcomes[0].samples_sec) == 3  # each by itself: one of them crashed
    recorded = outcomes[0].to_record(TASK, REPLAY_DEVICE, tuner="xgb", toolchain="t")
    assert recorded.extra["confirmed"] is True
    assert recorded.extra["noise"] > 0
    assert recorded.space_key == SPACE.key
    assert list(tmp_path.iterdir()) == []


def test_nothing_to_confirm() -> None:
    option = MeasureOption(builder=ReplayBuilder({TASK.workload.key: SPACE}), runner=ReplayRunner(answer))
    assert confirm_best(TASK, [], option, space_key=SPACE.key) == ()
