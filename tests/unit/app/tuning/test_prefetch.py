"""A track prepares its next round while it measures the present one, and handles every interruption."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from waiting import wait_until

from tunefarm_app.engines.replay import ReplayEngine
from tunefarm_app.engines.scenario import Scenario
from tunefarm_app.engines.simulated_tasks import landscape_answer, scenario_space
from tunefarm_app.jobs.control import cancel_job, pause_job, resume_job
from tunefarm_app.leases.tracks import InFlight, with_in_flight
from tunefarm_app.operations.reconcile import send_due
from tunefarm_app.steps.run import run_steps
from tunefarm_app.tuning.plan import _may_be_taken
from tunefarm_db.states.job import JobState
from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.measure.builder.replay import ReplayBuilder
from tunefarm_tuning.measure.interfaces import BuildInput, Builds, DeviceInfo, Failure, MeasureOption
from tunefarm_tuning.measure.runner.replay import ReplayRunner
from tunefarm_tuning.search.scheduler import TaskState
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.space.config_space import ConfigSpace
from tunefarm_tuning.workload.task import TuningTask

LONG_SEC = 60.0


class Compilers(ReplayBuilder):
    """Builds for any scenario's task."""

    def __init__(self, folder: Path, built: Callable[[TuningTask], None]) -> None:
        super().__init__({}, work_dir=folder, workers=2)
        self._built = built

    def config_space(self, task: TuningTask) -> ConfigSpace:
        return self._spaces.setdefault(task.workload.key, scenario_space(task))

    def build_each(self, inputs: Sequence[BuildInput]) -> Builds:
        for item in inputs:
            self.config_space(item.task)
            self._built(item.task)
        return super().build_each(inputs)


