"""Killed workers, cancelled jobs, and steps that are stopped: what is stored, and what is not."""

from __future__ import annotations

import os
import tempfile
import threading
from collections import Counter as Tally
from dataclasses import replace
from pathlib import Path

import pytest
from pausing_engine import PausingEngine
from waiting import wait_until

from tunefarm_app.engines.replay import ReplayEngine
from tunefarm_app.engines.scenario import Scenario
from tunefarm_app.jobs.control import cancel_job
from tunefarm_app.operations.reconcile import Reconciler, reap
from tunefarm_app.settings import Settings
from tunefarm_app.steps.run import run_step
from tunefarm_db.repositories.farm.counters import Counter
from tunefarm_db.states.job import JobState
from tunefarm_db.values import StepKind, StepState


def test_a_late_write_is_rejected_and_no_trial_is_recorded_twice(farm, tuning_job) -> None:
    """A worker that stalls for longer than its lease loses the round to another one."""
    engine = PausingEngine()
    (step_id,) = farm.inbox.messages
    stalled = farm.with_engine(engine).with_settings(lease_sec=3600.0, step_chain_sec=0.0)

    # Its heartbeat must stall with it, as it would in a process that is stopped: the lease is made to end.
    thread = threading.Thread(target=run_step, args=(step_id, stalled.services))
    thread.start()
    assert engine.entered.wait(60)
    farm.end_leases()
    (reaped,) = reap(farm.services)
    assert (reaped.id, reaped.state) == (step_id, StepState.READY)
    with farm.services.uow.write() as repos:
        device = repos.devices.in_pool("pool")[0]
        repos.devices.release_lease(device.id, device.fence)
    farm.run()
    assert farm.job(tuning_job.id).state is JobState.SUCCEEDED
    before = farm.trials(tuning_job.id)

    engine.go_on.set()
    thread.join(60)
    assert not thread.is_alive()
    assert farm.trials(tuning_job.id) == before
    assert len(before) == 24
    assert len({(t.position, t.config_key) for t in before}) == 24
    with farm.services.uow.read() as repos:
        counted = repos.counters.all()
        assert counted[Counter.LATE_WRITES] == {"tune": 1}
        assert counted[Counter.TRIALS] == Tally(trial.outcome for trial in before)
        assert list(counted[Counter.MEASURE_SEC]) == [device.id]
        records = repos.records.for_job(tuning_job.id)
        assert sum(not record.confirmed for record in records) == 24
    assert farm.device(device.id).lease_owner is None


def test_a_step_that_kills_its_workers_fails_its_job(farm, tuning_job) -> None:
    (step_id,) = farm.inbox.messages
    for attempt in range(3):
        with farm.services.uow.write() as repos:
            assert repos.steps.claim(step_id, f"worker-{attempt}", 30.0) is not None
        farm.end_leases()
        Reconciler(farm.services).tick()
    job = farm.job(tuning_job.id)
    assert job.state is JobState.FAILED
    assert job.error["code"] == "step-abandoned"
    farm.run()
    assert farm.trials(job.id) == []


@pytest.mark.parametrize(("faults", "state"), [(2, JobState.SUCCEEDED), (3, JobState.FAILED)])
def test_kills_of_workers_are_no_faults_of_their_step(farm, faults, state) -> None:
    """A step survives many kills by default; a fault after them counts as its first."""

    class Buggy(ReplayEngine):
        broke = 0

        def compile(self, *args, **kwargs):
            self.broke += 1
            if self.broke <= faults:
                raise KeyError("missing")
            return super().compile(*args, **kwargs)

    engine = Buggy()
    model = farm.ready_model(Scenario(tasks=0))
    farm.add_device()
    job = farm.submit(model)
    farm = farm.with_settings(max_step_attempts=Settings.model_fields["max_step_attempts"].default)
    farm.run(steps=1)
    (step_id,) = farm.inbox.messages
    farm.inbox.messages.clear()
    for attempt in range(6):
        with farm.services.uow.write() as repos:
            assert repos.steps.claim(step_id, f"worker-{attempt}", 30.0, max_attempts=99) is not None
        farm.end_leases()
        reap(farm.services)
    for _ in range(faults + 1):
        farm.run_again(engine)
    assert farm.job(job.id).state is state
    assert farm.steps(job.id)[-1].faults == 2


def test_an_import_that_kills_its_workers_fails_the_model(farm) -> None:
    model = farm.upload(Scenario())
    (step_id,) = farm.inbox.messages
    for attempt in range(3):
        with farm.services.uow.write() as repos:
            assert repos.steps.claim(step_id, f"worker-{attempt}", 30.0) is not None
        farm.end_leases()
        reap(farm.services)
    assert farm.model(model.id).error["code"] == "step-abandoned"


