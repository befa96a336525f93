"""PostgreSQL ends the session of a process that freezes in a transaction, so that others continue."""

from __future__ import annotations

import pytest
from sqlalchemy import text
from waiting import wait_until

from tunefarm_db.engine import IDLE_IN_TRANSACTION_MS, make_engine
from tunefarm_db.unit_of_work import UnitOfWork
from tunefarm_tuning.core.errors import TransientError


def test_the_server_ends_a_transaction_that_nobody_works_at(new_postgres_url) -> None:
    engine = make_engine(new_postgres_url())
    with engine.connect() as other:
        shown = other.execute(text("SHOW idle_in_transaction_session_timeout")).scalar_one()
        assert shown == f"{IDLE_IN_TRANSACTION_MS // 1000}s"
        other.rollback()

        def sessions() -> int:
            query = text("SELECT count(*) FROM pg_stat_activity WHERE pid = :pid")
            number = int(other.execute(query, {"pid": pid}).scalar_one())
            other.rollback()
            return number

        def sleep_in_a_transaction() -> None:
            nonlocal pid
            with UnitOfWork(engine).write() as repos:
                frozen = repos.jobs._connection
                pid = frozen.execute(text("SELECT pg_backend_pid()")).scalar_one()
                frozen.execute(text("SET idle_in_transaction_session_timeout = 50"))
                wait_until(lambda: sessions() == 0, "the server to end the session")
                repos.now()

        pid = 0
        with pytest.raises(TransientError):
            sleep_in_a_transaction()
    with UnitOfWork(engine).read() as repos:
        assert repos.now() > 0
    engine.dispose()
