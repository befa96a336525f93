"""Killed workers, cancelled jobs and lost devices: what is stored, and what is not."""

from __future__ import annotations

import errno
import os
import tempfile
import threading
from collections import Counter as Tally
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from pausing_engine import PausingEngine
from waiting import wait_until

from tunefarm_app.devices.register import heartbeat
from tunefarm_app.engines.replay import ReplayEngine, Scenario
from tunefarm_app.jobs.control import cancel_job
from tunefarm_app.operations.reconcile import Reconciler, reap, send_due
from tunefarm_app.settings import Settings
from tunefarm_app.steps.run import run_step
from tunefarm_db.repositories.farm.counters import Counter
from tunefarm_db.states.device import DeviceEvent
from tunefarm_db.states.job import JobState
from tunefarm_db.values import DeviceState, NewTrial, StepKind, StepState
from tunefarm_tuning.core.cancellation import Closing
from tunefarm_tuning.core.errors import TransientError
from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.measure.builder.worker import FULL_DISK
from tunefarm_tuning.measure.gpu.state import busy
from tunefarm_tuning.measure.interfaces import Failure, MeasureResult


def test_a_late_write_is_rejected_and_no_trial_is_recorded_twice(farm, tuning_job) -> None:
    """A worker that stalls for longer than its lease loses the round to another one."""
    engine = PausingEngine()
    (step_id,) = farm.inbox.messages
    stalled = farm.with_engine(engine).with_settings(lease_sec=3600.0, step_chain_sec=0.0)

    # Its heartbeat must stall with it, as it would in a process that is stopped: the lease is made to end.
    thread = threading.Thread(target=run_step, args=(step_id, stalled.services))
    thread.start()
    assert engine.entered.wait(60)
    end_leases(farm)
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


def end_leases(farm) -> None:
    """Let every step's lease end now, as time would."""
    with farm.services.uow.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE steps SET lease_until = 1 WHERE state = 'leased'")


def test_a_step_that_kills_its_workers_fails_its_job(farm, tuning_job) -> None:
    (step_id,) = farm.inbox.messages
    for attempt in range(3):
        with farm.services.uow.write() as repos:
            assert repos.steps.claim(step_id, f"worker-{attempt}", 30.0) is not None
        end_leases(farm)
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
    farm = farm.with_settings(max_losses=Settings.model_fields["max_losses"].default)
    farm.run(steps=1)
    (step_id,) = farm.inbox.messages
    farm.inbox.messages.clear()
    for attempt in range(6):
        with farm.services.uow.write() as repos:
            assert repos.steps.claim(step_id, f"worker-{attempt}", 30.0, max_attempts=99) is not None
        end_leases(farm)
        reap(farm.services)
    for _ in range(faults + 1):
        _again(farm, engine)
    assert farm.job(job.id).state is state
    assert farm.steps(job.id)[-1].faults == 2


def test_an_import_that_kills_its_workers_fails_the_model(farm) -> None:
    model = farm.upload(Scenario())
    (step_id,) = farm.inbox.messages
    for attempt in range(3):
        with farm.services.uow.write() as repos:
            assert repos.steps.claim(step_id, f"worker-{attempt}", 30.0) is not None
        end_leases(farm)
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


def test_waiting_for_a_device(farm) -> None:
    model = farm.ready_model()
    device = farm.add_device()
    with farm.services.uow.write() as repos:
        repos.devices.mark_stale(-1.0)
    job = farm.submit(model, trials=8)
    farm.run()
    waiting = farm.job(job.id)
    assert waiting.state is JobState.TUNING
    assert waiting.progress["waiting"] == "waiting for a device of pool: 0 of 1 online (1 offline)"
    assert waiting.tuned_sec == 0.0
    for _ in range(5):  # however often it looks, that is no failed attempt
        wait_until(lambda: send_due(farm.services, resend_after_sec=0) > 0, "the step to be due")
        farm.run()
    assert farm.steps(job.id)[-1].attempts == 0
    assert farm.events(job.id).count("waiting") == 1
    heartbeat(farm.services, device.id)  # it is back: the step is sent without anybody looking
    assert farm.run() > 0
    done = farm.job(job.id)
    assert done.state is JobState.SUCCEEDED
    assert "waiting" not in done.progress


