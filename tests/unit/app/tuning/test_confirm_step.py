"""Before a job is compiled, the best configs of each task are measured again where the winner is uncertain."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import replace

import pytest

from tunefarm_app.engines.replay import ReplayEngine
from tunefarm_app.engines.scenario import Scenario
from tunefarm_app.jobs.control import cancel_job
from tunefarm_app.operations.reconcile import reap
from tunefarm_app.steps.run import run_step
from tunefarm_app.tuning.confirmation import Confirmation, first_that_fits
from tunefarm_db.states.job import JobState
from tunefarm_db.values import StepKind, StepState
from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.measure.interfaces import Failure

TRUE_SEC = {0: 1.00e-3, 16: 1.01e-3, 64: 1.5e-3, 512: 2e-3}
"""What the four configs of a task of extent 1 cost, by their only knob."""

LUCKY = 16


class Killed(BaseException):
    """Stands in for SIGKILL in a thread: nothing catches it, and the step stays leased."""


class Lucky(ReplayEngine):
    """The second best config seems the best when it is first timed."""

    def __init__(self, lucky_sec: float = 0.99e-3) -> None:
        super().__init__(self._time)
        self.lucky_sec = lucky_sec
        self.timed: set[tuple[str, str]] = set()
        self.confirming = False
        self.lost = False
        self.compiled: list[tuple[list[object], float | None]] = []

    def _time(self, task, config):
        if self.lost:
            return Failure(Outcome.INFRASTRUCTURE_ERROR, "no answer")
        first = (task.workload.key, config.key) not in self.timed
        self.timed.add((task.workload.key, config.key))
        unroll = [0, 16, 64, 512][config.to_json()[1][0]]
        return (self.lucky_sec if first and unroll == LUCKY else TRUE_SEC[unroll],) * 3

    @contextmanager
    def measuring(self, device, *, cancellation):
        with super().measuring(device, cancellation=cancellation) as option:
            if self.timed:
                self.in_confirmation()
            yield option

    def in_confirmation(self) -> None:
        """Called in every session after the first, the round."""

    def compile(self, model, target, history, terms, **rest):
        self.compiled = [(record.config.to_json(), record.cost_sec) for record in history.records]
        return super().compile(model, target, history, terms, **rest)


class Deadly(Lucky):
    """Kills the worker in the first confirmations."""

    def __init__(self, deaths: int) -> None:
        super().__init__()
        self.deaths = deaths

    def in_confirmation(self) -> None:
        if self.deaths:
            self.deaths -= 1
            raise Killed


class Stalling(Lucky):
    """Stops in the middle of a confirmation until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.entered = threading.Event()
        self.go_on = threading.Event()

    def in_confirmation(self) -> None:
        self.entered.set()
        assert self.go_on.wait(120)


@pytest.fixture
def start(farm):
    """A function that submits a job of one task with four configs to a farm with that engine."""

    def start_with(engine, **settings):
        model = farm.ready_model(Scenario(tasks=1, extent=1))
        farm.add_device()
        with_engine = farm.with_engine(engine).with_settings(**settings)
        return with_engine, farm.submit(model, trials=4)

    return start_with


def confirmed(farm, job) -> list[float | None]:
    with farm.services.uow.read() as repos:
        return [r.cost_sec for r in repos.records.for_job(job.id) if r.confirmed]


def end_leases(farm) -> None:
    """Let every lease of steps and of devices end now, as time would."""
    farm.end_leases()
    with farm.services.uow.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE devices SET lease_owner = NULL, lease_until = NULL")


def assert_confirmed_once(farm, job) -> None:
    """The lucky config lost, by exactly one confirmation of the two that were close."""
    with farm.services.uow.read() as repos:
        (task,) = repos.jobs.tasks(job.id)
    done = farm.job(job.id)
    assert done.state is JobState.SUCCEEDED, done.error
    assert (done.stop_reason, done.trials, len(farm.trials(job.id))) == ("trials", 4, 4)
    assert (task.confirmations, task.trials, task.best_cost_sec) == (1, 4, TRUE_SEC[0])
    assert done.best_latency_sec == TRUE_SEC[0]
    assert sorted(confirmed(farm, job)) == [TRUE_SEC[0], TRUE_SEC[LUCKY]]
    assert farm.events(job.id).count("confirmed") == 1


def test_the_luckiest_is_not_the_winner(start) -> None:
    engine = Lucky()
    farm, job = start(engine)
    farm.run()
    assert_confirmed_once(farm, job)
    assert engine.compiled == [([0, [0]], TRUE_SEC[0])]
    with farm.services.uow.read() as repos:
        events = [event for event in repos.events.after(job.id) if event.kind in ("phase", "confirmed")]
    assert [event.data.get("phase") for event in events] == [
        "extracting",
        "tuning",
        "confirming",
        None,
        "compiling",
    ]
    assert events[2].data["stop_reason"] == events[4].data["stop_reason"] == "trials"
    confirmed = events[3].data
    assert (confirmed["task"], confirmed["outcomes"], confirmed["failed"]) == ("matmul_0", {"ok": 2}, None)
    assert (confirmed["best_cost_before_sec"], confirmed["best_cost_sec"]) == (0.99e-3, TRUE_SEC[0])


