"""`tune` on replay: budgets, events, the log, resuming, failures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from tunefarm_tuning.core.errors import DeviceLostError, InvalidInputError
from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.measure.builder.replay import ReplayBuilder
from tunefarm_tuning.measure.interfaces import Failure, MeasureOption, MeasureResult
from tunefarm_tuning.measure.runner.replay import ReplayRunner
from tunefarm_tuning.records.record import load_records
from tunefarm_tuning.records.selection import pick_best
from tunefarm_tuning.records.transfer import TaskHistory
from tunefarm_tuning.search.budget import Budget
from tunefarm_tuning.search.events import (
    BestConfirmed,
    RoundFinished,
    TaskEnded,
    TaskPicked,
    TuneEvent,
    TuneFinished,
)
from tunefarm_tuning.search.result import TuneResult
from tunefarm_tuning.search.tune import tune
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.space.config_space import ConfigSpace
from tunefarm_tuning.testing.synthetic import (
    conv_space,
    synthetic_measure_option,
    synthetic_task,
    tiny_space,
)
from tunefarm_tuning.tuner.baselines import RandomTuner
from tunefarm_tuning.workload.task import TuningTask

TASKS = [
    synthetic_task("conv", flops=1e9, weight=2),
    synthetic_task("dense", flops=1e8),
    synthetic_task("pool", flops=1e6),
]
SPACES: dict[str, ConfigSpace] = {
    TASKS[0].workload.key: conv_space(),
    TASKS[1].workload.key: conv_space(),
    TASKS[2].workload.key: tiny_space(),
}


def option(**how: float) -> MeasureOption:
    return synthetic_measure_option(SPACES, **how)  # type: ignore[arg-type]


def tune_all(tuner: str = "random", **how: object) -> TuneResult:
    return tune(TASKS, tuner=tuner, **{"measure_option": option(failing=0.2), **how})  # type: ignore[arg-type]


def test_the_trial_budget_is_met_exactly() -> None:
    result = tune_all(budget=Budget(trials=45))
    assert (result.trials, result.stop_reason) == (45, "trials")
    assert len(result.records) == 45 == sum(task.trials for task in result.tasks)
    assert len({(r.workload_key, r.config.key) for r in result.records}) == 45
    assert all(task.trials >= 8 for task in result.tasks)
    assert result.failures == sum(r.outcome is not Outcome.OK for r in result.records) > 0
    for task in result.tasks:
        assert sum(task.outcomes.values()) == task.trials


def test_the_wall_clock_budget_ends_it_after_the_round_in_flight() -> None:
    result = tune_all(budget=Budget(wall_sec=1e-9))
    assert result.stop_reason == "wall_sec"
    assert sum(task.trials > 0 for task in result.tasks) == 1


def test_patience_ends_it() -> None:
    """Every kernel is as fast as any other: nothing improves on the first."""
    spaces = {TASKS[0].workload.key: conv_space()}
    flat = MeasureOption(builder=ReplayBuilder(spaces), runner=ReplayRunner(lambda *_: (1e-3,)))
    result = tune(TASKS[:1], budget=Budget(patience_trials=16), measure_option=flat, tuner="random")
    assert result.stop_reason == "patience_trials"
    assert result.trials == 24


def test_small_spaces_are_spent() -> None:
    result = tune(TASKS[2:], budget=Budget(trials=1000), measure_option=option(), tuner="ga")
    assert (result.stop_reason, result.trials) == ("exhausted", 18)
    assert result.tasks[0].exhausted


def test_no_tasks_is_no_error() -> None:
    result = tune([], budget=Budget(trials=1), measure_option=option())
    assert (result.stop_reason, result.trials, result.best_latency_sec) == ("no-tasks", 0, None)


def test_best_latency_is_the_weighted_sum_of_the_best() -> None:
    result = tune_all(budget=Budget(trials=60))
    best = {r.workload_key: r.cost_sec for r in pick_best(result.records)}
    expected = sum(t.weight * (best[t.workload.key] or 0.0) for t in TASKS)
    assert result.best_latency_sec == pytest.approx(expected)


def test_equal_seeds_search_a_task_equally_on_replay() -> None:
    """Between tasks the wall-clock has a say."""

    def configs(seed: int) -> list[str]:
        result = tune(TASKS[:1], tuner="xgb", budget=Budget(trials=40), seed=seed, measure_option=option())
        return [record.config.key for record in result.records]

    assert configs(1) == configs(1)
    assert configs(1) != configs(2)


def test_events_tell_the_whole_story() -> None:
    events: list[TuneEvent] = []
    result = tune_all(budget=Budget(trials=60), on_event=events.append)
    rounds = [e for e in events if isinstance(e, RoundFinished)]
    assert sum(len(e.outcomes) for e in rounds) == 60
    assert [e.task for e in events if isinstance(e, TaskPicked)][:3] == [0, 1, 2]
    assert rounds[0].best_latency_sec is None
    assert rounds[0].tasks_with_kernel == 1
    assert rounds[-1].best_latency_sec == result.best_latency_sec
    known = [e.best_latency_sec for e in rounds if e.best_latency_sec is not None]
    assert all(later <= earlier for earlier, later in pairwise(known))
    assert all(a.wall_sec <= b.wall_sec for a, b in pairwise(events))
    ended = events[-1]
    assert isinstance(ended, TuneFinished)
    assert (ended.trials, ended.stop_reason) == (60, "trials")


def test_the_log_holds_every_record(tmp_path: Path) -> None:
    log = tmp_path / "new" / "log.jsonl"
    result = tune_all(budget=Budget(trials=40), log_path=log)
    assert tuple(load_records(log)) == result.records


def test_a_run_resumes_from_its_log(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    first = tune_all(budget=Budget(trials=40), log_path=log)
    second = tune_all(budget=Budget(trials=40), log_path=str(log), records=load_records(log))
    every = list(load_records(log))
    assert len(every) == 80
    assert len({(r.workload_key, r.config.key) for r in every}) == 80
    assert (second.best_latency_sec or 9.0) <= (first.best_latency_sec or 0.0)
    best = {r.workload_key: r.cost_sec for r in pick_best(every)}
    assert {t.workload_key: t.best_cost_sec for t in second.tasks} == best


def test_records_of_another_device_do_not_count_as_tried() -> None:
    space_of_two = TASKS[2:]
    first = tune(space_of_two, budget=Budget(trials=99), measure_option=option(), tuner="grid")
    foreign = [replace(r, device_model="another") for r in first.records]
    again = tune(
        space_of_two, budget=Budget(trials=99), measure_option=option(), tuner="xgb", records=foreign
    )
    assert again.trials == first.trials == 18


def test_a_best_of_a_space_that_is_gone_is_none() -> None:
    """An older tunefarm's config cannot be applied: no artifact could be as fast as it says."""
    (record, *_) = tune_all(budget=Budget(trials=8)).records
    gone = replace(record, space_key="gone", outcome=Outcome.OK, samples_sec=(1e-9,) * 3)
    again = tune_all(budget=Budget(trials=40), records=[gone])
    best = {r.workload_key: r.cost_sec for r in pick_best(again.records)}
    assert {t.workload_key: t.best_cost_sec for t in again.tasks} == best


