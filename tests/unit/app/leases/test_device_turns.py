"""Which job gets a device first, and what the others show as their reason to wait."""

from __future__ import annotations

import pytest

from tunefarm_app.engines.scenario import Scenario
from tunefarm_app.jobs.change import JobChange, change_job
from tunefarm_app.jobs.control import pause_job, resume_job
from tunefarm_app.jobs.measure_again import measure_again, measuring_of
from tunefarm_app.jobs.terms import parse_priority
from tunefarm_app.leases.device_turns import FOR_A_WORKER, why_waiting
from tunefarm_app.operations.reconcile import send_due
from tunefarm_db.states.device import DeviceEvent
from tunefarm_db.states.job import JobState
from tunefarm_db.values import StepState
from tunefarm_text.job_terms import PRIORITIES
from tunefarm_tuning.core.errors import ConflictError, InvalidInputError


@pytest.fixture
def farm(farm):
    """A farm in which every round is a message of its own."""
    return farm.with_settings(step_chain_sec=0.0)


def in_order(farm, *jobs) -> str:
    """Return whose rounds came in which order, as letters: the first job is a."""
    names = {job.id: chr(ord("a") + number) for number, job in enumerate(jobs)}
    with farm.services.uow.read() as repos:
        trials = [trial for job in jobs for trial in repos.trials.page(job.id, limit=500).items]
    seen = {}
    for trial in sorted(trials, key=lambda trial: trial.id):
        seen.setdefault((trial.job_id, trial.round), names[trial.job_id])
    return "".join(seen.values())


def test_a_job_of_higher_priority_has_the_device_from_the_next_round_on(farm) -> None:
    model = farm.ready_model(Scenario(tasks=1))
    farm.add_device()
    usual = farm.submit(model, trials=32, seed=1)
    farm.run(steps=2)  # extracted, and one round
    urgent = farm.submit(model, trials=24, seed=2, priority="high")
    farm.run_until_quiet()
    assert in_order(farm, usual, urgent) in ("abbbaaa", "aabbbaa")  # extracting the second one took its time
    assert farm.job(urgent.id).priority == PRIORITIES["high"]


def test_a_priority_is_changed_while_the_job_runs(farm) -> None:
    model = farm.ready_model(Scenario(tasks=1))
    farm.add_device()
    first, two = (farm.submit(model, trials=32, seed=seed) for seed in (1, 2))
    while farm.job(first.id).trials + farm.job(two.id).trials < 32:
        farm.run(steps=1) or send_due(farm.services, resend_after_sec=0)
    change_job(farm.services, two.id, JobChange(priority=7))
    before = len(in_order(farm, first, two))
    farm.run_until_quiet()
    order = in_order(farm, first, two)
    assert set(order[:before]) == {"a", "b"}, "they took turns"
    rest = order[before:].lstrip("a") if order[before] == "a" else order[before:]
    assert rest.rstrip("a") == "b" * len(rest.rstrip("a")), order
    assert order.endswith("a")
    changed = [kind for kind in farm.events(two.id) if kind == "priority"]
    assert len(changed) == 1


def test_device_time_is_shared_not_rounds(farm) -> None:
    """A job with short rounds gets more of them: as many as go into the device time that the other one had."""
    model = farm.ready_model(Scenario(tasks=1))
    farm.add_device()
    slow, quick = (farm.submit(model, trials=48, seed=seed) for seed in (1, 2))
    while not farm.job(slow.id).trials:
        farm.run(steps=1)
    with farm.services.uow.write() as repos:
        repos.jobs.charge(slow.id, 1000.0)  # its round was a long one
    farm.run_until_quiet()
    assert in_order(farm, slow, quick) == "a" + 6 * "b" + 5 * "a"


def test_a_newcomer_does_not_make_up_for_the_past(farm) -> None:
    model = farm.ready_model(Scenario(tasks=1))
    farm.add_device()
    old = farm.submit(model, trials=64, seed=1)
    farm.run(steps=2)
    with farm.services.uow.write() as repos:
        repos.jobs.charge(old.id, 1000.0)
    new = farm.submit(model, trials=64, seed=2)
    farm.run_until_quiet()
    assert farm.job(new.id).turn_sec > 1000.0
    assert "b" * 8 not in in_order(farm, old, new), "all of its rounds at once"


def test_a_job_that_comes_back_does_not_make_up_for_its_pause(farm) -> None:
    model = farm.ready_model(Scenario(tasks=1))
    farm.add_device()
    first, two = (farm.submit(model, trials=16, seed=seed) for seed in (1, 2))
    farm.run(steps=2)
    pause_job(farm.services, two.id)
    with farm.services.uow.write() as repos:
        repos.jobs.charge(first.id, 1000.0)
    if farm.job(two.id).progress["paused_in"] == "queued":
        resume_job(farm.services, two.id)
        farm.run(steps=1)
        pause_job(farm.services, two.id)
    resume_job(farm.services, two.id)
    assert farm.job(two.id).turn_sec >= 1000.0


def waiting(farm, job) -> str | None:
    with farm.services.uow.read() as repos:
        step = repos.steps.open_of([job.id]).get(job.id)
        return why_waiting(repos.jobs.get(job.id), step, repos.now())


