"""Several rounds of one job at the same time, on several devices."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from waiting import wait_until

from tunefarm_app.engines.replay import ReplayEngine
from tunefarm_app.engines.scenario import Scenario
from tunefarm_app.jobs.change import JobChange, change_job
from tunefarm_app.jobs.control import cancel_job, pause_job, resume_job
from tunefarm_app.leases.step_context import StepContext
from tunefarm_app.leases.step_lease import StepLease
from tunefarm_app.leases.tracks import Claims, InFlight, open_track, share_of_devices, with_in_flight
from tunefarm_app.operations.reconcile import send_due
from tunefarm_app.steps.run import run_steps
from tunefarm_db.states.device import DeviceEvent
from tunefarm_db.states.job import JobState
from tunefarm_db.values import DeviceLease, NewTrial, StepKind, StepState
from tunefarm_tuning.core.errors import DeviceLostError
from tunefarm_tuning.search.scheduler import RoundSummary, TaskScheduler, TaskState


class GatedEngine(ReplayEngine):
    """Holds every round until it is let go; knows which devices are at one."""

    def __init__(self) -> None:
        super().__init__()
        self.busy: Counter[str] = Counter()
        self.most = 0
        self.gate = threading.Event()
        self.broken: set[str] = set()
        self._lock = threading.Lock()

    @contextmanager
    def measuring(self, device: Any, *, cancellation: Any) -> Iterator[Any]:
        if device.name in self.broken:
            self.broken.discard(device.name)
            raise DeviceLostError("it went up in smoke")
        with self._lock:
            self.busy[device.name] += 1
            assert self.busy[device.name] == 1, "two measurements on one device"
            self.most = max(self.most, self.busy.total())
        try:
            assert self.gate.wait(60)
            with super().measuring(device, cancellation=cancellation) as option:
                yield option
        finally:
            with self._lock:
                self.busy[device.name] -= 1


class Workers:
    """Runs the farm's messages, each in a thread of its own, as that many workers do."""

    def __init__(self, farm: Any) -> None:
        self._farm = farm
        self._threads: list[threading.Thread] = []

    def take_all(self) -> None:
        while self._farm.inbox.messages:
            step_id = self._farm.inbox.messages.pop(0)
            thread = threading.Thread(target=run_steps, args=(step_id, self._farm.services), daemon=True)
            thread.start()
            self._threads.append(thread)

    def until(self, condition: Any) -> None:
        def look() -> bool:
            send_due(self._farm.services, resend_after_sec=1.0)
            self.take_all()
            return bool(condition())

        wait_until(look, lambda: "the workers")

    def join(self) -> None:
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()


@pytest.fixture
def engine() -> GatedEngine:
    return GatedEngine()


@pytest.fixture
def farm(farm: Any, engine: GatedEngine) -> Any:
    """A farm in which every round is a message of its own."""
    return farm.with_settings(step_chain_sec=0.0).with_engine(engine)


@pytest.fixture
def workers(farm: Any, engine: GatedEngine) -> Iterator[Workers]:
    workers = Workers(farm)
    yield workers
    engine.gate.set()
    workers.join()


def finished(farm: Any, *jobs: Any) -> bool:
    return all(farm.job(job.id).state.is_finished for job in jobs)


def test_a_job_measures_on_all_devices_of_its_pool_at_once(farm, engine, workers) -> None:
    for number in range(4):
        farm.add_device(f"dev-{number}")
    job = farm.submit(farm.ready_model(Scenario(tasks=2)), trials=100)
    workers.until(lambda: engine.busy.total() == 4)
    assert len(engine.busy) == 4
    engine.gate.set()
    workers.until(lambda: finished(farm, job))
    done = farm.job(job.id)
    trials = farm.trials(job.id)
    assert (done.state, done.stop_reason, done.trials) == (JobState.SUCCEEDED, "trials", 100)
    assert len({(trial.position, trial.config_key) for trial in trials}) == len(trials) == 100
    assert {trial.position for trial in trials} == {0, 1}
    rounds = sorted(step.round for step in farm.steps(job.id) if step.kind is StepKind.TUNE)
    assert rounds == list(range(len(rounds)))
    assert all(step.in_flight is None for step in farm.steps(job.id))
    assert "lane-lost" not in farm.events(job.id)