def test_a_job_is_cancelled_while_a_round_runs(farm, tuning_job) -> None:
    engine = PausingEngine()
    (step_id,) = farm.inbox.messages
    busy = farm.with_engine(engine)
    thread = threading.Thread(target=run_step, args=(step_id, busy.services))
    thread.start()
    assert engine.entered.wait(60)
    assert cancel_job(farm.services, tuning_job.id).state is JobState.CANCELLED
    engine.go_on.set()
    thread.join(60)
    assert farm.trials(tuning_job.id) == []
    job = farm.job(tuning_job.id)
    assert job.state is JobState.CANCELLED
    assert job.finished_at is not None
    assert {s.state for s in farm.steps(job.id)} == {StepState.DONE, StepState.CANCELLED}
    with farm.services.uow.read() as repos:
        assert repos.devices.in_pool("pool")[0].lease_owner is None


def test_a_cancelled_round_is_closed_at_once(farm) -> None:
    """The lease's thread closes the children, so that a long trial delays nothing."""
    model = farm.ready_model(Scenario(tasks=1, trial_sec=0.05))
    farm.add_device()
    job = farm.submit(model, trials=10_000, round_size=256)
    thread = threading.Thread(target=farm.run)
    thread.start()
    wait_until(lambda: farm.job(job.id).state is JobState.TUNING, "the search to begin")
    cancel_job(farm.services, job.id)
    thread.join(60)
    assert not thread.is_alive()
    assert farm.events(job.id)[-1] == "finished"


def test_a_queued_job_is_cancelled(farm) -> None:
    model = farm.ready_model()
    farm.add_device()
    job = farm.submit(model)
    cancel_job(farm.services, job.id)
    farm.run()
    assert farm.job(job.id).state is JobState.CANCELLED
    assert [s.state for s in farm.steps(job.id)] == [StepState.CANCELLED]
    assert cancel_job(farm.services, job.id).state is JobState.CANCELLED  # again: nothing


def test_a_step_planned_in_the_moment_of_cancelling_is_dropped(farm, tuning_job) -> None:
    cancel_job(farm.services, tuning_job.id)
    with farm.services.uow.write() as repos:
        step = repos.steps.add(
            StepKind.TUNE,
            subject_id=tuning_job.id,
            model_id=tuning_job.model_id,
            job_id=tuning_job.id,
            round=99,
        )
    assert run_step(step.id, farm.services) == []
    assert farm.steps(tuning_job.id)[-1].state is StepState.CANCELLED


def test_a_finished_job_cannot_be_cancelled(farm) -> None:
    model = farm.ready_model()
    farm.add_device()
    job = farm.submit(model)
    farm.run()
    assert cancel_job(farm.services, job.id).state is JobState.SUCCEEDED


def test_a_step_over_its_time_is_stopped(farm) -> None:
    model = farm.ready_model(Scenario(tasks=0, compile_sec=60.0))
    farm.add_device()
    job = farm.submit(model)
    farm.with_settings(compile_time_limit_sec=0.5, max_step_faults=1).run()
    assert farm.job(job.id).error["code"] == "step-timeout"


def test_a_worker_that_is_told_to_stop_hands_its_step_back(farm) -> None:
    model = farm.ready_model(Scenario(tasks=0, compile_sec=3600.0))
    farm.add_device()
    job = farm.submit(model)
    farm.run(steps=1)
    stopping = farm.with_settings(drain_sec=0.0)
    stopping.services = replace(stopping.services, draining=lambda: True)
    stopping.run(steps=1)  # the step is sent again at once, for another worker
    (step,) = [s for s in farm.steps(job.id) if s.kind is StepKind.COMPILE]
    assert (step.state, step.attempts, step.error) == (StepState.READY, 0, None)
    assert farm.job(job.id).state is JobState.COMPILING
    with farm.services.uow.read() as repos:
        assert repos.devices.in_pool("pool")[0].lease_owner is None


def test_a_worker_that_is_told_to_stop_begins_no_other_round(farm, tuning_job) -> None:
    stopping = farm.with_settings()
    stopping.services = replace(stopping.services, draining=lambda: True)
    assert stopping.run(steps=1) == 1
    assert farm.job(tuning_job.id).trials == 8
    assert len(farm.inbox.messages) == 1


def test_a_compile_sweeps_what_a_killed_one_left(
    farm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left = tmp_path / "tunefarm-scratch-of-the-dead"
    left.mkdir()
    (left / "half.tunefarm").write_bytes(b"half an artifact")
    os.utime(left, (0, 0))
    model = farm.ready_model()
    farm.add_device()
    job = farm.submit(model, trials=8)
    farm.run()
    assert farm.job(job.id).state is JobState.SUCCEEDED
    assert list(tmp_path.glob("tunefarm-*")) == []