def test_a_job_says_what_it_waits_for(farm) -> None:
    model = farm.ready_model(Scenario(tasks=1))
    devices = [farm.add_device(f"dev-{n}") for n in range(3)]
    job = farm.submit(model, trials=16)
    assert waiting(farm, job) == FOR_A_WORKER
    with farm.services.uow.write() as repos:
        repos.devices.apply(devices[0].id, DeviceEvent.FAIL, "wrong answer")
        for device in devices[1:]:
            repos.devices.apply(device.id, DeviceEvent.SILENT)
    farm.run(steps=2)
    assert waiting(farm, job) == "waiting for a device of pool: 0 of 3 online (2 offline, 1 quarantined)"
    with farm.services.uow.read() as repos:
        (reason,) = [e.data["waiting"] for e in repos.events.after(job.id) if e.kind == "waiting"]
    assert reason == waiting(farm, job)

    with farm.services.uow.write() as repos:
        repos.devices.apply(devices[0].id, DeviceEvent.CLEAN)
        held = repos.devices.lease("pool", "somebody", 600.0)
        assert held is not None
        urgent = repos.steps.open_of([job.id])[job.id]
        repos.steps.expedite(urgent.id)
    other = farm.submit(model, trials=8, priority="high", seed=9)
    farm.inbox.messages.append(urgent.id)
    farm.run()
    assert waiting(farm, job) == ("waiting for a device of pool: 1 of 3 online, all busy") or waiting(
        farm, job
    ).endswith("1 job of higher priority before it")
    with farm.services.uow.write() as repos:
        repos.devices.release_lease(held.device.id, held.fence)
    farm.run_until_quiet()
    for tuned in (job, other):
        while not farm.job(tuned.id).state.is_finished:
            send_due(farm.services, resend_after_sec=0)
            farm.run()
        assert waiting(farm, tuned) is None
    pause = farm.submit(model, trials=8, seed=10)
    pause_job(farm.services, pause.id)
    assert waiting(farm, pause) is None


def test_a_job_whose_turn_it_is_not_wakes_the_one_whose_it_is(farm) -> None:
    """A device never idles: a job whose turn it is not wakes the job whose turn it is."""
    model = farm.ready_model(Scenario(tasks=1))
    farm.add_device()
    first, second = (farm.submit(model, trials=16, seed=seed) for seed in (1, 2))
    farm.run(steps=2)
    with farm.services.uow.write() as repos:
        repos.jobs.update(first.id, priority=1)
        (of_second,) = [s for s in repos.steps.for_job(second.id) if s.kind == "tune"]
    farm.inbox.messages[:] = [of_second.id]  # the first one's message is lost
    farm.run(steps=1)
    assert waiting(farm, second).endswith("1 job of higher priority before it")
    farm.run_until_quiet()
    assert farm.job(first.id).state is JobState.SUCCEEDED


def test_nobody_takes_a_step_for_long(farm) -> None:
    farm.add_device()
    job = farm.submit(farm.ready_model(Scenario(tasks=1)), trials=8)
    farm.inbox.messages.clear()
    for _ in range(3):
        with farm.services.uow.engine.begin() as connection:
            connection.exec_driver_sql("UPDATE steps SET sent_at = sent_at - 100")
        send_due(farm.services)
    assert farm.events(job.id).count("waiting") == 1
    farm.run_until_quiet()
    assert farm.job(job.id).state is JobState.SUCCEEDED


def test_jobs_wait_for_a_measurement_only_while_a_worker_may_take_it(farm) -> None:
    farm.add_device()
    model = farm.ready_model(Scenario(tasks=1))
    done = farm.submit(model, trials=8)
    farm.run_until_quiet()
    measure_again(farm.services, done.id)
    untaken = list(farm.inbox.messages)  # its queue's workers have no time
    farm.inbox.messages.clear()
    job = farm.submit(model, trials=16)
    farm.run(steps=1)  # extracted
    with farm.services.uow.write() as repos:
        repos.steps.expedite(untaken[0])
    farm.run()
    assert waiting(farm, job) == (
        "waiting for its turn on a device of pool: 1 measurement of an artifact before it"
    )
    with farm.services.uow.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE steps SET not_before = not_before - 100 WHERE state = 'ready'")
    with farm.services.uow.read() as repos:
        (step,) = [step for step in repos.steps.for_job(job.id) if step.state is StepState.READY]
    farm.inbox.messages.append(step.id)
    farm.run()
    assert farm.job(job.id).state is JobState.SUCCEEDED
    farm.inbox.messages += untaken
    farm.run()
    with farm.services.uow.read() as repos:
        assert len(measuring_of(repos, done.id).items) == 1


def test_priorities_are_numbers_or_names(farm) -> None:
    assert [parse_priority(priority) for priority in ("low", "normal", "high", 3, -100)] == [
        -10,
        0,
        10,
        3,
        -100,
    ]
    for wrong in ("urgent", 101, -101):
        with pytest.raises(InvalidInputError) as refused:
            parse_priority(wrong)
        assert refused.value.code == "invalid-priority"
    farm.add_device()
    job = farm.submit(farm.ready_model(), trials=8)
    farm.run()
    with pytest.raises(ConflictError):
        change_job(farm.services, job.id, JobChange(priority=1))