def test_wall_clock_of_rounds_side_by_side_counts_once(farm, engine, workers) -> None:
    for number in range(3):
        farm.add_device(f"dev-{number}")
    job = farm.submit(farm.ready_model(Scenario(tasks=1)), trials=24)
    workers.until(lambda: engine.busy.total() == 3)
    with (
        farm.services.uow.engine.begin() as connection
    ):  # as if the first round had begun a thousand seconds ago
        connection.exec_driver_sql("UPDATE jobs SET counted_until = counted_until - 1000")
    engine.gate.set()
    workers.until(lambda: finished(farm, job))
    assert 1000 <= farm.job(job.id).tuned_sec < 2000


def test_one_device_is_one_track(farm, engine, workers) -> None:
    farm.add_device()
    farm.add_device("other", device_key="another-pool")
    engine.gate.set()
    job = farm.submit(farm.ready_model(), trials=32, device_key="pool")
    workers.until(lambda: finished(farm, job))
    assert engine.most == 1
    assert {step.state for step in farm.steps(job.id)} == {StepState.DONE}


def test_a_small_space_is_shared_and_spent(farm, engine, workers) -> None:
    """Four configs, and more devices than that: each config is tried once."""
    for number in range(6):
        farm.add_device(f"dev-{number}")
    engine.gate.set()
    job = farm.submit(farm.ready_model(Scenario(tasks=1, extent=1)), trials=64, round_size=1)
    workers.until(lambda: finished(farm, job))
    done = farm.job(job.id)
    assert (done.state, done.stop_reason, done.trials) == (JobState.SUCCEEDED, "exhausted", 4)
    assert len({trial.config_key for trial in farm.trials(job.id)}) == 4


@pytest.mark.exhaustive
def test_two_jobs_come_to_share_the_devices(farm, engine, workers) -> None:
    for number in range(4):
        farm.add_device(f"dev-{number}")
    model = farm.ready_model(Scenario(tasks=1))
    first, second = (farm.submit(model, trials=160, seed=seed) for seed in (1, 2))
    held: Counter[tuple[int, int]] = Counter()

    def holders() -> tuple[int, int]:
        return tuple(
            sum(step.state is StepState.LEASED and step.in_flight is not None for step in farm.steps(job.id))
            for job in (first, second)
        )

    engine.gate.set()

    def looked() -> bool:
        held[holders()] += 1
        return finished(farm, first, second)

    workers.until(looked)
    assert all(farm.job(job.id).trials == 160 for job in (first, second))
    assert any(first >= 1 and two >= 1 for first, two in held), held


def test_the_share_of_a_job(farm) -> None:
    for number in range(5):
        farm.add_device(f"dev-{number}")
    model = farm.ready_model()
    jobs = [farm.submit(model, trials=400, seed=seed) for seed in range(3)]

    def shares() -> list[int]:
        with farm.services.uow.read() as repos:
            pool = repos.devices.counts("pool")
            return [share_of_devices(repos, repos.jobs.get(job.id), pool) for job in jobs]

    def tuning(job: Any) -> None:
        with farm.services.uow.write() as repos:
            repos.jobs.move(job.id, JobState.EXTRACTING)
            repos.jobs.move(job.id, JobState.TUNING)

    tuning(jobs[0])
    assert shares()[0] == 5
    tuning(jobs[1])
    assert shares()[:2] == [3, 3]
    tuning(jobs[2])
    assert shares() == [2, 2, 2]
    with farm.services.uow.write() as repos:
        repos.jobs.update(jobs[2].id, priority=10)
    assert shares() == [1, 1, 5]


