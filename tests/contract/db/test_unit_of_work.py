"""Transactions, errors and API keys."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy.exc import DBAPIError

from tunefarm_db.engine import make_engine
from tunefarm_db.unit_of_work import UnitOfWork
from tunefarm_tuning.core.errors import ConflictError, InvalidInputError, NotFoundError, TransientError


def test_an_exception_rolls_everything_back(uow: UnitOfWork) -> None:
    with pytest.raises(ZeroDivisionError), uow.write() as repos:  # noqa: PT012  (the write before is the point)
        repos.models.add(name="net", sha256="ab" * 32, size_bytes=1)
        raise ZeroDivisionError
    with uow.read() as repos:
        assert repos.models.list().items == ()


def test_reading_never_writes(uow: UnitOfWork) -> None:
    with pytest.raises((TransientError, DBAPIError)), uow.read() as repos:
        repos.models.add(name="net", sha256="ab" * 32, size_bytes=1)
    with uow.write() as repos:  # the connection went back to the pool able to write
        repos.models.add(name="net", sha256="ab" * 32, size_bytes=1)


def test_errors_name_the_rule_and_no_values(uow: UnitOfWork, seed: Any) -> None:
    seed.job(idempotency_key="a-secret")
    with pytest.raises(ConflictError) as refused:
        seed.job(idempotency_key="a-secret", seed=8)
    assert "idempotency_key" in refused.value.message
    assert "a-secret" not in refused.value.message


def test_a_number_that_no_answer_can_hold_is_null(uow: UnitOfWork, seed: Any) -> None:
    job = seed.job()
    with uow.engine.begin() as connection:
        connection.exec_driver_sql("""UPDATE jobs SET options = '{"a": [1e400, -1e999, 1e-400, 2.5, 7]}'""")
    with uow.read() as repos:
        assert repos.jobs.get(job.id).options == {"a": [None, None, 0.0, 2.5, 7]}


def test_read_then_write_waits_for_other_writers(uow: UnitOfWork, seed: Any) -> None:
    """SQLite refuses this at once unless the transaction began with BEGIN IMMEDIATE."""
    job = seed.job()
    failures: list[BaseException] = []

    def add_up() -> None:
        try:
            for _ in range(10):
                with uow.write() as repos:
                    present = repos.jobs.get(job.id, lock=True).trials
                    repos.jobs.update(job.id, trials=present + 1)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=add_up) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert failures == []
    with uow.read() as repos:
        assert repos.jobs.get(job.id).trials == 60


def test_a_value_that_cannot_be_stored(uow: UnitOfWork, seed: Any) -> None:
    """PostgreSQL takes no NUL in a text; SQLite does. Neither may fail as our own fault."""
    if uow.engine.dialect.name == "sqlite":
        assert seed.model(name="a\0b").name == "a\0b"
        return
    with pytest.raises(InvalidInputError) as refused:
        seed.model(name="a\0b")
    assert refused.value.code == "invalid-value"


def test_probe_write(uow: UnitOfWork) -> None:
    with uow.write() as repos:
        repos.probe_write()


def test_a_stand_by_says_that_it_takes_no_writes(new_postgres_url: Callable[[], str]) -> None:
    engine = make_engine(new_postgres_url() + "&options=-c%20default_transaction_read_only%3Don")
    with pytest.raises(TransientError) as refused, UnitOfWork(engine).read() as repos:
        repos.probe_write()
    assert refused.value.code == "database-read-only"
    engine.dispose()


def test_a_database_that_is_away_is_a_transient_error() -> None:
    for url in ("sqlite:////nowhere/at/all.db", "postgresql://nobody@127.0.0.1:1/none"):
        engine = make_engine(url)
        with pytest.raises(TransientError) as away, UnitOfWork(engine).read():
            pass
        assert away.value.code == "database-unavailable"
        engine.dispose()


def test_a_server_that_came_back_costs_no_request(
    new_postgres_url: Callable[[], str], postgres_server: str
) -> None:
    import psycopg

    engine = make_engine(new_postgres_url())
    uow = UnitOfWork(engine)
    with uow.read() as repos:
        assert repos.now() > 0
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(
            # With a time limit it waits until the connections are gone.
            "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE application_name = 'tunefarm'"
        )
    with uow.read() as repos:
        assert repos.now() > 0
    engine.dispose()


def test_api_keys(uow: UnitOfWork) -> None:
    with uow.write() as repos:
        key = repos.api_keys.add(key_id="a1", name="first", secret_sha256="00" * 32, scopes=["admin"])
        repos.api_keys.add(key_id="b2", name="second", secret_sha256="11" * 32, scopes=["read"])
        assert key.last_used_at is None
        repos.api_keys.touch("a1")
    with uow.write() as repos:
        used = repos.api_keys.find("a1")
        assert used is not None
        assert used.last_used_at is not None
        assert [k.id for k in repos.api_keys.list()] == ["a1", "b2"]
        revoked = repos.api_keys.revoke("a1")
        assert revoked.revoked_at is not None
        assert repos.api_keys.revoke("a1") == revoked
        assert repos.api_keys.find("c3") is None
        with pytest.raises(NotFoundError):
            repos.api_keys.revoke("c3")
    with pytest.raises(ConflictError), uow.write() as repos:
        repos.api_keys.add(key_id="a1", name="again", secret_sha256="22" * 32, scopes=[])


def test_a_full_disk_is_said_to_be_one(uow: UnitOfWork) -> None:
    with pytest.raises(TransientError) as full, uow.write() as repos:  # noqa: PT012  (one goes on with the other)
        execute = repos._connection.exec_driver_sql
        if uow.engine.dialect.name == "sqlite":
            execute("PRAGMA max_page_count = 1")  # it takes the number of pages that there are
            execute("CREATE TABLE more (text TEXT)")
            execute("INSERT INTO more SELECT hex(zeroblob(1000000))")
        else:
            execute("DO $$ BEGIN RAISE EXCEPTION 'no room' USING ERRCODE = 'disk_full'; END $$")
    assert full.value.code == "database-full"
