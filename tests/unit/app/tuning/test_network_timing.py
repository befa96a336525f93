"""A tuning step times the network with the kernels so far, on its own device, before its round."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from app_farm import Farm

from tunefarm_app.engines.replay import ReplayEngine
from tunefarm_app.engines.scenario import Scenario
from tunefarm_app.jobs.artifacts import best_so_far
from tunefarm_app.jobs.control import cancel_job
from tunefarm_app.operations.reconcile import reap
from tunefarm_app.report.assemble import job_report
from tunefarm_app.report.numbers import latency_of
from tunefarm_app.steps.run import run_step
from tunefarm_db.states.job import JobState
from tunefarm_db.values import Job, NetworkTiming, Step, StepKind, StepState
from tunefarm_tuning.core.errors import CancelledError, DeviceLostError
from tunefarm_tuning.core.latency import Disturbance, Latency
from tunefarm_tuning.measure.device_run import RunFailed

QUIET = Disturbance(blocks=5, others_cores=0.0)
# A simulated round takes milliseconds, and what matters here is not time.
AT_ONCE = {"network_timing_after_sec": 0.0, "network_timing_share": 0.5, "max_drafts_bytes": 1 << 20}


class Timing(ReplayEngine):
    """Returns the given latencies, or raises the given errors, one after the other; then those of the simulation."""

    def __init__(self, *results: float | Exception, drafts: bool = True) -> None:
        super().__init__(drafts=drafts)
        self.results = list(results)
        self.timed: list[str] = []

    def time_network(self, *args: Any, **terms: Any) -> Latency:
        self.timed.append(terms["device"].name)
        assert terms["device"].fence
        if not self.results:
            return super().time_network(*args, **terms)
        result = self.results.pop(0)
        if isinstance(result, Exception):
            raise result
        return Latency(samples_sec=(result,) * 5, threads=2, disturbance=QUIET)


@pytest.fixture
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let timings be expected to take nothing, and what they took count for nothing."""
    monkeypatch.setattr("tunefarm_app.jobs.drafts.expected_sec", lambda **_: 0.0)


def searching(farm: Farm, engine: ReplayEngine, *, trials: int = 64, **settings: Any) -> tuple[Farm, Job]:
    """Return a farm with such an engine, and a job whose untuned network is compiled and waits to be timed."""
    if not farm.devices():
        farm.add_device()
    farm = farm.with_settings(**{**AT_ONCE, **settings}).with_engine(engine)
    job = farm.submit(farm.ready_model(Scenario(tasks=3)), trials=trials)
    farm.run(steps=1)
    run_draft(farm, job, 0)
    return farm, job


def draft_step(farm: Farm, job: Job, number: int) -> Step | None:
    with farm.services.uow.read() as repos:
        return repos.steps.find(StepKind.DRAFT, job.id, number)


def run_draft(farm: Farm, job: Job, number: int) -> None:
    """Run one of the job's draft steps while nothing else waits for a worker."""
    step = draft_step(farm, job, number)
    assert step is not None
    others = [message for message in farm.inbox.messages if message != step.id]
    farm.inbox.messages[:] = []
    run_step(step.id, farm.services)
    farm.inbox.messages += others


def run_round(farm: Farm, job: Job) -> None:
    """Run the job's next round alone."""
    step = next(step for step in reversed(farm.steps(job.id)) if step.kind is StepKind.TUNE)
    farm.inbox.messages[:] = [message for message in farm.inbox.messages if message != step.id]
    following = run_step(step.id, farm.services)
    farm.inbox.messages += [step.id for step in following]


def networks(farm: Farm, job: Job) -> tuple[NetworkTiming, ...]:
    with farm.services.uow.read() as repos:
        return repos.network_timings.of(job.id)