def test_a_track_is_opened_where_a_device_is_idle_or_due(farm) -> None:
    devices = [farm.add_device(f"dev-{number}") for number in range(2)]
    model = farm.ready_model()
    mine, other = (farm.submit(model, trials=400, seed=seed) for seed in range(2))
    with farm.services.uow.write() as repos:
        for job in (mine, other):
            repos.steps.cancel_open(job_id=job.id)
            repos.jobs.move(job.id, JobState.EXTRACTING)
            repos.jobs.move(job.id, JobState.TUNING)
        step = repos.steps.add(StepKind.TUNE, subject_id=mine.id, model_id=model.id, job_id=mine.id)
        assert repos.steps.claim(step.id, "me", 60.0)
        leases = [repos.devices.lease("pool", "me", 60.0)]
        job = repos.jobs.get(mine.id)
        second = open_track(repos, job)
        assert second is not None, "a device is idle"
        assert open_track(repos, job) is None, "there are tracks for both devices"
        assert repos.steps.claim(second.id, "me", 60.0)
        repos.steps.cancel_ready(mine.id)
        leases.append(repos.devices.lease("pool", "me", 60.0))
        # The other job's first: no device is free, but one of them is its due.
        step = repos.steps.add(StepKind.TUNE, subject_id=other.id, model_id=model.id, job_id=other.id)
        assert repos.steps.claim(step.id, "me", 60.0)
        assert open_track(repos, repos.jobs.get(other.id)) is None, "it has its share"
        repos.devices.apply(devices[0].id, DeviceEvent.FAIL, "broken")
        assert all(isinstance(lease, DeviceLease) for lease in leases)


def test_a_track_ends_with_its_device_and_the_job_goes_on(farm, engine, workers) -> None:
    devices = [farm.add_device(f"dev-{number}") for number in range(3)]
    job = farm.submit(farm.ready_model(Scenario(tasks=1)), trials=64)
    workers.until(lambda: engine.busy.total() == 3)
    with farm.services.uow.write() as repos:
        for device in devices[1:]:
            repos.devices.apply(device.id, DeviceEvent.FAIL, "broken")
    engine.gate.set()
    workers.until(lambda: finished(farm, job))
    assert farm.job(job.id).trials == 64
    assert StepState.CANCELLED in {step.state for step in farm.steps(job.id)}


def test_a_job_whose_devices_all_go_says_that_it_waits(farm, engine, workers) -> None:
    devices = [farm.add_device(f"dev-{number}") for number in range(3)]
    job = farm.submit(farm.ready_model(Scenario(tasks=1)), trials=64)
    workers.until(lambda: engine.busy.total() == 3)
    with farm.services.uow.write() as repos:
        for device in devices:
            repos.devices.apply(device.id, DeviceEvent.SILENT, "no heartbeat")
    engine.gate.set()
    workers.until(lambda: "waiting" in farm.events(job.id))
    assert "0 of 3 online" in farm.job(job.id).progress["waiting"]
    with farm.services.uow.write() as repos:
        for device in devices:
            repos.devices.heartbeat(device.id)
            repos.devices.apply(device.id, DeviceEvent.CLEAN)
    workers.until(lambda: finished(farm, job))
    assert farm.job(job.id).trials == 64


def test_a_track_that_fails_for_good_leaves_the_job_to_the_others(farm, engine, workers) -> None:
    farm = farm.with_settings(max_step_attempts=1)
    for number in range(2):
        farm.add_device(f"dev-{number}")
    job = farm.submit(farm.ready_model(Scenario(tasks=1)), trials=48)
    workers = Workers(farm)
    workers.until(lambda: engine.busy.total() == 2)
    engine.broken.add("dev-1")
    engine.gate.set()
    workers.until(lambda: finished(farm, job))
    workers.join()
    assert (farm.job(job.id).state, farm.job(job.id).trials) == (JobState.SUCCEEDED, 48)
    assert farm.events(job.id).count("lane-lost") == 1


