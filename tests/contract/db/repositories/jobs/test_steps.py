"""The queue of steps: claims, leases, fences."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tunefarm_db.repositories.jobs.turns import Ahead, Rivals
from tunefarm_db.states.job import JobState
from tunefarm_db.unit_of_work import UnitOfWork
from tunefarm_db.values import StepKind, StepState
from tunefarm_tuning.core.errors import ConflictError, InvariantError, LeaseLostError, NotFoundError

LEASE_SEC = 600.0  # no test waits for one to end


def test_a_step_is_planned_once(uow: UnitOfWork, seed: Any) -> None:
    step = seed.step()
    assert (step.state, step.fence, step.attempts) == (StepState.READY, 0, 0)
    with pytest.raises(ConflictError), uow.write() as repos:
        repos.steps.add(StepKind.TUNE, subject_id=step.subject_id, model_id=step.model_id)
    with uow.write() as repos:
        later = repos.steps.add(
            StepKind.TUNE, subject_id=step.subject_id, model_id=step.model_id, job_id=step.job_id, round=1
        )
    with uow.read() as repos:
        assert repos.steps.find(StepKind.TUNE, step.subject_id, 1) == later
        assert repos.steps.find(StepKind.COMPILE, step.subject_id) is None
        assert repos.steps.for_job(step.job_id or "") == (step, later)
        assert repos.steps.get(step.id) == step
        with pytest.raises(NotFoundError):
            repos.steps.get("stp_nothing")


def test_what_was_planned_earlier_and_waits_is_counted(uow: UnitOfWork, seed: Any) -> None:
    model = seed.model()
    steps = [seed.step(seed.job(model, seed=n)) for n in range(3)]
    with uow.read() as repos:
        assert [repos.steps.ready_before(step) for step in steps] == [0, 1, 2]
    with uow.write() as repos:
        assert repos.steps.claim(steps[0].id, "a", LEASE_SEC)
        other = repos.steps.add(StepKind.IMPORT, subject_id=steps[0].model_id, model_id=steps[0].model_id)
    with uow.read() as repos:
        assert [repos.steps.ready_before(step) for step in steps[1:]] == [0, 1]
        assert repos.steps.ready_before(other) == 0, "another kind"


def test_claim_takes_it_from_all_others(uow: UnitOfWork, seed: Any) -> None:
    step = seed.step()
    with uow.write() as repos:
        held = repos.steps.claim(step.id, "a", LEASE_SEC)
    assert held is not None
    assert (held.state, held.fence, held.attempts, held.lease_owner) == (StepState.LEASED, 1, 1, "a")
    with uow.write() as repos:
        assert repos.steps.claim(step.id, "b", LEASE_SEC) is None
        assert repos.steps.claim("stp_nothing", "b", LEASE_SEC) is None
        assert repos.steps.renew(step.id, 1, LEASE_SEC)
        assert not repos.steps.renew(step.id, 0, LEASE_SEC)
        assert repos.steps.finish(step.id, 1).state is StepState.DONE
        assert repos.steps.claim(step.id, "b", LEASE_SEC) is None


def test_of_many_claimers_one_wins(uow: UnitOfWork, seed: Any) -> None:
    model = seed.model()
    jobs = [seed.job(model, seed=n) for n in range(5)]
    steps = [seed.step(job) for job in jobs]
    start = threading.Barrier(8)

    def work(owner: int) -> list[str]:
        won = []
        start.wait(60)
        for step in steps:
            with uow.write() as repos:
                claimed = repos.steps.claim(step.id, f"w{owner}", LEASE_SEC)
            won += [claimed.id] if claimed else []
        return won

    with ThreadPoolExecutor(8) as pool:
        won = [step_id for ids in pool.map(work, range(8)) for step_id in ids]
    assert sorted(won) == sorted(step.id for step in steps)
    with uow.read() as repos:
        assert {repos.steps.get(step.id).fence for step in steps} == {1}
        assert [(steps.state, steps.count) for steps in repos.statistics.open_steps()] == [
            (StepState.LEASED, 5)
        ]


def test_a_late_write_is_refused_and_nothing_of_it_stays(uow: UnitOfWork, seed: Any, expire: Any) -> None:
    step = seed.step()
    with uow.write() as repos:
        repos.steps.claim(step.id, "zombie", LEASE_SEC)
    expire("steps", step.id)
    with uow.write() as repos:
        fresh = repos.steps.claim(step.id, "b", LEASE_SEC)
    assert fresh is not None
    assert (fresh.fence, fresh.attempts) == (2, 2)

    assert step.job_id is not None
    for late in ("finish", "lock_claimed", "release"):
        with pytest.raises(LeaseLostError), uow.write() as repos:  # noqa: PT012  (the write before is the point)
            repos.events.add(step.job_id, "late", {})
            getattr(repos.steps, late)(step.id, 1)
    with uow.write() as repos:
        assert repos.events.after(step.job_id) == ()
        assert not repos.steps.renew(step.id, 1, LEASE_SEC)
        assert repos.steps.get(step.id) == fresh
        assert repos.steps.lock_claimed(step.id, 2) == fresh
        assert repos.steps.finish(step.id, 2).state is StepState.DONE


def test_an_expired_lease_nobody_took_can_still_be_used(uow: UnitOfWork, seed: Any, expire: Any) -> None:
    """Late, but exclusive: the work is good."""
    step = seed.step()
    with uow.write() as repos:
        repos.steps.claim(step.id, "a", LEASE_SEC)
    expire("steps", step.id)
    with uow.write() as repos:
        assert repos.steps.renew(step.id, 1, LEASE_SEC)
        assert repos.steps.finish(step.id, 1).state is StepState.DONE


def test_release_hands_it_back(uow: UnitOfWork, seed: Any) -> None:
    step = seed.step()
    with uow.write() as repos:
        repos.steps.claim(step.id, "a", LEASE_SEC)
        free = repos.steps.release(step.id, 1)
        assert (free.state, free.attempts, free.lease_owner) == (StepState.READY, 0, None)
        repos.steps.claim(step.id, "a", LEASE_SEC)
        error = {"kind": "TransientError", "code": "x", "message": "", "fields": {}}
        tried = repos.steps.release(step.id, 2, delay_sec=3600, count_attempt=True, error=error)
        assert (tried.state, tried.attempts, tried.error) == (StepState.READY, 1, error)
        assert repos.steps.claim(step.id, "a", LEASE_SEC) is None, "not due for an hour"
        assert repos.steps.due() == ()


def test_finish_takes_a_final_state(uow: UnitOfWork, seed: Any) -> None:
    step = seed.step()
    with uow.write() as repos:
        repos.steps.claim(step.id, "a", LEASE_SEC)
        with pytest.raises(InvariantError):
            repos.steps.finish(step.id, 1, state=StepState.READY)
        failed = repos.steps.finish(step.id, 1, state=StepState.FAILED, error={"code": "x"})
    assert (failed.state, failed.error, failed.lease_until) == (StepState.FAILED, {"code": "x"}, None)
    assert failed.finished_at is not None


def test_due_steps_are_sent_once_in_a_while(uow: UnitOfWork, seed: Any) -> None:
    job = seed.job()
    first = seed.step(job, kind=StepKind.EXTRACT)
    second = seed.step(job, kind=StepKind.TUNE)
    seed.step(job, kind=StepKind.COMPILE, delay_sec=3600)
    with uow.write() as repos:
        assert [s.id for s in repos.steps.due()] == [first.id, second.id]
        assert [s.id for s in repos.steps.due(1)] == [first.id]
        repos.steps.mark_sent([first.id])
        repos.steps.mark_sent([])
        assert [s.id for s in repos.steps.due()] == [second.id]
        assert [s.id for s in repos.steps.due(resend_after_sec=-1.0)] == [first.id, second.id]


def test_whose_turn_it_is(uow: UnitOfWork, seed: Any) -> None:
    model = seed.model()
    jobs = [seed.job(model, seed=n) for n in range(3)]
    foreign = seed.job(model, device_key="other")
    seed.step(foreign, delay_sec=3600)
    seed.step(jobs[0], kind=StepKind.EXTRACT)  # needs no device
    first, second = (seed.step(job, delay_sec=3600) for job in jobs[1:])
    with uow.write() as repos:
        assert repos.turns.next_of("cpu") == (first,)  # equal in all: the older one
        assert repos.turns.next_of("gpu") == ()
        assert repos.turns.ahead_of(jobs[1].id, "cpu") == Ahead(higher=0, total=0)
        assert repos.turns.ahead_of(jobs[2].id, "cpu") == Ahead(higher=0, total=1)
        repos.jobs.charge(jobs[1].id, 5.0)
        assert repos.turns.next_of("cpu") == (second,)  # had less device time
        assert repos.turns.ahead_of(jobs[1].id, "cpu") == Ahead(higher=0, total=1)
        repos.jobs.update(jobs[1].id, priority=1)
        assert repos.turns.next_of("cpu") == (first,)
        assert repos.turns.ahead_of(jobs[2].id, "cpu") == Ahead(higher=1, total=1)
        assert repos.turns.ahead_of(foreign.id, "cpu").total == 2
        assert repos.turns.ahead_of(foreign.id, "gpu").total == 0
        repos.jobs.update(jobs[1].id, priority=0)
        repos.jobs.charge(jobs[1].id, -9.0)  # a clock that went back
        repos.jobs.charge(jobs[2].id, 9.0)
        woken = repos.steps.expedite(first.id)
        assert woken is not None
        assert woken.sent_at is not None
        assert repos.steps.claim(first.id, "a", LEASE_SEC) is not None
        assert repos.steps.expedite(first.id) is None
        assert repos.turns.next_of("cpu") == (second,)
        assert repos.steps.claim(second.id, "a", LEASE_SEC) is None  # not due
        repos.steps.expedite(second.id)
        claimed = repos.steps.claim(second.id, "a", LEASE_SEC)
        assert claimed is not None
        repos.steps.release(second.id, claimed.fence, delay_sec=3600, count_attempt=True, error={"code": "x"})
        assert repos.turns.next_of("cpu") == ()  # it waits for its back-off


def test_which_jobs_have_a_step_in_trouble(uow: UnitOfWork, seed: Any) -> None:
    job = seed.job()
    good, bad = (seed.step(job, round=number) for number in range(2))
    with uow.write() as repos:
        assert not repos.steps.in_trouble(job.id)
        fences = [repos.steps.claim(step.id, "me", LEASE_SEC).fence for step in (good, bad)]
        assert not repos.steps.in_trouble(job.id), "they are at their first try"
        repos.steps.release(good.id, fences[0])
        assert not repos.steps.in_trouble(job.id), "it waits for a device, say"
        repos.steps.release(bad.id, fences[1], count_attempt=True, error={"code": "x"})
        assert repos.steps.in_trouble(job.id)
        again = repos.steps.claim(bad.id, "me", LEASE_SEC)
        assert repos.steps.in_trouble(job.id)
        repos.steps.finish(bad.id, again.fence)
        assert not repos.steps.in_trouble(job.id)


def test_a_newcomer_begins_with_the_least_of_those_it_takes_turns_with(uow: UnitOfWork, seed: Any) -> None:
    model = seed.model()
    old, older, done, urgent, foreign, new = (seed.job(model, seed=n) for n in range(6))
    with uow.write() as repos:
        for job, sec in ((old, 50.0), (older, 70.0), (done, 1.0), (urgent, 2.0), (foreign, 3.0)):
            for state in (JobState.EXTRACTING, JobState.TUNING):
                repos.jobs.move(job.id, state)
            repos.jobs.charge(job.id, sec)
        repos.jobs.move(done.id, JobState.CANCELLED)
        repos.jobs.update(urgent.id, priority=5)
        repos.jobs.move(foreign.id, JobState.PAUSED)
        repos.jobs.catch_up(new.id)
        assert repos.jobs.get(new.id).turn_sec == 50.0
        repos.jobs.catch_up(older.id)
        assert repos.jobs.get(older.id).turn_sec == 70.0  # nobody is put back
        repos.jobs.catch_up(urgent.id)
        assert repos.jobs.get(urgent.id).turn_sec == 2.0  # alone with its priority


def test_the_open_step_of_a_job(uow: UnitOfWork, seed: Any) -> None:
    model = seed.model()
    first, two, none = (seed.job(model, seed=n) for n in range(3))
    with uow.write() as repos:
        done = repos.steps.claim(seed_step(repos, first, 0).id, "a", LEASE_SEC)
        assert done is not None
        repos.steps.finish(done.id, done.fence)
        following = seed_step(repos, first, 1)
        paused = seed_step(repos, two, 0)
        repos.steps.pause(two.id)
        open_steps = repos.steps.open_of([first.id, two.id, none.id])
    assert {job: step.id for job, step in open_steps.items()} == {first.id: following.id, two.id: paused.id}


def test_the_next_round_of_a_kind(uow: UnitOfWork, seed: Any) -> None:
    job = seed.job()
    with uow.write() as repos:
        assert repos.steps.next_round(StepKind.TUNE, job.id) == 0
        for number in (0, 1, 5):
            seed_step(repos, job, number)
        assert repos.steps.next_round(StepKind.TUNE, job.id) == 6
        assert repos.steps.next_round(StepKind.COMPILE, job.id) == 0


def test_a_failed_step_is_opened_again(uow: UnitOfWork, seed: Any) -> None:
    job = seed.job()
    with uow.write() as repos:
        step = seed_step(repos, job, 0)
        assert repos.steps.newest_failed(job.id) is None
        assert repos.steps.reopen(step.id) is None
        claimed = repos.steps.claim(step.id, "a", LEASE_SEC)
        assert claimed is not None
        repos.steps.finish(step.id, claimed.fence, state=StepState.FAILED, error={"code": "x"})
    with uow.write() as repos:
        failed = repos.steps.newest_failed(job.id)
        assert failed is not None
        opened = repos.steps.reopen(failed.id)
        assert opened is not None
        assert (opened.state, opened.attempts, opened.error) == (StepState.READY, 0, None)
        assert (opened.finished_at, opened.fence) == (None, claimed.fence)
        assert [opened.id for opened in repos.steps.lock_open(job.id)] == [step.id]
        again = repos.steps.claim(step.id, "b", LEASE_SEC)
        assert again is not None
        assert again.fence == claimed.fence + 1


def seed_step(repos: Any, job: Any, number: int) -> Any:
    return repos.steps.add(
        StepKind.TUNE, subject_id=job.id, model_id=job.model_id, job_id=job.id, round=number
    )


def test_expired_leases_are_reaped(uow: UnitOfWork, seed: Any, expire: Any) -> None:
    model = seed.model()
    alive, dead = (seed.step(seed.job(model, seed=n)) for n in range(2))
    with uow.write() as repos:
        for step in (alive, dead):
            repos.steps.claim(step.id, "a", LEASE_SEC)
        assert repos.steps.reap_expired(3) == ()
    expire("steps", dead.id)
    with uow.write() as repos:
        (reaped,) = repos.steps.reap_expired(3)
        assert (reaped.id, reaped.state, reaped.attempts) == (dead.id, StepState.READY, 1)
        assert [s.id for s in repos.steps.due()] == [dead.id]
        assert repos.steps.reap_expired(3) == ()
        with pytest.raises(LeaseLostError):
            repos.steps.lock_claimed(dead.id, 1)


def test_a_step_that_kills_its_workers_fails_at_last(uow: UnitOfWork, seed: Any, expire: Any) -> None:
    step = seed.step()
    for attempt in range(3):
        with uow.write() as repos:
            claimed = repos.steps.claim(step.id, "a", LEASE_SEC, max_attempts=3)
        assert claimed is not None, attempt
        expire("steps", step.id)
    with uow.write() as repos:
        assert repos.steps.claim(step.id, "a", LEASE_SEC, max_attempts=3) is None
        (failed,) = repos.steps.reap_expired(3)
        assert failed.state is StepState.FAILED
        assert failed.error is not None
        assert failed.error["code"] == "step-abandoned"
        assert repos.steps.reap_expired(3) == ()


def test_a_step_that_was_handed_back_too_often_fails_with_its_own_error(uow: UnitOfWork, seed: Any) -> None:
    step = seed.step()
    with uow.write() as repos:
        for fence in (1, 2, 3):
            repos.steps.claim(step.id, "a", LEASE_SEC)
            repos.steps.release(step.id, fence, count_attempt=True, error={"code": "device-lost"})
        (failed,) = repos.steps.reap_expired(3)
    assert (failed.state, failed.error) == (StepState.FAILED, {"code": "device-lost"})


def test_cancel_takes_the_lease_away(uow: UnitOfWork, seed: Any) -> None:
    job = seed.job()
    done, leased, ready = (seed.step(job, round=n) for n in range(3))
    with uow.write() as repos:
        repos.steps.claim(done.id, "a", LEASE_SEC)
        repos.steps.finish(done.id, 1)
        repos.steps.claim(leased.id, "a", LEASE_SEC)
        cancelled = repos.steps.cancel_open(job_id=job.id)
        assert {s.id for s in cancelled} == {leased.id, ready.id}
        assert not repos.steps.renew(leased.id, 1, LEASE_SEC)
        assert repos.steps.claim(ready.id, "a", LEASE_SEC) is None
        assert repos.steps.get(done.id).state is StepState.DONE
        assert repos.steps.cancel_open(subject_id=job.id) == ()
        with pytest.raises(InvariantError):
            repos.steps.cancel_open()
    with pytest.raises(LeaseLostError), uow.write() as repos:
        repos.steps.finish(leased.id, 1)


def test_what_the_tracks_of_a_job_are_at(uow: UnitOfWork, seed: Any) -> None:
    job, other = seed.job(), seed.job(seed=9)
    with uow.write() as repos:
        steps = [seed_step(repos, job, number) for number in range(4)]
        seed_step(repos, other, 0)
        assert not repos.steps.at_work(job.id)
        held = [repos.steps.claim(step.id, "a", LEASE_SEC) for step in steps[:2]]
        assert repos.steps.at_work(job.id)
        assert held[0] is not None
        assert held[1] is not None
        repos.steps.note_in_flight(held[0].id, held[0].fence, {"position": 3})
        assert repos.steps.in_flight(job.id) == {steps[0].id: {"position": 3}}
        assert repos.steps.open_ids(job.id) == {step.id for step in steps}
        assert repos.steps.open_of([job.id])[job.id].state is StepState.LEASED
        repos.steps.cancel_ready(job.id)
        assert repos.steps.open_ids(job.id) == {step.id for step in steps[:2]}
        assert repos.steps.open_ids(other.id)
        repos.steps.release(held[0].id, held[0].fence)
        assert repos.steps.in_flight(job.id) == {}
        with pytest.raises(LeaseLostError):
            repos.steps.note_in_flight(held[0].id, held[0].fence, {"position": 3})


def test_whom_a_job_shares_its_devices_with(uow: UnitOfWork, seed: Any) -> None:
    jobs = [seed.job(seed=number) for number in range(4)]
    with uow.write() as repos:
        for job, priority in zip(jobs, (0, 0, 0, 5), strict=True):
            repos.jobs.update(job.id, priority=priority)
            repos.jobs.move(job.id, JobState.EXTRACTING)
            seed_step(repos, job, 0)
        for job in jobs[1:]:
            repos.jobs.move(job.id, JobState.TUNING)
        mine = repos.jobs.get(jobs[0].id)
        assert repos.turns.rivals(mine) == Rivals(higher=1, equal=2)
        assert repos.turns.rivals(repos.jobs.get(jobs[3].id)) == Rivals(higher=0, equal=0)
        assert repos.turns.waiting(mine.device_key) == 4
        assert repos.turns.waiting("no such pool") == 0
