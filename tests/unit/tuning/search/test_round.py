"""One round: propose, build, measure, learn; and which candidates count as trials."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.measure.builder.replay import ReplayBuilder
from tunefarm_tuning.measure.interfaces import (
    BuildResult,
    Failure,
    MeasureInput,
    MeasureOption,
    MeasureResult,
)
from tunefarm_tuning.measure.runner.landscape import SyntheticLandscape
from tunefarm_tuning.measure.runner.replay import REPLAY_DEVICE, Answer, ReplayRunner
from tunefarm_tuning.records.record import TuningRecord
from tunefarm_tuning.search.measuring import trial_outcome
from tunefarm_tuning.search.round import run_round
from tunefarm_tuning.search.trial_outcome import TrialOutcome
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.testing.synthetic import conv_space, synthetic_measure_option, synthetic_task, tiny_space
from tunefarm_tuning.tuner import make_tuner
from tunefarm_tuning.workload.task import TuningTask

TASK = synthetic_task()
KEY = TASK.workload.key


def steady(task: TuningTask, config: Config) -> tuple[float, ...]:
    return (1e-3, 2e-3, 3e-3)


def test_a_round_returns_a_trial_per_candidate_in_the_order_asked() -> None:
    space = conv_space()
    twin = make_tuner("random", TASK, space, seed=4)
    outcomes = run_round(
        make_tuner("random", TASK, space, seed=4),
        TASK,
        8,
        synthetic_measure_option({KEY: space}, failing=0.5),
    )
    assert [o.asked for o in outcomes] == twin.ask(8)
    assert {o.outcome for o in outcomes} > {Outcome.OK}
    for outcome in outcomes:
        assert (outcome.outcome is Outcome.OK) == bool(outcome.samples_sec) == (outcome.cost_sec is not None)
        assert bool(outcome.message) == (outcome.outcome is not Outcome.OK)
        assert outcome.is_trial
        assert outcome.space_key == space.key
        assert outcome.measured_at > 0


def test_cost_is_the_median_and_the_record_keeps_the_raw_samples() -> None:
    space = tiny_space()
    option = MeasureOption(builder=ReplayBuilder({KEY: space}), runner=ReplayRunner(steady))
    (outcome,) = run_round(make_tuner("grid", TASK, space), TASK, 1, option)
    record = outcome.to_record(TASK, REPLAY_DEVICE, tuner="grid", toolchain="tvm-0", extra={"job": "j"})
    assert record.cost_sec == outcome.cost_sec == 2e-3
    assert record.samples_sec == (1e-3, 2e-3, 3e-3)
    assert (record.workload_key, record.target_key) == (KEY, "llvm -num-cores=2")
    assert (record.device_model, record.toolchain, record.space_key) == ("replay", "tvm-0", space.key)
    assert record.extra["job"] == "j"
    assert TuningRecord.from_json(record.to_json()) == record


def test_what_a_measurement_told_is_in_its_record() -> None:
    facts = {"gpu": {"clock_mhz": 1980.0, "before": {"clock_mhz": 345.0}}}
    config = tiny_space().config_at(0)
    built = BuildResult(config=config, build_sec=0.1, artifact_path=Path("kernel"))
    measured = MeasureResult(run_sec=0.1, samples_sec=(1e-3,) * 3, facts=facts)
    outcome = trial_outcome(config, built, measured, measured_at=1.0, space_key="space")
    record = outcome.to_record(TASK, REPLAY_DEVICE, tuner="grid", toolchain="tvm-0", extra={"job": "j"})
    assert {name: record.extra[name] for name in ("gpu", "run_sec", "job")} == {
        **facts,
        "run_sec": 0.1,
        "job": "j",
    }
    assert TuningRecord.from_json(record.to_json()) == record


@pytest.mark.parametrize("odd_sec", [0.0, -1e-3, float("inf"), float("nan")])
def test_a_time_that_cannot_be_is_a_failure(odd_sec: float) -> None:
    measured = MeasureResult(run_sec=0.1, samples_sec=(1e-3, odd_sec, 1e-3))
    config = tiny_space().config_at(0)
    built = BuildResult(config=config, build_sec=0.1, artifact_path=Path("kernel"))
    outcome = trial_outcome(config, built, measured, measured_at=1.0, space_key="space")
    assert (outcome.outcome, outcome.samples_sec) == (Outcome.RUN_ERROR, ())
    assert outcome.message == f"a call was timed at {odd_sec} s"


def test_artifacts_are_deleted(tmp_path: Path) -> None:
    space = tiny_space()
    builder = ReplayBuilder({KEY: space}, work_dir=tmp_path)
    option = MeasureOption(builder=builder, runner=ReplayRunner(steady))
    assert len(run_round(make_tuner("random", TASK, space), TASK, 8, option)) == 8
    assert list(tmp_path.iterdir()) == []


def test_artifacts_are_deleted_when_the_runner_raises(tmp_path: Path) -> None:
    def interrupt(task: TuningTask, config: Config) -> tuple[float, ...]:
        raise KeyboardInterrupt

    space = tiny_space()
    option = MeasureOption(
        builder=ReplayBuilder({KEY: space}, work_dir=tmp_path), runner=ReplayRunner(interrupt)
    )
    with pytest.raises(KeyboardInterrupt):
        run_round(make_tuner("random", TASK, space), TASK, 8, option)
    assert list(tmp_path.iterdir()) == []


def test_configs_that_become_one_are_measured_once() -> None:
    """18 configs become 9: each is measured once, in its first form, and the space is then spent."""
    space = tiny_space()
    measured: list[str] = []

    def count(task: TuningTask, config: Config) -> tuple[float, ...]:
        measured.append(config.key)
        return (1e-3,)

    def halve(config: Config) -> Config:
        return space.config_at(space.index_of(config) // 2 * 2)

    option = MeasureOption(builder=ReplayBuilder({KEY: space}, apply=halve), runner=ReplayRunner(count))
    tuner = make_tuner("grid", TASK, space)
    trials: list[TrialOutcome] = []
    while outcomes := run_round(tuner, TASK, 4, option):
        trials += outcomes
    assert len(measured) == len(set(measured)) == len(trials) == space.size // 2
    assert {t.config.key for t in trials} == set(measured)
    assert tuner.ask(1) == []


def test_many_proposals_in_a_row_that_were_all_tried_end_the_search() -> None:
    space = conv_space()
    everything_is_one = space.config_at(7)
    builder = ReplayBuilder({KEY: space}, apply=lambda _: everything_is_one)
    option = MeasureOption(builder=builder, runner=ReplayRunner(steady))
    tuner = make_tuner("random", TASK, space)
    assert len(run_round(tuner, TASK, 8, option)) == 1
    assert run_round(tuner, TASK, 8, option) == ()


def test_a_lost_device_is_no_trial_and_its_configs_come_again() -> None:
    space = tiny_space()
    healthy = iter([True, True, False])

    def flaky(task: TuningTask, config: Config) -> tuple[float, ...] | Failure:
        if next(healthy, True):
            return (1e-3,)
        return Failure(Outcome.INFRASTRUCTURE_ERROR, "the device went away")

    option = MeasureOption(builder=ReplayBuilder({KEY: space}), runner=ReplayRunner(flaky))
    tuner = make_tuner("random", TASK, space)
    first = run_round(tuner, TASK, 6, option)
    assert [o.is_trial for o in first] == [True, True, False, False, False, False]
    lost = {o.config.key for o in first if not o.is_trial}
    second = run_round(tuner, TASK, 4, option)
    assert {o.config.key for o in second} == lost
    assert all(o.outcome is Outcome.OK for o in second)


def test_cancelling_keeps_what_ended_well_and_blames_nobody() -> None:
    """Cancelling closes the runner, and later failures follow from that."""
    space = conv_space()
    cancelled: list[bool] = []

    def cancel_at_the_third(task: TuningTask, config: Config) -> tuple[float, ...] | Failure:
        seen.append(config)
        if len(seen) < 3:
            return (1e-3,)
        cancelled.append(True)
        return Failure(Outcome.RUN_CRASH, "the child was closed")

    seen: list[Config] = []
    option = MeasureOption(builder=ReplayBuilder({KEY: space}), runner=ReplayRunner(cancel_at_the_third))
    tuner = make_tuner("random", TASK, space)
    outcomes = run_round(tuner, TASK, 8, option, cancelled=lambda: bool(cancelled))
    assert [o.outcome for o in outcomes] == [Outcome.OK, Outcome.OK]
    assert tuner.result_of(seen[3]) is None
    assert run_round(tuner, TASK, 8, option, cancelled=lambda: bool(cancelled)) == ()


def refusing(share: float) -> Callable[[TuningTask, Config], Failure | None]:
    """Refuse this share of the configs, always the same ones."""

    def fail(task: TuningTask, config: Config) -> Failure | None:
        if random.Random(config.key).random() < share:
            return Failure(Outcome.INSTANTIATION_ERROR, "too many threads")
        return None

    return fail


def test_refused_candidates_are_replaced_and_take_no_budget() -> None:
    space = conv_space()
    option = MeasureOption(
        builder=ReplayBuilder({KEY: space}, fail=refusing(0.9)), runner=ReplayRunner(steady)
    )
    tuner = make_tuner("random", TASK, space, seed=3)
    outcomes = run_round(tuner, TASK, 8, option)
    trials = [o for o in outcomes if o.is_trial]
    assert 4 <= len(trials) <= 8
    assert all(o.outcome is Outcome.OK for o in trials)
    refused = [o for o in outcomes if o.outcome is Outcome.INSTANTIATION_ERROR]
    assert refused
    assert all(o.replaced and not o.is_trial for o in refused)
    assert all(tuner.result_of(o.config) is not None for o in refused)


def test_a_round_of_refusals_alone_spends_its_budget() -> None:
    space = conv_space()
    option = MeasureOption(
        builder=ReplayBuilder({KEY: space}, fail=refusing(1.0)), runner=ReplayRunner(steady)
    )
    outcomes = run_round(make_tuner("random", TASK, space), TASK, 4, option)
    assert sum(o.is_trial for o in outcomes) == 4
    assert 32 <= len(outcomes) < 36


def test_what_is_hopeless_is_told_to_the_runner_and_kept_with_the_record() -> None:
    rivals: list[float | None] = []

    class Watched(ReplayRunner):
        def run(self, inputs: Sequence[MeasureInput]) -> list[MeasureResult]:
            rivals.extend(item.rival_sec for item in inputs)
            return [replace(result, truncated=True) for result in super().run(inputs)]

    space = tiny_space()
    option = MeasureOption(builder=ReplayBuilder({KEY: space}), runner=Watched(steady))
    outcomes = run_round(make_tuner("random", TASK, space), TASK, 3, option, best_sec=5e-4)
    assert rivals == [5e-4] * 3
    extra = outcomes[0].to_record(TASK, REPLAY_DEVICE, tuner="random", toolchain="t").extra
    assert extra["truncated"] is True
    assert 0 < extra["noise"] < 1
    assert "confirmed" not in extra


class _Remote(ReplayRunner):
    """A runner on another machine, which gets candidates one by one."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer, shares_host=False)
        self.batches: list[int] = []
        self.rivals: list[float | None] = []

    def run(self, inputs: Sequence[MeasureInput]) -> list[MeasureResult]:
        self.batches.append(len(inputs))
        self.rivals += [item.rival_sec for item in inputs]
        return super().run(inputs)