def test_pausing_stops_all_tracks_and_resuming_starts_them(farm, engine, workers) -> None:
    for number in range(3):
        farm.add_device(f"dev-{number}")
    job = farm.submit(farm.ready_model(Scenario(tasks=1)), trials=48)
    workers.until(lambda: engine.busy.total() == 3)
    pause_job(farm.services, job.id)
    engine.gate.set()
    workers.join()
    assert farm.job(job.id).trials == 0
    assert resume_job(farm.services, job.id).state is JobState.TUNING
    workers.until(lambda: finished(farm, job))
    assert (farm.job(job.id).state, farm.job(job.id).trials) == (JobState.SUCCEEDED, 48)


def test_cancelling_and_another_budget_with_tracks(farm, engine, workers) -> None:
    for number in range(3):
        farm.add_device(f"dev-{number}")
    model = farm.ready_model(Scenario(tasks=1))
    job = farm.submit(model, trials=400)
    workers.until(lambda: engine.busy.total() == 3)
    assert change_job(farm.services, job.id, JobChange(budget={"trials": 24})).budget["trials"] == 24
    engine.gate.set()
    workers.until(lambda: finished(farm, job))
    assert farm.job(job.id).trials == 24
    engine.gate.clear()
    other = farm.submit(model, trials=400, seed=5)
    workers.until(lambda: engine.busy.total() == 3)
    cancel_job(farm.services, other.id)
    assert farm.job(other.id).state is JobState.CANCELLED
    engine.gate.set()
    workers.join()
    assert farm.job(other.id).trials == 0


def test_what_another_track_committed_meanwhile_is_not_tried_again(farm, tuning_job) -> None:
    """A tuner that was told of the trials before that would propose the very same."""
    (step_id,) = farm.inbox.messages
    with farm.services.uow.write() as repos:
        step = repos.steps.claim(step_id, "me", 60.0)
        assert step is not None
        trials = [
            NewTrial(
                position=position,
                ordinal=ordinal,
                config_key=applied,
                asked_key=proposed,
                outcome=outcome,
                cost_sec=None,
                message="",
                build_sec=0.0,
                run_sec=0.0,
                measured_at=0.0,
                record_id=None,
            )
            for ordinal, (position, proposed, applied, outcome) in enumerate(
                [
                    (0, "asked", "applied", "run-error"),
                    (0, "lost", "lost", "infrastructure-error"),
                    (1, "other", "other", "run-error"),
                ]
            )
        ]
        repos.trials.add_many(tuning_job.id, 7, trials)
    with StepLease(farm.services, step, limit_sec=60.0) as lease:
        context = StepContext(services=farm.services, step=step, lease=lease)
        claims = Claims(context, InFlight(position=0, trials=8))
        assert list(claims.claim(["asked", "applied", "lost", "other", "new"])) == ["lost", "other", "new"]


def test_rounds_under_way_count_as_rounds_without_gain() -> None:
    rich, poor = (
        TaskState(
            weight=1,
            flops=1e9,
            history=(RoundSummary(trials=8, best_sec=best), RoundSummary(trials=8, best_sec=best / 2)),
            spent_sec=8.0,
            best_sec=best / 2,
        )
        for best in (3e-3, 2e-3)
    )
    fresh = TaskState(weight=1, flops=1.0)
    scheduler = TaskScheduler()
    assert scheduler.next([rich, poor]) == 0
    busy = with_in_flight([rich, poor], [InFlight(position=0, trials=8)] * 2)
    assert scheduler.next(busy) == 1
    assert busy[0].spent_sec == 16.0
    assert busy[1] is poor
    # Every task has its first round under way before one has its second.
    assert scheduler.next(with_in_flight([fresh, fresh], [InFlight(position=0, trials=8)])) == 1