def test_two_jobs_take_turns_on_one_device(farm) -> None:
    model = farm.ready_model(Scenario(tasks=1))
    farm.add_device()
    first = farm.submit(model, trials=32, seed=1)
    two = farm.submit(model, trials=32, seed=2)
    farm.run_until_quiet()
    for job in (first, two):
        assert farm.job(job.id).state is JobState.SUCCEEDED
    with farm.services.uow.read() as repos:
        records = [*repos.records.for_job(first.id), *repos.records.for_job(two.id)]
    order = [r.job_id for r in sorted(records, key=lambda r: r.id)]
    assert len(set(order[:16])) == 2, "the first job did not keep the device to itself"


def lost(task, config):
    return Failure(Outcome.INFRASTRUCTURE_ERROR, "the device is gone")


def test_a_device_that_measures_nothing_is_quarantined_and_the_job_goes_on_elsewhere(
    farm, tuning_job
) -> None:
    farm.with_engine(ReplayEngine(answer=lost)).run()
    (device,) = _pool(farm)
    assert device.state is DeviceState.ONLINE
    assert farm.job(tuning_job.id).trials == 0
    assert farm.steps(tuning_job.id)[-1].error["code"] == "device-lost"
    _again(farm, ReplayEngine(answer=lost))
    (device,) = _pool(farm)
    assert device.state is DeviceState.QUARANTINED
    assert "the device is gone" in device.reason
    farm.add_device("dev-2")
    _again(farm, ReplayEngine())
    job = farm.job(tuning_job.id)
    assert job.state is JobState.SUCCEEDED
    assert job.trials == 24
    assert farm.trials(job.id)[0].outcome == "ok"


def test_a_gpu_that_somebody_uses_is_waited_for(farm, tuning_job) -> None:
    """Neither device, nor job, nor candidate is at fault."""

    def used(task, config):
        return Failure(Outcome.INFRASTRUCTURE_ERROR, busy("train (pid 7)").message)

    farm.with_engine(ReplayEngine(answer=used)).run()
    for _ in range(4):
        _again(farm, ReplayEngine(answer=used))
    (device,) = _pool(farm)
    assert device.state is DeviceState.ONLINE
    assert farm.steps(tuning_job.id)[-1].error["code"] == "device-busy"
    assert farm.events(tuning_job.id).count("retry") == 1
    assert farm.job(tuning_job.id).trials == 0
    _again(farm, ReplayEngine())
    job = farm.job(tuning_job.id)
    assert (job.state, job.trials) == (JobState.SUCCEEDED, 24)


class RefusingEveryOther(Closing):
    """A builder that refuses the first candidate of each batch, the third, and so on."""

    def __init__(self, inner) -> None:
        self.config_space = inner.config_space
        self._inner = inner

    def build(self, inputs):
        return [result for _, result in self.build_each(inputs)]

    def build_each(self, inputs):
        refused = Failure(Outcome.INSTANTIATION_ERROR, "does not fit into shared memory")
        for number, result in self._inner.build_each(inputs):
            yield number, result if number % 2 else replace(result, artifact_path=None, failure=refused)

    def close(self) -> None:
        """The engine closes the inner one."""


def test_a_lost_device_is_reported_by_its_own_message(farm, tuning_job) -> None:
    """The message is the device's, not the compiler's about a candidate that never reached the device."""

    class Refusing(ReplayEngine):
        @contextmanager
        def measuring(self, device, *, cancellation):
            with super().measuring(device, cancellation=cancellation) as option:
                yield replace(option, builder=RefusingEveryOther(option.builder))

    farm.with_engine(Refusing(answer=lost)).run()
    with farm.services.uow.read() as repos:
        (trouble,) = [e.data for e in repos.events.after(tuning_job.id) if e.kind == "device-trouble"]
    assert trouble == {"device": "dev-1", "message": "the device is gone"}
    assert farm.steps(tuning_job.id)[-1].error["message"].endswith("the device is gone")


def test_a_device_that_is_lost_for_good_fails_the_job(farm, tuning_job) -> None:
    engine = ReplayEngine(answer=lost)
    farm.with_engine(engine).run()
    for _ in range(2):
        _again(farm, engine)
        with farm.services.uow.write() as repos:
            repos.devices.apply(_pool(farm)[0].id, DeviceEvent.CLEAN)
    job = farm.job(tuning_job.id)
    assert job.state is JobState.FAILED
    assert job.error["code"] == "device-lost"
    assert farm.events(job.id).count("retry") == 2


