"""Devices that are busy, lost, or taken down by a candidate."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace

import pytest
from waiting import wait_until

from tunefarm_app.devices.commands import command_device
from tunefarm_app.devices.register import heartbeat
from tunefarm_app.engines.replay import ReplayEngine
from tunefarm_app.engines.scenario import Scenario
from tunefarm_app.operations.reconcile import send_due
from tunefarm_db.states.device import DeviceEvent
from tunefarm_db.states.job import JobState
from tunefarm_db.values import DeviceState, NewTrial
from tunefarm_tuning.core.cancellation import Closing
from tunefarm_tuning.core.errors import BROKE_PROTOCOL, broke_protocol
from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.measure.gpu.state import busy
from tunefarm_tuning.measure.interfaces import Failure, MeasureResult


def lost(task, config):
    return Failure(Outcome.INFRASTRUCTURE_ERROR, "the device is gone")


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


def test_a_device_that_measures_nothing_is_quarantined_and_the_job_goes_on_elsewhere(
    farm, tuning_job
) -> None:
    farm.with_engine(ReplayEngine(answer=lost)).run()
    (device,) = farm.devices()
    assert device.state is DeviceState.ONLINE
    assert farm.job(tuning_job.id).trials == 0
    assert farm.steps(tuning_job.id)[-1].error["code"] == "device-lost"
    farm.run_again(ReplayEngine(answer=lost))
    (device,) = farm.devices()
    assert device.state is DeviceState.QUARANTINED
    assert "the device is gone" in device.reason
    farm.add_device("dev-2")
    farm.run_again(ReplayEngine())
    job = farm.job(tuning_job.id)
    assert job.state is JobState.SUCCEEDED
    assert job.trials == 24
    assert farm.trials(job.id)[0].outcome == "ok"


def test_a_device_is_not_quarantined_for_the_misses_of_another(farm, tuning_job) -> None:
    farm.with_engine(ReplayEngine(answer=lost)).run()
    (first,) = farm.devices()
    with farm.services.uow.write() as repos:
        repos.devices.apply(first.id, DeviceEvent.UNREADY)
    second = farm.add_device("dev-2")
    farm.run_again(ReplayEngine(answer=lost))
    assert farm.steps(tuning_job.id)[-1].attempts == 2
    assert farm.events(tuning_job.id).count("device-trouble") == 2
    assert farm.device(second.id).state is DeviceState.ONLINE, "it missed once"


def test_a_device_is_not_quarantined_for_killed_workers(farm, tuning_job) -> None:
    step = farm.steps(tuning_job.id)[-1]
    with farm.services.uow.write() as repos:
        assert repos.steps.claim(step.id, "a worker that is killed", 60.0) is not None
    farm.end_leases()
    with farm.services.uow.write() as repos:
        assert repos.steps.reap_expired(3)
    farm.run_again(ReplayEngine(answer=lost))
    assert farm.steps(tuning_job.id)[-1].attempts == 2
    assert farm.events(tuning_job.id).count("device-trouble") == 1
    assert farm.devices()[0].state is DeviceState.ONLINE, "it missed once"


def test_a_device_that_attacks_its_client_is_held_at_once(farm, tuning_job) -> None:
    def attacked(task, config):
        return Failure.of(broke_protocol("dev-1", "it sent a request"))

    farm.with_engine(ReplayEngine(answer=attacked)).run()
    (device,) = farm.devices()
    assert (device.state, device.held) == (DeviceState.QUARANTINED, True)
    assert "it sent a request" in device.reason
    assert farm.steps(tuning_job.id)[-1].error["code"] == BROKE_PROTOCOL
    with farm.services.uow.write() as repos:  # a clean calibration does not release it
        assert repos.devices.apply(device.id, DeviceEvent.CLEAN).state is DeviceState.QUARANTINED
    farm.add_device("dev-2")
    farm.run_again(ReplayEngine())
    assert farm.job(tuning_job.id).state is JobState.SUCCEEDED
    assert command_device(farm.services, device.id, DeviceEvent.RELEASE).state is DeviceState.OFFLINE


def test_what_was_measured_before_an_attack_stays(farm, tuning_job) -> None:
    measured = []

    def attacking(task, config):
        measured.append(config)
        attack = Failure.of(broke_protocol("dev-1", "it sent a request"))
        return (1e-3,) if len(measured) <= 3 else attack

    farm.with_engine(ReplayEngine(answer=attacking)).run()
    (device,) = farm.devices()
    assert (device.state, device.held) == (DeviceState.QUARANTINED, True)
    assert farm.job(tuning_job.id).trials == 3


def test_a_gpu_that_somebody_uses_is_waited_for(farm, tuning_job) -> None:
    """Neither device, nor job, nor candidate is at fault."""

    def used(task, config):
        return Failure.of(busy("train (pid 7)"))

    farm.with_engine(ReplayEngine(answer=used)).run()
    for _ in range(4):
        farm.run_again(ReplayEngine(answer=used))
    (device,) = farm.devices()
    assert device.state is DeviceState.ONLINE
    assert farm.steps(tuning_job.id)[-1].error["code"] == "device-busy"
    with farm.services.uow.read() as repos:
        troubles = [e.data for e in repos.events.after(tuning_job.id) if e.kind == "device-trouble"]
    assert {trouble["code"] for trouble in troubles} == {"device-busy"}
    assert farm.events(tuning_job.id).count("retry") == 1
    assert farm.job(tuning_job.id).trials == 0
    farm.run_again(ReplayEngine())
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
    assert trouble == {
        "device": "dev-1",
        "message": "the device is gone",
        "device_id": farm.devices()[0].id,
        "step_id": farm.steps(tuning_job.id)[-1].id,
    }
    assert farm.steps(tuning_job.id)[-1].error["message"].endswith("the device is gone")


def test_a_device_that_is_lost_for_good_fails_the_job(farm, tuning_job) -> None:
    engine = ReplayEngine(answer=lost)
    farm.with_engine(engine).run()
    for _ in range(2):
        farm.run_again(engine)
        with farm.services.uow.write() as repos:
            repos.devices.apply(farm.devices()[0].id, DeviceEvent.CLEAN)
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
            repos.devices.apply(farm.devices()[0].id, DeviceEvent.CLEAN)
        farm.run_again(engine)
    failed = farm.job(job.id)
    assert (failed.state, failed.trials) == (JobState.FAILED, 0)
    assert failed.error["code"] == "device-lost"
    assert sum(t.run_sec > 0 for t in farm.trials(job.id)) == 9
