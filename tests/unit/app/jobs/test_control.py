"""Pausing jobs: what stops, what is kept, and how they resume."""

from __future__ import annotations

import threading

import pytest
from pausing_engine import PausingEngine
from waiting import wait_until

from tunefarm_app.engines.scenario import Scenario
from tunefarm_app.jobs.control import cancel_job, finish_job, pause_job, resume_job
from tunefarm_app.operations.reconcile import Reconciler, send_due
from tunefarm_app.steps.run import run_step
from tunefarm_db.states.job import JobState
from tunefarm_db.values import StepKind, StepState
from tunefarm_tuning.core.errors import ConflictError, NotFoundError


def test_a_paused_job_does_nothing_until_it_is_resumed(farm, tuning_job) -> None:
    farm.with_settings(step_chain_sec=0.0).run(steps=1)
    paused = pause_job(farm.services, tuning_job.id)
    assert (paused.state, paused.trials) == (JobState.PAUSED, 8)
    assert paused.progress["paused_in"] == "tuning"
    farm.run()
    for _ in range(2):  # a restarted service, too, finds nothing to do
        Reconciler(farm.services).tick()
        assert send_due(farm.services, resend_after_sec=0) == 0
    still = farm.job(tuning_job.id)
    assert (still.state, still.trials, still.tuned_sec) == (JobState.PAUSED, 8, paused.tuned_sec)
    resumed = resume_job(farm.services, tuning_job.id)
    assert (resumed.state, resumed.progress["phase"]) == (JobState.TUNING, "tuning")
    assert "paused_in" not in resumed.progress
    farm.run()
    done = farm.job(tuning_job.id)
    assert (done.state, done.trials) == (JobState.SUCCEEDED, 24)
    kinds = farm.events(tuning_job.id)
    assert [kind for kind in kinds if kind in ("paused", "resumed")] == ["paused", "resumed"]


def test_a_round_is_stopped_at_once_and_done_again(farm) -> None:
    """Nothing of the round is kept, and none of its time is counted."""
    model = farm.ready_model(Scenario(tasks=1, trial_sec=4.0))
    device = farm.add_device()
    job = farm.submit(model, trials=256, round_size=256)
    thread = threading.Thread(target=farm.run)
    thread.start()
    wait_until(lambda: farm.device(device.id).lease_owner is not None, "the round to begin")
    pause_job(farm.services, job.id)
    thread.join(300)  # the round would take 1024 s
    assert not thread.is_alive()
    paused = farm.job(job.id)
    assert (paused.state, paused.trials, paused.tuned_sec) == (JobState.PAUSED, 0, 0.0)
    assert farm.device(device.id).lease_owner is None
    (step,) = [s for s in farm.steps(job.id) if s.kind is StepKind.TUNE]
    assert (step.state, step.attempts, step.error) == (StepState.PAUSED, 0, None)


def test_a_job_resumed_before_its_worker_noticed_is_written_by_one_worker_alone(farm, tuning_job) -> None:
    engine = PausingEngine()
    (step_id,) = farm.inbox.messages
    # Its lease thread is to be too slow to notice anything.
    slow = farm.with_engine(engine).with_settings(lease_sec=3600.0)
    thread = threading.Thread(target=run_step, args=(step_id, slow.services))
    thread.start()
    assert engine.entered.wait(60)
    pause_job(farm.services, tuning_job.id)
    resume_job(farm.services, tuning_job.id)
    with farm.services.uow.write() as repos:
        device = repos.devices.in_pool("pool")[0]
        repos.devices.release_lease(device.id, device.fence)
    farm.run()
    assert farm.job(tuning_job.id).state is JobState.SUCCEEDED
    before = farm.trials(tuning_job.id)
    engine.go_on.set()
    thread.join(60)
    assert farm.trials(tuning_job.id) == before
    assert len({(t.position, t.config_key) for t in before}) == len(before) == 24


def test_a_step_planned_in_the_moment_of_pausing_waits(farm, tuning_job) -> None:
    pause_job(farm.services, tuning_job.id)
    with farm.services.uow.write() as repos:
        step = repos.steps.add(
            StepKind.TUNE,
            subject_id=tuning_job.id,
            model_id=tuning_job.model_id,
            job_id=tuning_job.id,
            round=99,
        )
    assert run_step(step.id, farm.services) == []
    assert farm.steps(tuning_job.id)[-1].state is StepState.PAUSED
    assert farm.steps(tuning_job.id)[-1].attempts == 0


def test_a_queued_and_a_compiling_job_can_be_paused(farm) -> None:
    model = farm.ready_model(Scenario(tasks=0))
    farm.add_device()
    job = farm.submit(model)
    pause_job(farm.services, job.id)
    farm.run()
    assert resume_job(farm.services, job.id).state is JobState.QUEUED
    farm.run(steps=1)
    assert farm.job(job.id).state is JobState.COMPILING
    pause_job(farm.services, job.id)
    farm.run()
    assert resume_job(farm.services, job.id).state is JobState.COMPILING
    farm.run()
    assert farm.job(job.id).state is JobState.SUCCEEDED