def test_one_bad_task_does_not_end_the_run() -> None:
    strange = synthetic_task("strange", flops=1e12)
    events: list[TuneEvent] = []
    result = tune(
        [strange, *TASKS],
        budget=Budget(trials=40),
        measure_option=option(),
        tuner="random",
        on_event=events.append,
    )
    assert result.trials == 40
    assert result.tasks[0].failed == "workload strange cannot be scheduled"
    assert [t.failed for t in result.tasks[1:]] == [None] * 3
    assert result.best_latency_sec is None
    (ended,) = [e for e in events if isinstance(e, TaskEnded)]
    assert (ended.task, ended.reason) == (0, "workload strange cannot be scheduled")


def test_our_own_bug_in_one_task_does_not_end_the_run() -> None:
    class Broken(ReplayBuilder):
        def config_space(self, task: TuningTask) -> ConfigSpace:
            if task.workload.name == "dense":
                raise ZeroDivisionError("division by zero")
            return super().config_space(task)

    broken = MeasureOption(builder=Broken(SPACES), runner=option().runner)
    result = tune_all(budget=Budget(trials=30), measure_option=broken)
    assert result.trials == 30
    assert result.tasks[1].failed == "ZeroDivisionError: division by zero"


def test_no_tunable_task_at_all_is_an_error() -> None:
    with pytest.raises(InvalidInputError, match="none of the 1 tasks") as caught:
        tune([synthetic_task("strange")], budget=Budget(trials=8), measure_option=option(), tuner="random")
    assert caught.value.code == "no-tunable-task"