def test_another_machine_measures_while_this_one_builds(tmp_path: Path) -> None:
    built: list[str] = []
    one_is_measured = threading.Event()
    space = tiny_space()

    def fail(task: TuningTask, config: Config) -> Failure | None:
        built.append(config.key)
        # The others get ready only when the first is measured.
        assert len(built) == 1 or one_is_measured.wait(60)
        return None

    def measure(task: TuningTask, config: Config) -> tuple[float, ...]:
        one_is_measured.set()
        return (1e-3,)

    runner = _Remote(measure)
    builder = ReplayBuilder({KEY: space}, work_dir=tmp_path, fail=fail)
    tuner = make_tuner("random", TASK, space)
    outcomes = run_round(tuner, TASK, 4, MeasureOption(builder=builder, runner=runner))
    assert [o.outcome for o in outcomes] == [Outcome.OK] * 4
    assert runner.rivals == [None, 1e-3, 1e-3, 1e-3]
    assert list(tmp_path.iterdir()) == []


def test_another_machine_gets_the_trials_that_this_one_would() -> None:
    space = conv_space()

    def trials(shares_host: bool) -> list[TrialOutcome]:
        runner = ReplayRunner(SyntheticLandscape(space, failing=0.3), shares_host=shares_host)
        option = MeasureOption(builder=ReplayBuilder({KEY: space}), runner=runner)
        tuner = make_tuner("ga", TASK, space, seed=2)
        outcomes = [outcome for _ in range(4) for outcome in run_round(tuner, TASK, 8, option)]
        return [replace(outcome, measured_at=0.0) for outcome in outcomes]

    assert trials(shares_host=True) == trials(shares_host=False)