def test_a_compiler_at_work_is_stopped(farm) -> None:
    model = farm.ready_model(Scenario(tasks=0, compile_sec=3600.0))
    device = farm.add_device()
    job = farm.submit(model)
    thread = threading.Thread(target=farm.run)
    thread.start()
    wait_until(lambda: farm.device(device.id).lease_owner is not None, "the compiler to begin")
    pause_job(farm.services, job.id)
    thread.join(60)
    assert not thread.is_alive()
    assert farm.job(job.id).state is JobState.PAUSED
    assert farm.device(device.id).lease_owner is None


def test_a_paused_job_lets_another_have_the_device(farm, tuning_job) -> None:
    pause_job(farm.services, tuning_job.id)
    other = farm.submit(farm.ready_model(Scenario(seed=3)), trials=8)
    farm.run()
    assert farm.job(other.id).state is JobState.SUCCEEDED
    assert farm.job(tuning_job.id).state is JobState.PAUSED


def test_again_is_no_error(farm, tuning_job) -> None:
    assert resume_job(farm.services, tuning_job.id).state is JobState.TUNING  # not paused: goes on
    for _ in range(2):
        assert pause_job(farm.services, tuning_job.id).state is JobState.PAUSED
    for _ in range(2):
        assert resume_job(farm.services, tuning_job.id).state is JobState.TUNING
    assert farm.events(tuning_job.id).count("paused") == 1
    assert farm.events(tuning_job.id).count("resumed") == 1


def test_a_paused_job_is_cancelled(farm, tuning_job) -> None:
    pause_job(farm.services, tuning_job.id)
    assert cancel_job(farm.services, tuning_job.id).state is JobState.CANCELLED
    assert farm.steps(tuning_job.id)[-1].state is StepState.CANCELLED
    for order in (pause_job, resume_job):
        with pytest.raises(ConflictError, match="cancelled") as refused:
            order(farm.services, tuning_job.id)
        assert refused.value.code == "job-state"
    for order in (pause_job, resume_job):
        with pytest.raises(NotFoundError):
            order(farm.services, "job_nothing")


def test_a_finished_search_is_compiled(farm, tuning_job) -> None:
    farm.with_settings(step_chain_sec=0.0).run(steps=1)
    finished = finish_job(farm.services, tuning_job.id)
    assert (finished.state, finished.stop_reason, finished.trials) == (JobState.COMPILING, "finished", 8)
    assert finish_job(farm.services, tuning_job.id) == finished
    farm.run()
    done = farm.job(tuning_job.id)
    assert (done.state, done.trials, done.stop_reason) == (JobState.SUCCEEDED, 8, "finished")
    assert {step.kind for step in farm.steps(done.id) if step.state is StepState.DONE} == {
        StepKind.EXTRACT, StepKind.TUNE, StepKind.COMPILE,
    }  # fmt: skip
    assert finish_job(farm.services, tuning_job.id) == done
    with pytest.raises(NotFoundError):
        finish_job(farm.services, "job_nope")


def test_a_round_under_way_is_dropped_when_its_search_is_finished(farm, tuning_job) -> None:
    engine = PausingEngine()
    (step_id,) = farm.inbox.messages
    farm.inbox.messages.clear()
    slow = farm.with_engine(engine).with_settings(lease_sec=3600.0)
    thread = threading.Thread(target=run_step, args=(step_id, slow.services))
    thread.start()
    assert engine.entered.wait(60)
    finish_job(farm.services, tuning_job.id)
    engine.go_on.set()
    thread.join(60)
    assert farm.trials(tuning_job.id) == []
    farm.run_until_quiet()
    assert farm.job(tuning_job.id).state is JobState.SUCCEEDED


def test_a_job_is_finished_before_its_search_begins(farm) -> None:
    model = farm.ready_model(Scenario(tasks=2))
    farm.add_device()
    job = farm.submit(model, trials=24)
    assert finish_job(farm.services, job.id).state is JobState.QUEUED
    farm.run()
    done = farm.job(job.id)
    assert (done.state, done.trials, done.stop_reason) == (JobState.SUCCEEDED, 0, "finished")
    assert done.best_latency_sec is None, "nothing is on record yet"

    farm.submit(model, trials=8)
    farm.run()
    known = farm.submit(model, trials=24)
    finish_job(farm.services, known.id)
    farm.run()
    with farm.services.uow.read() as repos:
        costs_sec = [task.best_cost_sec for task in repos.jobs.tasks(known.id)]
    assert (len(costs_sec), None in costs_sec, farm.job(known.id).trials) == (2, False, 0)
    assert farm.job(known.id).best_latency_sec is not None


def test_a_paused_job_is_finished(farm, tuning_job) -> None:
    farm.with_settings(step_chain_sec=0.0).run(steps=1)
    pause_job(farm.services, tuning_job.id)
    assert finish_job(farm.services, tuning_job.id).state is JobState.COMPILING
    farm.run()
    assert (farm.job(tuning_job.id).state, farm.job(tuning_job.id).trials) == (JobState.SUCCEEDED, 8)
    queued = farm.submit(farm.ready_model(Scenario(seed=3)))
    pause_job(farm.services, queued.id)
    assert finish_job(farm.services, queued.id).state is JobState.QUEUED
    farm.run()
    assert (farm.job(queued.id).state, farm.job(queued.id).trials) == (JobState.SUCCEEDED, 0)
