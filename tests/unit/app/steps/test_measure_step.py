"""The measure step: the artifact of an ended job is timed again, before all jobs, and the report keeps each measurement."""

from __future__ import annotations

from typing import Any

import pytest
from app_farm import Farm
from timing_engine import TimingEngine, measured, timed

from tunefarm_app.jobs.control import cancel_job
from tunefarm_app.jobs.measure_again import Measuring, measure_again, measuring_of
from tunefarm_app.leases.step_context import StepContext
from tunefarm_app.leases.step_lease import StepLease
from tunefarm_app.models.removal import delete_model
from tunefarm_app.report.assemble import job_report
from tunefarm_app.report.numbers import latency_of, ratios_of, speedups_of
from tunefarm_app.steps.measure_step import run_measure
from tunefarm_db.states.device import DeviceEvent
from tunefarm_db.states.job import JobState
from tunefarm_db.values import DeviceLease, Job, StepKind
from tunefarm_tuning.compiler.report import LatencyEvidence
from tunefarm_tuning.core.errors import (
    ConflictError,
    DeviceLostError,
    InvalidInputError,
    InvalidModelError,
    NotFoundError,
)
from tunefarm_tuning.core.latency import TimedAgain


@pytest.fixture
def done(farm: Farm) -> Job:
    farm.add_device("node-7")
    job = farm.submit(farm.ready_model(), trials=8)
    farm.run()
    assert farm.job(job.id).state is JobState.SUCCEEDED
    return farm.job(job.id)


def test_the_latest_quiet_measurement_counts(farm: Farm, done: Job) -> None:
    measurements = measured(farm, done.id, timed(0.02), timed(0.01), timed(0.05, slowdown=1.5))
    assert measurements.state == "idle"
    assert [(taken.quiet, taken.shown) for taken in measurements.items] == [
        (True, False),
        (True, True),
        (False, False),
    ]
    assert [taken.seconds["tuned"] for taken in measurements.items] == [0.02, 0.01, 0.05]
    assert {taken.device for taken in measurements.items} == {"node-7"}
    job = farm.job(done.id)
    assert (latency_of(job).sec, latency_of(job).is_measured) == (0.01, True)
    assert (job.over_untuned, job.over_runtime) == (pytest.approx(4), pytest.approx(3))
    report = job_report(farm.services, job.id)
    assert report.measurements == measurements.items
    assert report.latency is not None
    assert report.latency.tuned.median_sec == 0.01
    assert report.latency.ratios == speedups_of(job)
    assert not [warning for warning in report.warnings if "contradicts" in warning]
    assert report.job.state is JobState.SUCCEEDED
    with farm.services.uow.read() as repos:
        events = [event.kind for event in repos.events.after(job.id)]
        artifact = repos.artifacts.for_job(job.id)
    assert events[-6:] == ["measure", "measured"] * 3
    assert artifact is not None
    assert ratios_of(artifact.report) == speedups_of(job)


def test_that_of_the_compile_is_kept(farm: Farm, done: Job) -> None:
    with farm.services.uow.write() as repos:
        artifact = repos.artifacts.for_job(done.id)
        assert artifact is not None
        compiled = LatencyEvidence(latency=timed(0.03, slowdown=2.0).latency).to_json()
        repos.artifacts.set_report(
            done.id, {**artifact.report, "latency": compiled, "shapes": [{"latency": 1}, 2]}
        )
    first, second = measured(farm, done.id, timed(0.02, slowdown=1.4)).items
    assert (first.at_compile, first.quiet, first.shown) == (True, False, False)
    assert first.seconds["tuned"] == 0.03
    assert (second.at_compile, second.quiet, second.shown) == (False, False, True), (
        "none is quiet: the latest"
    )
    with farm.services.uow.read() as repos:
        artifact = repos.artifacts.for_job(done.id)
    assert artifact is not None
    assert artifact.report["shapes"] == [{"latency": artifact.report["latency"]}, 2]