class ElsewhereEngine(ReplayEngine):
    """Its devices are other machines, and its compilers stay from step to step.

    Attributes:
        measure: Called before each measurement; may say how that ends.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.builds: list[str] = []
        self.builders: list[Compilers] = []
        self.measure: Callable[[TuningTask], Failure | None] = lambda _: None

    @contextmanager
    def measuring(self, device: Any, *, cancellation: Any) -> Iterator[Any]:
        if not self.builders:
            self.builders.append(Compilers(self.folder, lambda task: self.builds.append(task.workload.name)))
        info = DeviceInfo(model=device.device_model, num_cores=1, name=device.name)

        def answer(task: TuningTask, config: Config) -> tuple[float, ...] | Failure:
            return self.measure(task) or landscape_answer(task, config)

        runner = ReplayRunner(answer, device=info, shares_host=False)
        yield MeasureOption(builder=self.builders[-1], runner=runner)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[ElsewhereEngine]:
    folder = tmp_path / "kernels"
    folder.mkdir()
    yield ElsewhereEngine(folder)
    names = ("prefetch-round", "prepare-round", "build-")
    wait_until(
        lambda: not [thread for thread in threading.enumerate() if thread.name.startswith(names)],
        "the threads of rounds to end",
    )
    assert list(folder.iterdir()) == []


@pytest.fixture
def farm(farm: Any, engine: ElsewhereEngine) -> Any:
    return farm.with_engine(engine)


def two_tasks(farm: Any, *, trials: int = 32, **scenario: Any) -> Any:
    farm.add_device()
    return farm.submit(farm.ready_model(Scenario(tasks=2, **scenario)), trials=trials)


def in_flight(farm: Any, job: Any) -> list[InFlight]:
    with farm.services.uow.read() as repos:
        return [InFlight.from_json(noted) for noted in repos.steps.in_flight(job.id).values()]


def wait_for_a_round_ahead(farm: Any, job: Any) -> None:
    wait_until(
        lambda: any(noted.ahead is not None and noted.ahead.asked for noted in in_flight(farm, job)),
        "a round to be prepared",
        within_sec=LONG_SEC,
    )


def in_background(farm: Any) -> threading.Thread:
    thread = threading.Thread(target=farm.run, daemon=True)
    thread.start()
    return thread


def test_the_next_round_is_built_while_one_is_measured(farm, engine) -> None:
    seen: list[InFlight] = []

    def measure(task: TuningTask) -> None:
        if not seen:
            wait_until(lambda: len(set(engine.builds)) == 2, "the other task's kernels", within_sec=LONG_SEC)
            seen.extend(in_flight(farm, job))

    engine.measure = measure
    job = two_tasks(farm)
    farm.run()
    done = farm.job(job.id)
    trials = farm.trials(job.id)
    assert (done.state, done.stop_reason, done.trials) == (JobState.SUCCEEDED, "trials", 32)
    assert len({(trial.position, trial.config_key) for trial in trials}) == len(trials) == 32
    # The job's other tracks, had it any, would have known.
    (round_,) = seen
    assert round_.ahead is not None
    assert {round_.position, round_.ahead.position} == {0, 1}
    assert len(round_.ahead.asked) == round_.ahead.trials
    second = [trial.asked_key for trial in trials if trial.position == round_.ahead.position]
    assert set(round_.ahead.asked) <= set(second)


def test_the_budget_is_met_exactly(farm, engine) -> None:
    job = two_tasks(farm, trials=29)
    farm.run()
    assert (farm.job(job.id).trials, farm.job(job.id).stop_reason) == (29, "trials")


def test_a_chain_that_ends_prepares_nothing(farm, engine) -> None:
    def measure(task: TuningTask) -> None:
        assert all(noted.ahead is None for noted in in_flight(farm, job))

    engine.measure = measure
    short = farm.with_settings(step_chain_sec=0.0)
    job = two_tasks(short)
    short.run_until_quiet()
    assert farm.job(job.id).trials == 32


def test_what_was_prepared_is_thrown_away_when_the_turn_ends(farm, engine) -> None:
    """The worker of the next step then prepares the round again."""
    thrown_away: list[str] = []

    def measure(task: TuningTask) -> None:
        if not thrown_away:
            wait_for_a_round_ahead(farm, job)
            thrown_away.append(task.workload.name)
            farm.inbox.messages.append("another job's step")

    turns = farm.with_settings(step_turn_sec=0.0)
    job = two_tasks(turns, trials=24)
    engine.measure = measure
    run_steps(turns.inbox.messages.pop(0), turns.services)
    turns.run_until_quiet()
    assert thrown_away
    assert list(engine.folder.iterdir()) == []
    assert farm.job(job.id).trials == 24


def test_cancelling_leaves_nothing(farm, engine) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def measure(task: TuningTask) -> None:
        if not go_on.is_set():
            wait_for_a_round_ahead(farm, job)
            entered.set()
            assert go_on.wait(LONG_SEC)

    engine.measure = measure
    job = two_tasks(farm, trials=200)
    thread = in_background(farm)
    assert entered.wait(LONG_SEC)
    cancel_job(farm.services, job.id)
    go_on.set()
    thread.join(LONG_SEC)
    assert not thread.is_alive()
    assert farm.job(job.id).state is JobState.CANCELLED


def test_a_paused_job_begins_its_round_anew(farm, engine) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def measure(task: TuningTask) -> None:
        if not go_on.is_set():
            wait_for_a_round_ahead(farm, job)
            entered.set()
            assert go_on.wait(LONG_SEC)

    engine.measure = measure
    job = two_tasks(farm)
    thread = in_background(farm)
    assert entered.wait(LONG_SEC)
    pause_job(farm.services, job.id)
    go_on.set()
    thread.join(LONG_SEC)
    assert not thread.is_alive()
    assert list(engine.folder.iterdir()) == []
    resume_job(farm.services, job.id)
    farm.run_until_quiet()
    done = farm.job(job.id)
    assert (done.state, done.trials) == (JobState.SUCCEEDED, 32)


def test_a_lost_device_throws_it_away(farm, engine) -> None:
    losses: list[str] = []

    def measure(task: TuningTask) -> Failure | None:
        if losses:
            return None
        wait_for_a_round_ahead(farm, job)
        losses.append(task.workload.name)
        return Failure(Outcome.INFRASTRUCTURE_ERROR, "gone")

    engine.measure = measure
    job = two_tasks(farm)
    farm.run()
    assert list(engine.folder.iterdir()) == []

    def finished() -> bool:
        send_due(farm.services, resend_after_sec=0)
        farm.run()
        return farm.job(job.id).state.is_finished

    wait_until(finished, "the job to end")
    assert losses
    assert farm.job(job.id).trials == 32


def test_a_task_that_cannot_be_scheduled_fails_alone(farm, engine) -> None:
    farm.add_device()
    job = farm.submit(farm.ready_model(Scenario(tasks=3, unschedulable=(1,))), trials=24)
    farm.run()
    with farm.services.uow.read() as repos:
        rows = repos.jobs.tasks(job.id)
    assert [row.exhausted for row in rows] == [False, True, False]
    assert (farm.job(job.id).state, farm.job(job.id).trials) == (JobState.SUCCEEDED, 24)


def test_compilers_that_were_started_anew_have_not_got_it(farm, engine) -> None:
    def measure(task: TuningTask) -> None:
        if len(engine.builders) < 3:
            wait_for_a_round_ahead(farm, job)
            engine.builders.append(Compilers(engine.folder, lambda _: None))

    engine.measure = measure
    job = two_tasks(farm)
    farm.run()
    assert farm.job(job.id).trials == 32


def test_tracks_side_by_side_try_nothing_twice(farm, engine) -> None:
    for number in range(3):
        farm.add_device(f"dev-{number}")
    job = farm.submit(farm.ready_model(Scenario(tasks=2, extent=8)), trials=60)
    threads: list[threading.Thread] = []

    def look() -> bool:
        send_due(farm.services, resend_after_sec=1.0)
        while farm.inbox.messages:
            step_id = farm.inbox.messages.pop(0)
            threads.append(threading.Thread(target=run_steps, args=(step_id, farm.services), daemon=True))
            threads[-1].start()
        return bool(farm.job(job.id).state.is_finished)

    wait_until(look, "the job to end")
    for thread in threads:
        thread.join(LONG_SEC)
    assert not thread.is_alive()
    trials = farm.trials(job.id)
    assert farm.job(job.id).trials == 60
    assert len({(trial.position, trial.config_key) for trial in trials}) == len(trials)


def test_what_another_track_took_since_is_not_taken() -> None:
    alive = TaskState(weight=1, flops=1.0)
    ahead = InFlight(position=1, trials=8, asked=("a", "b"))
    assert InFlight.from_json(InFlight(position=0, trials=8, ahead=ahead).to_json()).ahead == ahead
    states = with_in_flight([alive, alive], [])
    assert _may_be_taken(ahead, states, [InFlight(position=0, trials=8, asked=("a",))])
    assert _may_be_taken(ahead, states, [InFlight(position=1, trials=8, asked=("c",))])
    assert not _may_be_taken(ahead, states, [InFlight(position=1, trials=8, asked=("b",))])
    gone = TaskState(weight=1, flops=1.0, exhausted=True)
    assert not _may_be_taken(ahead, [alive, gone], [])