def test_a_device_lost_within_a_round_costs_only_what_it_did_not_measure(farm, tuning_job) -> None:
    measured = []

    def fragile(task, config):
        measured.append(config)
        return (1e-3,) if len(measured) <= 3 else lost(task, config)

    farm.with_engine(ReplayEngine(answer=fragile)).with_settings(step_chain_sec=0.0).run(steps=1)
    job = farm.job(tuning_job.id)
    assert (job.trials, job.failures) == (3, 0)
    outcomes = [t.outcome for t in farm.trials(job.id)]
    assert outcomes == ["ok"] * 3 + ["infrastructure-error"] * 5
    with farm.services.uow.read() as repos:
        assert len(repos.records.for_job(job.id)) == 3
    farm.run()
    job = farm.job(job.id)
    assert job.state is JobState.SUCCEEDED
    assert job.trials == 24


@pytest.mark.parametrize(("losses", "run_sec", "tried"), [(3, 0.5, 3), (2, 0.5, 4), (3, 0.0, 4)])
def test_a_candidate_that_was_at_work_at_three_losses_is_set_aside(
    farm, losses: int, run_sec: float, tried: int
) -> None:
    """Its history stays, nothing is recorded against it, and the others of its task are tried."""
    farm.add_device()
    undisturbed = farm.submit(farm.ready_model(Scenario(tasks=1, extent=1)), trials=100, tuner="grid")
    farm.run()
    space = {trial.config_key for trial in farm.trials(undisturbed.id)}
    assert len(space) == 4
    poison = min(space)
    twin = farm.submit(farm.ready_model(Scenario(tasks=1, extent=1, seed=7)), trials=100, tuner="grid")
    farm.run(steps=1)
    lost_trial = NewTrial(
        position=0,
        ordinal=0,
        config_key=poison,
        asked_key=poison,
        outcome="infrastructure-error",
        cost_sec=None,
        message="the device is gone",
        build_sec=0.1,
        run_sec=run_sec,
        measured_at=1.0,
    )
    with farm.services.uow.write() as repos:
        for number in range(losses):
            repos.trials.add_many(twin.id, 1000 + number, [lost_trial])
    farm.run()
    job = farm.job(twin.id)
    assert (job.state, job.trials) == (JobState.SUCCEEDED, tried)
    ended = {trial.config_key for trial in farm.trials(twin.id) if trial.outcome == "ok"}
    assert ended == (space - {poison} if tried == 3 else space)
    with farm.services.uow.read() as repos:
        assert {r.outcome for r in repos.records.for_job(twin.id)} == {"ok"}
    assert [t.outcome for t in farm.trials(twin.id)].count("infrastructure-error") == losses


def taken_down(poison):
    """Answer as a device does that these configs take down before anything else of their round is measured."""

    def answer(task, config):
        if config.key in poison:
            return MeasureResult(run_sec=0.001, failure=lost(task, config))
        return (1e-3,)

    return answer


def test_a_candidate_that_takes_the_device_down_at_the_start_of_its_round_is_set_aside(farm) -> None:
    """Its rounds measure nothing. The step is not failed for that, nor the job: it is the candidate."""
    farm.add_device()
    undisturbed = farm.submit(farm.ready_model(Scenario(tasks=1, extent=1)), trials=100, tuner="grid")
    farm.run()
    (poison, *others) = (trial.config_key for trial in farm.trials(undisturbed.id))
    model = farm.ready_model(Scenario(tasks=1, extent=1, seed=7))
    job = farm.submit(model, trials=100, tuner="grid")
    farm.with_engine(ReplayEngine(taken_down({poison}))).run()
    job = farm.job(job.id)
    assert (job.state, job.trials, job.failures) == (JobState.SUCCEEDED, len(others), 0)
    trials = farm.trials(job.id)
    assert [t.config_key for t in trials if t.run_sec > 0 and t.outcome != "ok"] == [poison] * 3
    assert {t.config_key for t in trials if t.outcome == "ok"} == set(others)
    assert farm.events(job.id).count("device-trouble") == 3
    assert "retry" not in farm.events(job.id)
    with farm.services.uow.read() as repos:
        assert {record.outcome for record in repos.records.for_job(job.id)} == {"ok"}


def test_a_device_that_whatever_takes_down_fails_the_job(farm) -> None:
    """Else the job would go through its whole space, and learn nothing."""
    farm.add_device()
    job = farm.submit(farm.ready_model(Scenario(tasks=1)), trials=100)

    def always(task, config):
        return MeasureResult(run_sec=0.001, failure=lost(task, config))

    engine = ReplayEngine(always)
    farm.with_engine(engine).run()
    for _ in range(3):
        with farm.services.uow.write() as repos:
            repos.devices.apply(_pool(farm)[0].id, DeviceEvent.CLEAN)
        _again(farm, engine)
    failed = farm.job(job.id)
    assert (failed.state, failed.trials) == (JobState.FAILED, 0)
    assert failed.error["code"] == "device-lost"
    assert sum(t.run_sec > 0 for t in farm.trials(job.id)) == 9