def test_of_two_requests_one_measures(farm: Farm, done: Job) -> None:
    measure_again(farm.services, done.id)
    assert measure_again(farm.services, done.id).state == "waiting"
    assert farm.run() == 1
    with farm.services.uow.read() as repos:
        assert [taken.seconds["tuned"] for taken in measuring_of(repos, done.id).items] == [0.002]


def test_a_measurement_that_fails_says_why_and_changes_nothing(farm: Farm, done: Job) -> None:
    measured(farm, done.id, timed(0.02))
    before = farm.job(done.id)
    refused = measured(
        farm, done.id, InvalidModelError("it does not compile any more", code="compile-failed")
    )
    assert (refused.state, len(refused.items)) == ("failed", 1)
    assert refused.error is not None
    assert refused.error["message"] == "it does not compile any more"
    after = farm.job(done.id)
    assert (after.state, after.network_latency_sec) == (before.state, before.network_latency_sec)
    again = measured(farm, done.id, timed(0.01))
    assert (again.state, again.error, len(again.items)) == ("idle", None, 2)


def test_it_waits_for_a_device_and_comes_before_jobs(farm: Farm, done: Job) -> None:
    with farm.services.uow.write() as repos:
        (device,) = repos.devices.list().items
        lease = repos.devices.lease(done.device_key, "somebody else", 60.0)
        assert lease is not None
    measure_again(farm.services, done.id)
    farm.run()
    other = farm.submit(farm.ready_model(), trials=8)
    farm.run()
    with farm.services.uow.write() as repos:
        assert measuring_of(repos, done.id).state == "waiting"
        assert [step.subject_id for step in repos.turns.measurements(done.device_key)] == [done.id]
        repos.devices.release_lease(device.id, lease.fence)
    farm.run_until_quiet()
    with farm.services.uow.read() as repos:
        assert len(measuring_of(repos, done.id).items) == 1
        measurement = repos.steps.find(StepKind.MEASURE, done.id)
        rounds = [step for step in repos.steps.for_job(other.id) if step.kind is StepKind.TUNE]
    assert measurement is not None
    assert measurement.finished_at is not None
    assert all(step.finished_at is None or step.finished_at >= measurement.finished_at for step in rounds)


def test_what_cannot_be_measured_is_refused(farm: Farm, done: Job) -> None:
    with pytest.raises(NotFoundError, match="no such job"):
        measure_again(farm.services, "job_none")
    waiting = farm.submit(farm.ready_model(), trials=8)
    with pytest.raises(ConflictError, match="has not ended yet") as error:
        measure_again(farm.services, waiting.id)
    assert error.value.code == "no-artifact"
    farm.run()
    with farm.services.uow.read() as repos:
        artifact = repos.artifacts.for_job(done.id)
    assert artifact is not None
    path = farm.services.blobs.path(artifact.sha256)
    content = path.read_bytes()
    path.unlink()
    with pytest.raises(NotFoundError, match="deleted by retention"):
        measure_again(farm.services, done.id)
    path.write_bytes(content)
    delete_model(farm.services, done.model_id)
    with pytest.raises(NotFoundError, match="deleted"):
        measure_again(farm.services, done.id)


class FreedMeanwhile(StepLease):
    """Gets no device; right after that, somebody else's is free."""

    def take_device(self, device_key: str) -> DeviceLease | None:
        with self._services.uow.write() as repos:
            held = repos.devices.lease(device_key, "somebody else", 60.0)
            assert held is not None
        lease = super().take_device(device_key)
        with self._services.uow.write() as repos:
            repos.devices.release_lease(held.device.id, held.fence)
        return lease


def test_a_device_that_is_freed_meanwhile_is_not_left_idle(farm: Farm, done: Job) -> None:
    measure_again(farm.services, done.id)
    farm.inbox.messages.clear()
    with farm.services.uow.write() as repos:
        (waiting,) = repos.turns.measurements(done.device_key)
        step = repos.steps.claim(waiting.id, "a worker", 60.0)
        assert step is not None
    with FreedMeanwhile(farm.services, step, limit_sec=60.0) as lease:
        context = StepContext(services=farm.services, step=step, lease=lease)
        run_measure(context)
    assert [sent.id for sent in context.following] == [step.id], "marked as sent, so it is sent"