def test_a_device_that_is_away_is_an_error_when_there_is_nothing_else() -> None:
    away = MeasureOption(
        builder=ReplayBuilder(SPACES),
        runner=ReplayRunner(lambda *_: Failure(Outcome.INFRASTRUCTURE_ERROR, "away")),
    )
    with pytest.raises(DeviceLostError, match="cannot measure: away"):
        tune_all(budget=Budget(trials=40), measure_option=away)


def after(calls: int, then: Callable[[], tuple[float, ...] | Failure]) -> MeasureOption:
    """Return a machine that measures some candidates, and then does something else."""
    count = 0

    def answer(task: TuningTask, config: Config) -> tuple[float, ...] | Failure:
        nonlocal count
        count += 1
        return (1e-3,) if count <= calls else then()

    return MeasureOption(builder=ReplayBuilder(SPACES), runner=ReplayRunner(answer))


def test_a_device_lost_in_the_middle_keeps_what_there_is() -> None:
    lost = after(20, lambda: Failure(Outcome.INFRASTRUCTURE_ERROR, "away"))
    result = tune_all(budget=Budget(trials=80), measure_option=lost)
    assert (result.stop_reason, result.trials) == ("device-lost", 20)


def test_ctrl_c_keeps_what_there_is(tmp_path: Path) -> None:
    def interrupt() -> tuple[float, ...]:
        raise KeyboardInterrupt

    log = tmp_path / "log.jsonl"
    result = tune_all(budget=Budget(trials=80), measure_option=after(20, interrupt), log_path=log)
    assert (result.stop_reason, result.trials) == ("interrupted", 18)
    assert len(list(load_records(log))) == 18


def test_an_unknown_tuner_lists_its_nearest() -> None:
    with pytest.raises(InvalidInputError, match="did you mean xgb") as caught:
        tune_all(tuner="XGBoost", budget=Budget(trials=8))
    assert caught.value.code == "unknown-tuner"


def test_nonsense_arguments_are_refused_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="round_size"):
        tune_all(budget=Budget(trials=8), round_size=0)
    with pytest.raises(InvalidInputError) as caught:
        tune_all(budget=Budget(trials=8), log_path=tmp_path)
    assert caught.value.code == "bad-log-path"


class Lucky:
    """A machine whose first timing of some configs is too good, and later ones are right."""

    def __init__(self) -> None:
        self.true_sec: dict[str, float] = {}

    def __call__(self, task: TuningTask, config: Config) -> tuple[float, ...]:
        number = sum(map(ord, config.key))
        if config.key in self.true_sec:
            return (self.true_sec[config.key],)
        self.true_sec[config.key] = 1e-3 * (1 + 1e-4 * (number % 7))
        return (self.true_sec[config.key] * (0.95 if number % 10 == 0 else 1.0),) * 3

    def option(self) -> MeasureOption:
        return MeasureOption(builder=ReplayBuilder(SPACES), runner=ReplayRunner(self))


def test_the_winner_is_confirmed_before_the_run_ends(tmp_path: Path) -> None:
    machine = Lucky()
    log = tmp_path / "log.jsonl"
    events: list[TuneEvent] = []
    result = tune(
        TASKS[:1],
        budget=Budget(trials=40),
        measure_option=machine.option(),
        tuner="random",
        on_event=events.append,
        log_path=log,
    )
    confirmed = [record for record in result.records if record.confirmed]
    confirmations = [e for e in events if isinstance(e, BestConfirmed)]
    assert (result.trials, result.tasks[0].trials) == (40, 40)
    assert len(result.records) == 40 + len(confirmed)
    assert len(confirmed) == sum(len(e.outcomes) for e in confirmations) > 1
    assert tuple(load_records(log)) == result.records
    assert result.tasks[0].confirmations == len(confirmations) > 0
    assert sum(result.tasks[0].outcomes.values()) == 40
    # The lucky timings are out: the best that is named is what the machine says when asked again.
    (best,) = pick_best(result.records)
    assert best.cost_sec == machine.true_sec[best.config.key]
    assert result.tasks[0].best_cost_sec == best.cost_sec == confirmations[-1].best_cost_sec
    assert best.cost_sec > min(r.cost_sec for r in result.records if r.cost_sec)
    assert isinstance(events[-1], TuneFinished)