def _pool(farm):
    with farm.services.uow.read() as repos:
        return repos.devices.in_pool("pool")


def _again(farm, engine) -> None:
    """Let the back-off pass, and deliver the step."""
    with farm.services.uow.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE steps SET not_before = 0 WHERE state = 'ready'")
    send_due(farm.services, resend_after_sec=0)
    farm.with_engine(engine).run()


def test_a_transient_error_is_tried_again_and_then_fails_the_job(farm) -> None:
    class Broken(ReplayEngine):
        def compile(self, *args, **kwargs):
            raise TransientError("the store is away", code="store-unavailable")

    model = farm.ready_model(Scenario(tasks=0))
    farm.add_device()
    job = farm.submit(model)
    farm.with_engine(Broken()).run()
    assert farm.job(job.id).state is JobState.COMPILING
    for _ in range(2):
        _again(farm, Broken())
    job = farm.job(job.id)
    assert job.state is JobState.FAILED
    assert job.error["code"] == "store-unavailable"


@pytest.mark.parametrize("error", [TransientError("", code="store-full"), OSError(errno.ENOSPC, "no room")])
def test_a_full_disk_is_waited_for(farm, error: Exception) -> None:
    class Full(ReplayEngine):
        def compile(self, *args, **kwargs):
            raise error

    model = farm.ready_model(Scenario(tasks=0))
    farm.add_device()
    job = farm.submit(model)
    farm.with_engine(Full()).run()
    for _ in range(4):
        _again(farm, Full())
    assert farm.job(job.id).state is JobState.COMPILING
    assert farm.events(job.id).count("retry") == 1
    _again(farm, ReplayEngine())
    assert farm.job(job.id).state is JobState.SUCCEEDED


def test_a_full_disk_ends_no_search(farm, tuning_job) -> None:
    class Full(ReplayEngine):
        @contextmanager
        def measuring(self, *args, **kwargs):
            raise OSError(errno.ENOSPC, "no room")
            yield

    farm.with_engine(Full()).run()
    _again(farm, ReplayEngine())
    assert farm.job(tuning_job.id).stop_reason == "trials"


def test_no_room_to_build_is_nobodys_fault(farm, tuning_job) -> None:
    full = ReplayEngine(answer=lambda *_: Failure(Outcome.INFRASTRUCTURE_ERROR, FULL_DISK))
    for _ in range(4):
        _again(farm, full)
    assert farm.events(tuning_job.id).count("device-trouble") == 0
    assert _pool(farm)[0].state is DeviceState.ONLINE
    _again(farm, ReplayEngine())
    assert farm.job(tuning_job.id).stop_reason == "trials"


def test_a_bug_of_ours_shows_no_stack_to_users(farm) -> None:
    class Buggy(ReplayEngine):
        def compile(self, *args, **kwargs):
            return {}["missing"]

    model = farm.ready_model(Scenario(tasks=0))
    farm.add_device()
    job = farm.submit(model)
    farm.with_settings(max_attempts=1).with_engine(Buggy()).run()
    error = farm.job(job.id).error
    assert error["code"] == "internal"
    assert error["message"] == "the compile step broke: KeyError: 'missing'"
    assert error["fields"] == {}


def test_an_upgraded_compiler_ends_the_job_with_a_clear_error(farm, tuning_job) -> None:
    class Newer(ReplayEngine):
        @property
        def toolchain(self) -> str:
            return "replay-2"

    farm.with_engine(Newer()).run()
    assert farm.job(tuning_job.id).error["code"] == "toolchain-changed"


def test_a_step_over_its_time_is_stopped(farm) -> None:
    model = farm.ready_model(Scenario(tasks=0, compile_sec=60.0))
    farm.add_device()
    job = farm.submit(model)
    farm.with_settings(compile_time_limit_sec=0.5, max_attempts=1).run()
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


def test_others_get_their_turn(farm) -> None:
    """After its turn, a job continues without a message only while no other job waits for a worker."""
    model = farm.ready_model(Scenario(tasks=1))
    farm.add_device("a", "one")
    farm.add_device("b", "two")
    farm = farm.with_settings(step_turn_sec=0.0)
    alone = farm.submit(model, trials=24, device_key="one")
    assert farm.run() == 3  # extract, one message for three rounds, compile
    assert farm.job(alone.id).state is JobState.SUCCEEDED
    farm.submit(model, trials=24, device_key="one", seed=1)
    farm.submit(model, trials=24, device_key="two", seed=2)
    assert farm.run() > 6


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