def measuring(farm: Farm, job: Job) -> Measuring:
    with farm.services.uow.read() as repos:
        return measuring_of(repos, job.id)


def test_it_says_what_it_waits_for(farm: Farm, done: Job) -> None:
    measure_again(farm.services, done.id)
    assert measuring(farm, done).waiting == "waiting for a worker"
    with farm.services.uow.write() as repos:
        (device,) = repos.devices.list().items
        repos.devices.apply(device.id, DeviceEvent.FAIL, "wrong answer")
    farm.run()
    assert measuring(farm, done).waiting == "waiting for a device of pool: 0 of 1 online (1 quarantined)"
    with farm.services.uow.write() as repos:
        repos.devices.apply(device.id, DeviceEvent.CLEAN)
        lease = repos.devices.lease(done.device_key, "somebody else", 60.0)
        assert lease is not None
    assert measuring(farm, done).waiting == "waiting for a device of pool: 1 of 1 online, all busy"
    with farm.services.uow.write() as repos:
        repos.devices.release_lease(device.id, lease.fence)
    farm.run_again(TimingEngine(DeviceLostError("it went away")))
    assert measuring(farm, done).waiting == "waiting to retry after an error: it went away"
    farm.run_again(TimingEngine(timed(0.02)))
    assert (measuring(farm, done).state, measuring(farm, done).waiting) == ("idle", None)


def test_an_open_measurement_is_cancelled(farm: Farm, done: Job) -> None:
    measure_again(farm.services, done.id)
    assert cancel_job(farm.services, done.id).state is JobState.SUCCEEDED
    assert (measuring(farm, done).state, farm.events(done.id)[-1]) == ("idle", "unmeasured")
    farm.run()
    assert measuring(farm, done).items == []
    assert cancel_job(farm.services, done.id).cancel_requested is False
    assert farm.events(done.id).count("unmeasured") == 1, "nothing is open any more"
    assert len(measured(farm, done.id, timed(0.02)).items) == 1


def test_a_running_measurement_is_cancelled(farm: Farm, done: Job) -> None:
    class CancellingEngine(TimingEngine):
        def time_artifact(self, *args: Any, **named: Any) -> TimedAgain:
            cancel_job(farm.services, done.id)
            return super().time_artifact(*args, **named)

    measure_again(farm.services, done.id)
    farm.with_engine(CancellingEngine(timed(0.02))).run()
    assert measuring(farm, done).items == []
    assert measuring(farm, done).state == "idle"
    with farm.services.uow.read() as repos:
        assert repos.devices.counts(done.device_key).free == 1


class NotingEngine(TimingEngine):
    """Notes beside which runtimes it is asked to time."""

    def __init__(self, *results: TimedAgain) -> None:
        super().__init__(*results)
        self.asked: list[tuple[str, ...]] = []

    def time_artifact(self, *_: Any, **named: Any) -> TimedAgain:
        self.asked.append(tuple(named["baselines"]))
        return super().time_artifact()


def test_runtimes_that_were_asked_for_once_are_timed_from_then_on(farm: Farm, done: Job) -> None:
    engine = NotingEngine(timed(0.02), timed(0.02), timed(0.02))
    for baselines in (["litert"], ["openvino", "litert"], []):
        measure_again(farm.services, done.id, baselines=baselines)
        farm.with_engine(engine).run()
    assert engine.asked == [("litert",), ("litert", "openvino"), ("litert", "openvino")]
    assert "baselines" not in farm.job(done.id).options, "they are no term of the job"
    with pytest.raises(InvalidInputError, match="there is no baseline 'x'"):
        measure_again(farm.services, done.id, baselines=["x"])