@pytest.mark.usefixtures("cheap")
def test_the_network_is_timed_while_the_search_goes_on(farm: Farm) -> None:
    engine = Timing(0.02, 0.012)
    farm, job = searching(farm, engine)
    (untuned,) = networks(farm, job)
    assert (untuned.waits, untuned.covered, untuned.costs) == (True, 0, {})
    assert latency_of(farm.job(job.id)).sec is None
    run_round(farm, job)
    (timed,) = networks(farm, job)
    assert (timed.latency_sec, timed.low_sec, timed.high_sec, timed.quiet) == (0.02, 0.02, 0.02, True)
    assert (timed.device, engine.timed) == ("dev-1", ["dev-1"])
    assert latency_of(farm.job(job.id)) == latency_of(farm.job(job.id)).__class__(sec=0.02, is_measured=True)
    assert farm.job(job.id).speedups == {}
    assert farm.events(job.id).count("network-timed") == 1
    # Each round tunes another kernel, so the next network promises a lot.
    assert draft_step(farm, job, 1) is not None
    run_draft(farm, job, 1)
    first, second = networks(farm, job)
    assert (second.waits, second.covered > 0) == (True, True)
    with farm.services.uow.read() as repos:
        assert repos.drafts.of([job.id])[job.id].covered == 0, "offered once it was timed"
    run_round(farm, job)
    assert networks(farm, job)[1].latency_sec == 0.012
    assert farm.job(job.id).network_latency_sec == 0.012
    assert first.latency_sec == 0.02
    with farm.services.uow.read() as repos:
        assert best_so_far(repos, farm.job(job.id)).sha256 == second.sha256
    farm.run_until_quiet()
    job = farm.job(job.id)
    assert job.state is JobState.SUCCEEDED
    report = job_report(farm.services, job.id)
    assert [network.latency_sec for network in report.networks][:2] == [0.02, 0.012]
    with farm.services.uow.read() as repos:
        assert repos.devices.counts(job.device_key).free == 1


@pytest.mark.usefixtures("cheap")
def test_a_slower_network_is_not_offered_and_not_shown(farm: Farm) -> None:
    farm, job = searching(farm, Timing(0.02, 0.03))
    run_round(farm, job)
    run_draft(farm, job, 1)
    run_round(farm, job)
    assert [network.latency_sec for network in networks(farm, job)] == [0.02, 0.03]
    assert farm.job(job.id).network_latency_sec == 0.02
    with farm.services.uow.read() as repos:
        assert repos.drafts.of([job.id])[job.id].covered == 0


def test_a_search_that_would_lose_too_much_times_nothing(farm: Farm) -> None:
    engine = Timing()
    farm, job = searching(farm, engine, network_timing_share=0.03, network_timing_after_sec=60.0)
    farm.run_until_quiet()
    assert farm.job(job.id).state is JobState.SUCCEEDED
    assert engine.timed == []
    assert "network-timed" not in farm.events(job.id)
    assert draft_step(farm, job, 1) is None


@pytest.mark.usefixtures("cheap")
def test_a_network_that_crashes_is_left_alone_and_the_search_goes_on(farm: Farm) -> None:
    engine = Timing(RunFailed("it crashed", code="run-crashed"))
    farm, job = searching(farm, engine, trials=16)
    run_round(farm, job)
    (failed,) = networks(farm, job)
    assert (failed.error or {})["code"] == "run-crashed"
    assert farm.job(job.id).trials > 0
    assert farm.events(job.id).count("network-untimed") == 1
    run_round(farm, job)
    assert len(engine.timed) == 1
    assert latency_of(farm.job(job.id)).is_measured is False