def test_a_clear_winner_is_not_measured_again(start) -> None:
    farm, job = start(Lucky(lucky_sec=0.5e-3))
    farm.run()
    assert farm.job(job.id).state is JobState.SUCCEEDED
    assert confirmed(farm, job) == []
    assert StepKind.CONFIRM not in {step.kind for step in farm.steps(job.id)}


def test_what_one_job_confirmed_the_next_one_takes(start) -> None:
    farm, first = start(Lucky())
    farm.run()
    second = farm.submit(farm.model(first.model_id), trials=4)
    farm.run()
    assert farm.job(second.id).state is JobState.SUCCEEDED
    assert farm.job(second.id).best_latency_sec == TRUE_SEC[0]
    assert confirmed(farm, second) == []


def test_a_killed_worker_loses_and_doubles_nothing(start) -> None:
    farm, job = start(Deadly(deaths=2))
    for _ in range(2):
        with pytest.raises(Killed):
            farm.run()
        assert farm.job(job.id).progress["phase"] == "confirming"
        assert confirmed(farm, job) == []
        end_leases(farm)
        (reaped,) = reap(farm.services)
        assert (reaped.kind, reaped.state) == (StepKind.CONFIRM, StepState.READY)
        farm.inbox.send(reaped.id, reaped.kind)
    farm.run()
    assert_confirmed_once(farm, job)


def test_a_late_confirmation_is_rejected(start) -> None:
    """A worker that stalls for longer than its lease loses the confirmation to another one."""
    engine = Stalling()
    stalled, job = start(engine, lease_sec=3600.0)
    thread = threading.Thread(target=stalled.run)
    thread.start()
    assert engine.entered.wait(60)
    end_leases(stalled)
    (reaped,) = reap(stalled.services)
    quick = stalled.with_engine(Lucky(lucky_sec=TRUE_SEC[LUCKY]))
    run_step(reaped.id, quick.services)
    quick.run_until_quiet()
    engine.go_on.set()
    thread.join(60)
    assert not thread.is_alive()
    assert_confirmed_once(stalled, job)


def test_a_confirmation_that_kills_its_workers_does_not_fail_the_job(start) -> None:
    farm, job = start(Deadly(deaths=100), max_step_attempts=2)
    for _ in range(2):
        with pytest.raises(Killed):
            farm.run()
        end_leases(farm)
        for reaped in reap(farm.services):
            if reaped.state is StepState.READY:
                farm.inbox.send(reaped.id, reaped.kind)
    farm.run_until_quiet()
    done = farm.job(job.id)
    assert (done.state, done.stop_reason) == (JobState.SUCCEEDED, "trials")
    assert confirmed(farm, job) == []
    assert farm.events(job.id)[-3:] == ["unconfirmed", "phase", "finished"]


def test_a_job_is_cancelled_in_a_confirmation(start) -> None:
    engine = Stalling()
    farm, job = start(engine)
    thread = threading.Thread(target=farm.run)
    thread.start()
    assert engine.entered.wait(60)
    assert cancel_job(farm.services, job.id).state is JobState.CANCELLED
    engine.go_on.set()
    thread.join(60)
    assert not thread.is_alive()
    farm.run_until_quiet()
    assert farm.job(job.id).state is JobState.CANCELLED
    assert confirmed(farm, job) == []
    assert StepKind.COMPILE not in {step.kind for step in farm.steps(job.id)}
    with farm.services.uow.read() as repos:
        assert repos.devices.in_pool("pool")[0].lease_owner is None


def test_a_device_that_is_lost_does_not_fail_the_job(start) -> None:
    class Losing(Lucky):
        def in_confirmation(self) -> None:
            self.lost = True

    farm, job = start(Losing(), max_step_attempts=1)
    farm.run_until_quiet()
    assert farm.job(job.id).state is JobState.SUCCEEDED
    assert confirmed(farm, job) == []
    events = farm.events(job.id)
    assert [kind for kind in events if kind in ("device-trouble", "confirmed", "unconfirmed")] == [
        "device-trouble",
        "unconfirmed",
    ]


def test_what_breaks_in_a_confirmation_is_told(start) -> None:
    class Breaking(Lucky):
        def in_confirmation(self) -> None:
            raise ZeroDivisionError("of all things")

    farm, job = start(Breaking())
    farm.run()
    assert farm.job(job.id).state is JobState.SUCCEEDED
    with farm.services.uow.read() as repos:
        confirmed = [event.data for event in repos.events.after(job.id) if event.kind == "confirmed"]
    assert {data["failed"] for data in confirmed} == {"ZeroDivisionError: of all things"}
    assert [data["confirmations"] for data in confirmed] == [1, 2, 3, 4]  # and no more
    assert confirmed[-1]["best_cost_sec"] == 0.99e-3


def test_no_more_is_confirmed_than_the_time_allows(start) -> None:
    _, job = start(Lucky())
    large = Confirmation(position=0, configs=(), share_sec=2.0, expected_sec=30.0)
    small = Confirmation(position=1, configs=(), share_sec=1.0, expected_sec=3.0)
    timed = replace(job, budget={"wall_sec": 60.0})
    assert first_that_fits([large, small], replace(timed, tuned_sec=10.0)) is large
    assert first_that_fits([large, small], replace(timed, tuned_sec=50.0)) is small
    assert first_that_fits([large, small], replace(timed, tuned_sec=58.0)) is None
    assert first_that_fits([large, small], replace(job, tuned_sec=1e6)) is large
