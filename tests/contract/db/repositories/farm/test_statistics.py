"""Counters and statistics are exact, and cheap however long the history is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import event, text

from tunefarm_db import schema
from tunefarm_db.engine import make_engine
from tunefarm_db.repositories.farm.counters import Counter
from tunefarm_db.states.job import JobState
from tunefarm_db.unit_of_work import UnitOfWork
from tunefarm_db.values import DeviceState, StepKind, StepState
from tunefarm_tuning.core.errors import ConflictError


def test_trials_are_counted_with_their_transaction(uow: UnitOfWork, seed: Any, new_trial: Any) -> None:
    first, second = seed.job(), seed.job(seed=8)
    device = seed.device()
    for job in (first, second):
        with uow.write() as repos:
            trials = [new_trial(0), new_trial(1), new_trial(2, outcome="run-crash", cost_sec=None)]
            repos.trials.add_many(job.id, 1, trials, device_id=device.id)
    with pytest.raises(ConflictError), uow.write() as repos:
        # The last one was tried before: nothing of all this is kept.
        repos.trials.add_many(first.id, 2, [new_trial(8), new_trial(0)])
    with uow.read() as repos:
        counted = repos.counters.all()
    assert counted[Counter.TRIALS] == {"ok": 4, "run-crash": 2}
    assert counted[Counter.BUILD_SEC] == {"": pytest.approx(3.0)}
    assert counted[Counter.MEASURE_SEC] == {device.id: pytest.approx(1.2)}
    assert counted[Counter.LATE_WRITES] == {}


def test_the_migration_counts_what_is_there(database_url: str, seed: Any, new_trial: Any) -> None:
    job = seed.job()
    with seed.uow.write() as repos:
        repos.trials.add_many(job.id, 1, [new_trial(n) for n in range(5)])
    schema.downgrade(database_url, "0003")
    schema.upgrade(database_url)
    with seed.uow.write() as repos:
        assert repos.counters.all()[Counter.TRIALS] == {"ok": 5}
        assert repos.counters.all()[Counter.MEASURE_SEC] == {"": pytest.approx(1.0)}
        repos.trials.add_many(job.id, 2, [new_trial(7)])
        assert repos.counters.all()[Counter.TRIALS] == {"ok": 6}


def test_the_migration_of_an_empty_database(database_url: str) -> None:
    schema.upgrade(database_url)
    engine = make_engine(database_url)
    with UnitOfWork(engine).read() as repos:
        assert not any(repos.counters.all().values())
    engine.dispose()


def test_open_steps_jobs_and_devices(uow: UnitOfWork, seed: Any, expire: Any) -> None:
    job = seed.job()
    waiting, late, held, done = (seed.step(job, round=number) for number in range(4))
    device, removed = seed.device("a"), seed.newcomer("b")
    with uow.write() as repos:
        connection = repos._connection
        repos.steps.mark_sent([held.id])
        for step in (held, done):
            claimed = repos.steps.claim(step.id, "w", 9000.0)
        repos.steps.finish(done.id, claimed.fence)
        repos.devices.lease("cpu", "step:x", 9000.0)
        connection.execute(text("UPDATE devices SET state = 'removed' WHERE id = :id"), {"id": removed.id})
        connection.execute(
            text(
                "UPDATE steps SET not_before = not_before - 10000, created_at = created_at - 50000 WHERE id = :id"
            ),
            {"id": late.id},
        )
        connection.execute(
            text("UPDATE steps SET not_before = not_before + 100000 WHERE id = :id"), {"id": waiting.id}
        )
    with uow.read() as repos:
        ready, leased = sorted(repos.statistics.open_steps(), key=lambda count: count.state, reverse=True)
        assert repos.statistics.jobs_by_state() == {JobState.QUEUED: 1}
        (standing,) = repos.statistics.devices()
    assert (ready.kind, ready.state, ready.count) == (StepKind.TUNE, StepState.READY, 2)
    assert 10_000 <= ready.overdue_sec < 20_000
    assert 50_000 <= ready.oldest_sec < 60_000
    assert ready.lease_left_sec is None
    assert (leased.state, leased.count) == (StepState.LEASED, 1)
    assert leased.lease_left_sec is not None
    assert 0 < leased.lease_left_sec <= 9000
    assert 0 <= leased.sent_sec < 9000
    assert (standing.name, standing.state) == (device.name, DeviceState.ONLINE)
    assert standing.lease_left_sec is not None

    expire("devices", device.id)
    with uow.read() as repos:
        assert repos.statistics.devices()[0].lease_left_sec is None


@contextmanager
def queries(uow: UnitOfWork) -> Iterator[list[tuple[str, Any]]]:
    """Collect the queries of the block."""
    seen: list[tuple[str, Any]] = []

    def note(_connection: Any, _cursor: Any, sql: str, params: Any, *_: Any) -> None:
        seen.append((sql, params))

    event.listen(uow.engine, "before_cursor_execute", note)
    yield seen
    event.remove(uow.engine, "before_cursor_execute", note)


def test_the_size_of_the_database(uow: UnitOfWork) -> None:
    with uow.read() as repos:
        assert repos.statistics.database_bytes() > 10_000


@pytest.mark.exhaustive
def test_a_look_reads_no_history(uow: UnitOfWork, seed: Any, new_trial: Any) -> None:
    """10^5 trials and 2 * 10^4 finished steps: no query of a look goes through them."""
    job = seed.job()
    seed.step(job)
    with uow.write() as repos:
        repos.trials.add_many(job.id, 1, [new_trial(n) for n in range(100_000)])
        repos._connection.execute(
            text(
                "INSERT INTO steps (id, kind, subject_id, model_id, job_id, round, state, fence, attempts, "
                "not_before, created_at) SELECT 'x' || config_key, 'tune', :job, :model, :job, ordinal + 5, "
                "'done', 1, 1, 0, 0 FROM trials WHERE ordinal < 20000"
            ),
            {"job": job.id, "model": job.model_id},
        )
    with uow.engine.connect() as connection:
        connection.exec_driver_sql("ANALYZE")
    with queries(uow) as seen, uow.read() as repos:
        assert len(repos.statistics.open_steps()) == 1
        repos.statistics.jobs_by_state()
        repos.statistics.devices()
        assert repos.counters.all()[Counter.TRIALS] == {"ok": 100_000}
    explain = "EXPLAIN " if uow.engine.dialect.name == "postgresql" else "EXPLAIN QUERY PLAN "
    statements = [(sql, params) for sql, params in seen if sql.startswith("SELECT")]
    assert len(statements) == 4
    with uow.engine.connect() as connection:
        for sql, params in statements:
            assert "trials" not in sql.split("FROM")[1]
            plan = "\n".join(str(row) for row in connection.exec_driver_sql(explain + sql, params))
            if "FROM steps" in sql:
                assert "ix_steps_state_not_before" in plan, plan