@pytest.mark.usefixtures("cheap")
def test_a_device_that_goes_away_twice_ends_it(farm: Farm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tunefarm_app.tuning.network_timing._CLAIM_SEC", 0.0)
    engine = Timing(DeviceLostError("it went away"), DeviceLostError("it went away"))
    farm, job = searching(farm, engine, trials=16)
    run_round(farm, job)
    (lost,) = networks(farm, job)
    assert (lost.waits, lost.tries) == (True, 1)
    assert farm.job(job.id).trials == 0
    with farm.services.uow.read() as repos:
        assert repos.devices.counts(job.device_key).free == 1, "no lease is lost"
    farm.run_again(engine)
    farm.run_again(engine)
    assert len(engine.timed) == 2
    assert networks(farm, job)[0].error is not None
    assert farm.job(job.id).state is JobState.SUCCEEDED


@pytest.mark.usefixtures("cheap")
def test_a_killed_worker_leaves_no_lease_and_nobody_times_beside_it(farm: Farm) -> None:
    class Stalled(Timing):
        def __init__(self) -> None:
            super().__init__()
            self.entered, self.go_on = threading.Event(), threading.Event()

        def time_network(self, *args: Any, **terms: Any) -> Latency:
            self.entered.set()
            self.go_on.wait(60)
            return super().time_network(*args, **terms)

    stalled = Stalled()
    farm, job = searching(farm, stalled)
    thread = threading.Thread(target=run_round, args=(farm, job))
    thread.start()
    assert stalled.entered.wait(60)
    farm.end_leases()
    with farm.services.uow.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE devices SET lease_until = 1 WHERE lease_until IS NOT NULL")
    assert [step.kind for step in reap(farm.services)] == [StepKind.TUNE]
    prompt = Timing()
    other = farm.with_engine(prompt)
    run_round(other, job)
    assert prompt.timed == [], "the first worker has claimed it, and may still be at it"
    assert farm.job(job.id).trials > 0
    stalled.go_on.set()
    thread.join(60)
    assert networks(farm, job)[0].waits, "a late write is rejected"
    with farm.services.uow.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE network_timings SET not_before = 0")
    run_round(other, job)
    assert prompt.timed == ["dev-1"]
    assert networks(farm, job)[0].latency_sec is not None


@pytest.mark.usefixtures("cheap")
def test_a_cancelled_job_stops_it(farm: Farm) -> None:
    class Cancelled(Timing):
        def time_network(self, *_: Any, **__: Any) -> Latency:
            cancel_job(self.farm.services, self.job.id)
            raise CancelledError("the timing was cancelled")

    engine = Cancelled()
    farm, job = searching(farm, engine)
    engine.farm, engine.job = farm, job  # type: ignore[attr-defined]
    run_round(farm, job)
    assert farm.job(job.id).state is JobState.CANCELLED
    assert networks(farm, job)[0].latency_sec is None
    with farm.services.uow.read() as repos:
        assert repos.devices.counts(job.device_key).free == 1
        assert repos.drafts.of([job.id])[job.id].covered == 0, "what was offered stays"
        sha256 = networks(farm, job)[0].inputs_sha256
        assert not repos.blobs.is_referenced(sha256), "nobody needs its inputs any more"


@pytest.mark.usefixtures("cheap")
def test_the_files_of_a_network_stay_until_it_was_timed(farm: Farm) -> None:
    farm, job = searching(farm, Timing())
    (waiting,) = networks(farm, job)
    with farm.services.uow.read() as repos:
        assert repos.blobs.is_referenced(waiting.inputs_sha256)
    run_round(farm, job)
    with farm.services.uow.read() as repos:
        assert not repos.blobs.is_referenced(waiting.inputs_sha256)
        assert repos.blobs.is_referenced(waiting.sha256), "it is the job's draft"


@pytest.mark.usefixtures("cheap")
def test_a_network_whose_files_are_gone_is_not_timed(farm: Farm) -> None:
    engine = Timing()
    farm, job = searching(farm, engine)
    farm.services.blobs.path(networks(farm, job)[0].inputs_sha256).unlink()
    run_round(farm, job)
    assert engine.timed == []
    assert networks(farm, job)[0].error is not None
    assert farm.job(job.id).trials > 0


@pytest.mark.exhaustive
@pytest.mark.usefixtures("cheap")
def test_of_two_tracks_one_times_it(farm: Farm) -> None:
    farm.add_device("dev-1")
    farm.add_device("dev-2")
    engine = Timing()
    farm, job = searching(farm, engine, trials=200)
    farm.run(steps=12)
    assert len(engine.timed) == sum(network.tries for network in networks(farm, job))
    assert all(network.tries == 1 for network in networks(farm, job) if network.latency_sec is not None)


@pytest.mark.usefixtures("cheap")
def test_a_renewal_ends_with_the_search(farm: Farm) -> None:
    farm, job = searching(farm, Timing(0.05), trials=24)
    run_round(farm, job)
    step = draft_step(farm, job, 1)
    assert step is not None
    farm.inbox.messages.remove(step.id)
    farm.run_until_quiet()
    assert farm.job(job.id).state is JobState.SUCCEEDED
    renewal = draft_step(farm, job, 1)
    assert renewal is not None
    assert renewal.state in (StepState.CANCELLED, StepState.DONE)
    assert len(networks(farm, job)) <= 2


def test_a_farm_without_drafts_or_of_gpus_times_nothing(farm: Farm) -> None:
    farm.add_device("gpu", "gpus", target={"kind": "cuda", "arch": "sm_90", "max_threads_per_block": 1024})
    farm = farm.with_settings(**AT_ONCE).with_engine(Timing())
    job = farm.submit(farm.ready_model(), trials=8, device_key="gpus")
    farm.run_until_quiet()
    assert farm.job(job.id).state is JobState.SUCCEEDED
    assert networks(farm, job) == ()
