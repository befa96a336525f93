"""Jobs, their tasks, events and artifacts."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from tunefarm_db.repositories.jobs.job_tasks import NewJobTask
from tunefarm_db.states.job import TRANSITIONS, JobState
from tunefarm_db.unit_of_work import UnitOfWork
from tunefarm_db.values import Job, TaskCounts, Workload
from tunefarm_tuning.core.errors import ConflictError, InvalidInputError, NotFoundError


def drive(uow: UnitOfWork, job: Job, to: JobState) -> None:
    """Take the job to `to` by the shortest way."""
    paths: list[list[JobState]] = [[JobState.QUEUED]]
    while paths[0][-1] is not to:
        path = paths.pop(0)
        paths += [[*path, state] for state in sorted(TRANSITIONS[path[-1]])]
    with uow.write() as repos:
        for state in paths[0][1:]:
            repos.jobs.move(job.id, state)


@pytest.mark.matrix(every=2)
@pytest.mark.parametrize("origin", list(JobState))
def test_states_change_by_the_table_alone(uow: UnitOfWork, seed: Any, origin: JobState) -> None:
    model = seed.model()
    for to in JobState:
        job = seed.job(model)
        drive(uow, job, origin)
        if to in TRANSITIONS[origin]:
            with uow.write() as repos:
                moved = repos.jobs.move(job.id, to, stop_reason="trials")
            assert (moved.state, moved.stop_reason) == (to, "trials")
            assert (moved.finished_at is not None) is to.is_finished
        else:
            with pytest.raises(ConflictError) as refused, uow.write() as repos:
                repos.jobs.move(job.id, to, stop_reason="trials")
            assert refused.value.fields == {"state": origin.value}
            with uow.read() as repos:
                assert repos.jobs.get(job.id).stop_reason is None


def test_move_can_insist_on_one_state(uow: UnitOfWork, seed: Any) -> None:
    job = seed.job()
    with pytest.raises(ConflictError), uow.write() as repos:
        repos.jobs.move(job.id, JobState.FAILED, expected=JobState.TUNING)
    with uow.write() as repos:
        assert repos.jobs.move(job.id, JobState.FAILED, expected=JobState.QUEUED).state is JobState.FAILED
    with pytest.raises(NotFoundError), uow.write() as repos:
        repos.jobs.move("job_nothing", JobState.FAILED)


def test_of_two_movers_one_wins(uow: UnitOfWork, seed: Any) -> None:
    job = seed.job()

    def move() -> bool:
        try:
            with uow.write() as repos:
                repos.jobs.move(job.id, JobState.EXTRACTING)
        except ConflictError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(lambda _: move(), range(8))) == 1


def test_update_changes_what_is_named(uow: UnitOfWork, seed: Any) -> None:
    job = seed.job(options={"verify": True})
    with uow.write() as repos:
        changed = repos.jobs.update(job.id, trials=8, best_latency_sec=0.5, progress={"phase": "tuning"})
        assert repos.jobs.update(job.id) == changed
    assert (changed.trials, changed.best_latency_sec, changed.options) == (8, 0.5, {"verify": True})
    assert changed.updated_at >= job.updated_at
    with uow.write() as repos:
        assert repos.jobs.update(job.id, best_latency_sec=None).best_latency_sec is None


def test_a_finished_job_stays_as_it_is(uow: UnitOfWork, seed: Any) -> None:
    job = seed.job()
    drive(uow, job, JobState.CANCELLED)
    with pytest.raises(ConflictError), uow.write() as repos:
        repos.jobs.update(job.id, trials=8)
    with uow.write() as repos:
        assert not repos.jobs.request_cancel(job.id).cancel_requested


def test_cancel_is_a_request(uow: UnitOfWork, seed: Any) -> None:
    job = seed.job()
    other = seed.job(seed=8)
    with uow.write() as repos:
        assert repos.jobs.request_cancel(job.id).cancel_requested
    with uow.read() as repos:
        assert [j.id for j in repos.jobs.open(cancel_requested=True)] == [job.id]
        assert [j.id for j in repos.jobs.open(cancel_requested=False)] == [other.id]
        assert [j.id for j in repos.jobs.open(model_id=job.model_id)] == [job.id]
    with pytest.raises(NotFoundError), uow.write() as repos:
        repos.jobs.request_cancel("job_nothing")


def test_an_idempotency_key_is_for_one_job(uow: UnitOfWork, seed: Any) -> None:
    job = seed.job(idempotency_key="k1", request_digest="d1")
    with uow.read() as repos:
        assert repos.jobs.find_by_idempotency_key("k1") == job
        assert repos.jobs.find_by_idempotency_key("k2") is None
    with pytest.raises(ConflictError):
        seed.job(idempotency_key="k1")
    with uow.read() as repos:
        model = repos.models.get(job.model_id)
    assert {seed.job(model).id for _ in range(2)}  # keys are optional


def test_list_filters_and_pages(uow: UnitOfWork, seed: Any) -> None:
    model = seed.model()
    jobs = [seed.job(model, seed=n) for n in range(5)]
    foreign = seed.job(seed=9)
    drive(uow, jobs[1], JobState.FAILED)
    with uow.read() as repos:
        first = repos.jobs.list(model_id=model.id, limit=3)
        assert [j.id for j in first.items] == [j.id for j in jobs[:1:-1]]
        second = repos.jobs.list(model_id=model.id, limit=3, cursor=first.next_cursor)
        assert [j.id for j in second.items] == [jobs[1].id, jobs[0].id]
        assert second.next_cursor is None
        assert [j.id for j in repos.jobs.list(state=JobState.FAILED).items] == [jobs[1].id]
        assert repos.jobs.list(limit=1).items[0].id == foreign.id
        for limit in (0, 501):
            with pytest.raises(InvalidInputError):
                repos.jobs.list(limit=limit)


def test_tasks_of_a_job(uow: UnitOfWork, seed: Any) -> None:
    job = seed.job()
    with uow.write() as repos:
        repos.workloads.add_many(
            [Workload(key="w1", toolchain="t", name="conv", flops=1.0, args=[], ir="{}")],
        )
        task = NewJobTask(workload_key="w1", toolchain="t", weight=3, name="conv")
        repos.jobs.add_tasks(job.id, [replace(task, alternative={"algorithm": "winograd-4"}), task])
    with uow.write() as repos:
        changed = repos.jobs.update_task(
            job.id, 1, space_key="s1", rounds=1, exhausted=True, history=[[8, None], [16, 1e-3]]
        )
        assert repos.jobs.update_task(job.id, 1) == changed
    with uow.read() as repos:
        untouched, second = repos.jobs.tasks(job.id)
    assert second == changed
    assert (untouched.alternative, second.alternative) == ({"algorithm": "winograd-4"}, None)
    assert (second.weight, second.history, second.exhausted) == (3, [[8, None], [16, 1e-3]], True)
    with uow.read() as repos:
        assert repos.jobs.count_tasks([job.id, "job_nothing"]) == {
            job.id: TaskCounts(kernels=1, alternatives=1)
        }
    with uow.write() as repos:
        repos.jobs.update_task(job.id, 0, best_cost_sec=1e-3)
        assert repos.jobs.count_tasks([job.id]) == {
            job.id: TaskCounts(kernels=1, alternatives=1, alternatives_measured=1)
        }
    assert (untouched.position, untouched.space_key, untouched.trials, untouched.exhausted) == (
        0,
        None,
        0,
        False,
    )
    with pytest.raises(NotFoundError), uow.write() as repos:
        repos.jobs.update_task(job.id, 2, rounds=1)
    with pytest.raises(ConflictError), uow.write() as repos:
        repos.jobs.add_tasks(job.id, [task])


def test_events_are_numbered_without_gaps(uow: UnitOfWork, seed: Any) -> None:
    job, other = seed.job(), seed.job(seed=8)

    def add(number: int) -> None:
        with uow.write() as repos:
            repos.events.add(job.id, "trial", {"number": number})

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add, range(20)))
    with uow.write() as repos:
        assert repos.events.add(other.id, "queued", {}).seq == 1
    with uow.read() as repos:
        events = repos.events.after(job.id)
        assert [e.seq for e in events] == list(range(1, 21))
        assert sorted(e.data["number"] for e in events) == list(range(20))
        assert [e.seq for e in repos.events.after(job.id, 15, limit=2)] == [16, 17]
        assert repos.jobs.get(job.id).event_seq == 20
    with pytest.raises(NotFoundError), uow.write() as repos:
        repos.events.add("job_nothing", "x", {})


def test_a_job_has_one_artifact(uow: UnitOfWork, seed: Any) -> None:
    job = seed.job()
    fields: dict[str, Any] = {
        "job_id": job.id,
        "sha256": "cd" * 32,
        "size_bytes": 5 << 30,
        "name": "net.tunefarm",
        "manifest": {"version": 1},
        "report": {"checks": []},
    }
    with pytest.raises(ConflictError), uow.write() as repos:
        repos.artifacts.add(**fields)  # its blob is not noted
    with uow.write() as repos:
        repos.blobs.add("cd" * 32, size_bytes=5 << 30, media_type="application/zip")
        artifact = repos.artifacts.add(**fields)
        assert repos.blobs.is_referenced("cd" * 32)
    with uow.read() as repos:
        assert repos.artifacts.for_job(job.id) == artifact
        assert repos.artifacts.for_job("job_nothing") is None
    with pytest.raises(ConflictError), uow.write() as repos:
        repos.artifacts.add(**fields)