def test_another_machine_that_is_lost_ends_the_round() -> None:
    space = conv_space()
    seen: list[Config] = []

    def lost_at_the_third(task: TuningTask, config: Config) -> tuple[float, ...] | Failure:
        seen.append(config)
        return (1e-3,) if len(seen) < 3 else Failure(Outcome.INFRASTRUCTURE_ERROR, "gone")

    runner = _Remote(lost_at_the_third)
    option = MeasureOption(builder=ReplayBuilder({KEY: space}), runner=runner)
    tuner = make_tuner("random", TASK, space)
    outcomes = run_round(tuner, TASK, 8, option)
    assert [o.is_trial for o in outcomes] == [True, True, *[False] * 6]
    assert {o.message for o in outcomes[2:]} == {"gone"}
    assert runner.batches == [1, 1, 1]
    assert all(tuner.result_of(o.config) is None for o in outcomes[2:])


def test_cancelling_stops_the_builds_for_another_machine(tmp_path: Path) -> None:
    space = conv_space()
    cancelled = threading.Event()
    built: list[Config] = []

    def fail(task: TuningTask, config: Config) -> Failure | None:
        built.append(config)
        assert len(built) < 4 or cancelled.wait(60)
        return None

    def cancel(task: TuningTask, config: Config) -> tuple[float, ...]:
        measured.append(config)
        if len(measured) == 3:
            cancelled.set()
        return (1e-3,)

    measured: list[Config] = []
    builder = ReplayBuilder({KEY: space}, work_dir=tmp_path, fail=fail)
    option = MeasureOption(builder=builder, runner=_Remote(cancel))
    outcomes = run_round(make_tuner("random", TASK, space), TASK, 8, option, cancelled=cancelled.is_set)
    assert [o.outcome for o in outcomes] == [Outcome.OK] * 3
    assert list(tmp_path.iterdir()) == []