def test_confirmation_can_be_left_out() -> None:
    result = tune(
        TASKS[:1], budget=Budget(trials=16), measure_option=Lucky().option(), tuner="random", confirm=False
    )
    assert len(result.records) == 16
    assert result.tasks[0].confirmations == 0


def test_there_is_no_time_to_confirm_after_the_wall_clock() -> None:
    result = tune(TASKS[:1], budget=Budget(wall_sec=1e-9), measure_option=Lucky().option(), tuner="random")
    assert not any(record.confirmed for record in result.records)


def test_a_confirmation_that_breaks_costs_nothing_that_was_found() -> None:
    class Broken(ReplayRunner):
        def run_interleaved(self, inputs: object, *, rounds: int) -> list[MeasureResult]:
            raise ZeroDivisionError("division by zero")

    option = MeasureOption(builder=ReplayBuilder(SPACES), runner=Broken(Lucky()))
    events: list[TuneEvent] = []
    result = tune(
        TASKS[:1], budget=Budget(trials=16), measure_option=option, tuner="random", on_event=events.append
    )
    assert result.trials == len(result.records) == 16
    confirmations = [e for e in events if isinstance(e, BestConfirmed)]
    assert {e.failed for e in confirmations} == {"ZeroDivisionError: division by zero"}
    assert result.stop_reason == "trials"


def test_the_run_stops_when_little_is_to_be_won() -> None:
    flat = MeasureOption(builder=ReplayBuilder(SPACES), runner=ReplayRunner(lambda *_: (1e-3,)))
    budget = Budget(trials=400, min_gain_per_min=1e9)
    result = tune(TASKS, budget=budget, measure_option=flat, tuner="random")
    assert result.stop_reason == "min_gain_per_min"
    assert all(task.trials > 0 for task in result.tasks)  # no task is left out for it
    assert result.trials < 400


def test_tasks_learn_from_each_other_and_from_histories(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: dict[str, list[tuple[TaskHistory, ...]]] = {}

    def load_history(tuner: RandomTuner, histories: Sequence[TaskHistory]) -> None:
        loaded.setdefault(tuner.space.key, []).append(tuple(histories))

    monkeypatch.setattr(RandomTuner, "load_history", load_history)
    first = tune(TASKS[:1], budget=Budget(trials=16), measure_option=option(), tuner="random")
    elsewhere = [replace(record, device_model="another") for record in first.records]
    older = TaskHistory(
        space=conv_space(), records=tuple(replace(r, workload_key="older") for r in first.records)
    )
    tune(
        TASKS[1:],
        budget=Budget(trials=40),
        measure_option=option(),
        tuner="random",
        records=[replace(record, workload_key=TASKS[1].workload.key) for record in elsewhere],
        histories=[older],
    )
    conv, tiny = loaded[conv_space().key][-1], loaded[tiny_space().key][-1]
    names = [[history.records[0].workload_key for history in histories] for histories in (conv, tiny)]
    assert names[0][0] == TASKS[1].workload.key  # the same workload, on another device
    assert set(names[0]) == {TASKS[1].workload.key, TASKS[2].workload.key, "older"}
    assert set(names[1]) == {TASKS[1].workload.key, "older"}
    assert {r.device_model for r in conv[0].records} == {"another"}


def test_a_task_without_records_learns_from_those_with_some_before_they_had_a_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loaded: list[tuple[str, list[str]]] = []

    def load_history(tuner: RandomTuner, histories: Sequence[TaskHistory]) -> None:
        loaded.append((tuner.space.key, [history.records[0].workload_key for history in histories]))

    known = tune(TASKS[:1], budget=Budget(trials=8), measure_option=option(), tuner="random").records
    monkeypatch.setattr(RandomTuner, "load_history", load_history)
    tune(
        TASKS, budget=Budget(trials=8), measure_option=option(), tuner="random", records=known, confirm=False
    )
    assert loaded[0] == (SPACES[TASKS[1].workload.key].key, [TASKS[0].workload.key])
