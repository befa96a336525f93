"""Tracks of a job that fail, find nothing to do, or have no device."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tunefarm_app.engines.replay import ReplayEngine
from tunefarm_app.engines.scenario import Scenario
from tunefarm_app.engines.simulated_tasks import landscape_answer
from tunefarm_app.jobs.control import pause_job, resume_job
from tunefarm_app.leases.device_turns import wake_next
from tunefarm_app.operations.reconcile import send_due
from tunefarm_app.steps import run as running
from tunefarm_app.steps.run import run_steps
from tunefarm_db.states.device import DeviceEvent
from tunefarm_db.states.job import JobState
from tunefarm_db.values import Step, StepKind, StepState
from tunefarm_tuning.core.errors import DeviceLostError


class HeldEngine(ReplayEngine):
    """Holds the first round in its first measurement, or rounds on one device as they end."""

    def __init__(self) -> None:
        super().__init__(answer=self._answer_late)
        self.measuring_first = threading.Event()
        self.go_on = threading.Event()
        self.slow_to_end = ""
        self.ending = threading.Event()
        self.end = threading.Event()

    def _answer_late(self, task: Any, config: Any) -> Any:
        if not self.measuring_first.is_set():
            self.measuring_first.set()
            assert self.go_on.wait(60)
        return landscape_answer(task, config)

    @contextmanager
    def measuring(self, device: Any, *, cancellation: Any) -> Iterator[Any]:
        with super().measuring(device, cancellation=cancellation) as option:
            yield option
        if device.name == self.slow_to_end:
            self.ending.set()
            assert self.end.wait(60)


class BrokenEngine(ReplayEngine):
    def measuring(self, device: Any, *, cancellation: Any) -> Any:
        raise DeviceLostError("it went up in smoke")


@pytest.fixture
def farm(farm: Any) -> Any:
    """A farm in which every round is a message of its own."""
    return farm.with_settings(step_chain_sec=0.0)


@pytest.fixture
def engine() -> Iterator[HeldEngine]:
    engine = HeldEngine()
    yield engine
    engine.go_on.set()
    engine.end.set()


def rounds(farm: Any, job: Any) -> list[Step]:
    return [step for step in farm.steps(job.id) if step.kind is StepKind.TUNE]


def in_thread(farm: Any) -> threading.Thread:
    """Deliver the oldest message in a thread."""
    thread = threading.Thread(target=run_steps, args=(farm.inbox.messages.pop(0), farm.services), daemon=True)
    thread.start()
    return thread


def test_a_track_that_finds_all_configs_taken_opens_no_other(farm, engine) -> None:
    farm = farm.with_engine(engine)
    for number in range(6):
        farm.add_device(f"dev-{number}")
    job = farm.submit(farm.ready_model(Scenario(tasks=1, extent=1)), trials=64)
    farm.run(steps=1)
    first = in_thread(farm)
    assert engine.measuring_first.wait(60)
    farm.run(steps=30)
    assert len(rounds(farm, job)) <= 3
    engine.go_on.set()
    first.join(60)
    farm.run_until_quiet()
    done = farm.job(job.id)
    assert (done.state, done.stop_reason, done.trials) == (JobState.SUCCEEDED, "exhausted", 4)


def test_a_job_whose_rounds_all_fail_fails(farm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "_BACKOFF_SEC", (0.0,))
    farm = farm.with_engine(BrokenEngine())
    for number in range(3):
        farm.add_device(f"dev-{number}")
    job = farm.submit(farm.ready_model(), trials=64)
    for _ in range(60):
        send_due(farm.services, resend_after_sec=0)
        farm.run(steps=1)
    failed = farm.job(job.id)
    assert failed.state is JobState.FAILED
    assert (failed.error or {})["code"] == "device-lost"
    assert len(rounds(farm, job)) <= 3


def test_configs_that_another_track_gave_up_are_tried(farm, engine) -> None:
    """One track has all configs and another finds none left; then the first loses its lease."""
    farm = farm.with_engine(engine)
    for number in range(2):
        farm.add_device(f"dev-{number}")
    engine.slow_to_end = "dev-1"
    job = farm.submit(farm.ready_model(Scenario(tasks=1, extent=1)), trials=64)
    farm.run(steps=1)
    first = in_thread(farm)
    assert engine.measuring_first.wait(60)
    second = in_thread(farm)
    assert engine.ending.wait(60)
    held = rounds(farm, job)[0]
    with farm.services.uow.write() as repos:
        repos.steps.release(held.id, held.fence)
    engine.end.set()
    second.join(60)
    engine.go_on.set()
    first.join(60)
    farm.run_until_quiet()
    done = farm.job(job.id)
    assert (done.state, done.stop_reason, done.trials) == (JobState.SUCCEEDED, "exhausted", 4)


def test_a_track_that_waits_gets_the_device_of_one_that_ends(farm, engine) -> None:
    farm = farm.with_engine(engine).with_settings(device_retry_sec=1000.0)
    devices = [farm.add_device(f"dev-{number}") for number in range(2)]
    with farm.services.uow.write() as repos:
        repos.devices.apply(devices[1].id, DeviceEvent.DRAIN)
    job = farm.submit(farm.ready_model(Scenario(tasks=1)), trials=64)
    farm.run(steps=1)
    first = in_thread(farm)
    assert engine.measuring_first.wait(60)
    with farm.services.uow.write() as repos:
        second = repos.steps.add(
            StepKind.TUNE, subject_id=job.id, model_id=job.model_id, job_id=job.id, round=1, delay_sec=1000.0
        )
        held = repos.steps.for_job(job.id)[-2]
        repos.steps.release(held.id, held.fence, delay_sec=1000.0, count_attempt=True, error={"code": "odd"})
    assert farm.inbox.messages == []
    engine.go_on.set()
    first.join(60)
    assert farm.inbox.messages == [second.id]
    farm.run_until_quiet()
    assert farm.job(job.id).trials > 0


def test_as_many_steps_are_woken_as_devices_are_free(farm) -> None:
    model = farm.ready_model(Scenario(tasks=1))
    for number in range(2):
        farm.add_device(f"dev-{number}")
    jobs = [farm.submit(model, trials=8, seed=seed) for seed in range(3)]
    farm.run(steps=3)
    farm.inbox.messages.clear()
    with farm.services.uow.write() as repos:
        for number in range(2):
            assert repos.devices.lease("pool", f"them-{number}", 60.0)
    for job in jobs:
        run_steps(rounds(farm, job)[0].id, farm.services)
    assert farm.inbox.messages == []
    with farm.services.uow.engine.begin() as connection:  # they shall not look again by themselves
        connection.exec_driver_sql("UPDATE steps SET not_before = not_before + 1000 WHERE state = 'ready'")
    woken = []
    for _ in range(2):
        with farm.services.uow.write() as repos:
            (device, *_) = (device for device in repos.devices.in_pool("pool") if device.lease_owner)
            repos.devices.release_lease(device.id, device.fence)
            woken += [step.job_id for step in [wake_next(repos, "pool")] if step is not None]
    assert woken == [job.id for job in jobs[:2]]


def test_a_job_is_resumed_that_was_paused_in_this_very_moment(farm, tuning_job) -> None:
    """The worker planned a step while the job was paused, and it was not paused yet."""
    with farm.services.uow.write() as repos:
        repos.jobs.move(tuning_job.id, JobState.PAUSED, progress={"paused_in": "tuning"})
    assert resume_job(farm.services, tuning_job.id).state is JobState.TUNING
    farm.run_until_quiet()
    assert farm.job(tuning_job.id).state is JobState.SUCCEEDED


def test_the_time_of_a_pause_is_not_counted(farm, tuning_job) -> None:
    farm.run(steps=1)
    pause_job(farm.services, tuning_job.id)
    with farm.services.uow.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE jobs SET counted_until = counted_until - 1000")
    resume_job(farm.services, tuning_job.id)
    farm.run_until_quiet()
    done = farm.job(tuning_job.id)
    assert done.state is JobState.SUCCEEDED
    assert 0 < done.tuned_sec < 1000


def test_a_round_of_a_job_that_failed_meanwhile_ends_as_cancelled(farm, engine) -> None:
    farm = farm.with_engine(engine)
    farm.add_device()
    job = farm.submit(farm.ready_model(Scenario(tasks=1)), trials=64)
    farm.run(steps=1)
    first = in_thread(farm)
    assert engine.measuring_first.wait(60)
    with farm.services.uow.write() as repos:
        repos.jobs.move(job.id, JobState.FAILED, error={"code": "odd", "message": ""})
    engine.go_on.set()
    first.join(60)
    assert [step.state for step in rounds(farm, job)] == [StepState.CANCELLED]
    assert farm.trials(job.id) == []
