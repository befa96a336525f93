"""Confirming the best: built again, measured in turn, marked."""

from __future__ import annotations

from pathlib import Path

from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.measure.builder.replay import ReplayBuilder
from tunefarm_tuning.measure.interfaces import Failure, MeasureOption
from tunefarm_tuning.measure.runner.replay import REPLAY_DEVICE, ReplayRunner
from tunefarm_tuning.search.confirm import confirm_best
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.testing.synthetic import synthetic_task, tiny_space
from tunefarm_tuning.workload.task import TuningTask

TASK = synthetic_task()
SPACE = tiny_space()
CONFIGS = [SPACE.config_at(i) for i in range(4)]


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
    record = outcomes[0].to_record(TASK, REPLAY_DEVICE, tuner="xgb", toolchain="t")
    assert record.extra["confirmed"] is True
    assert record.extra["noise"] > 0
    assert record.space_key == SPACE.key
    assert list(tmp_path.iterdir()) == []


def test_nothing_to_confirm() -> None:
    option = MeasureOption(builder=ReplayBuilder({TASK.workload.key: SPACE}), runner=ReplayRunner(answer))
    assert confirm_best(TASK, [], option, space_key=SPACE.key) == ()
