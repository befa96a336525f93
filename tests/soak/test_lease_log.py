"""The audit log would record overlapping leases and second commits."""

from __future__ import annotations

import lease_log

from tunefarm_db import schema
from tunefarm_db.engine import make_engine
from tunefarm_db.unit_of_work import UnitOfWork
from tunefarm_db.values import StepKind


def test_it_sees_what_must_not_be(database_url: str) -> None:
    schema.upgrade(database_url)
    engine = make_engine(database_url)
    uow = UnitOfWork(engine)
    lease_log.install(engine)
    with uow.write() as repos:
        model = repos.models.add(name="m", sha256="0" * 64, size_bytes=1)
        step = repos.steps.add(StepKind.IMPORT, subject_id=model.id, model_id=model.id)
        repos.steps.claim(step.id, "first", 60.0)
        repos.steps.release(step.id, 1)
        repos.steps.claim(step.id, "second", 60.0)
    log = lease_log.read(engine)
    assert (log.leases, log.overlapping, log.committed_twice) == ({"steps": 2}, [], [])
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE steps SET fence = fence + 1, lease_owner = 'third'")
        for state in ("done", "ready", "done"):
            connection.exec_driver_sql(f"UPDATE steps SET state = '{state}'")
    log = lease_log.read(engine)
    assert (log.overlapping, log.committed_twice) == ([("steps", step.id, 3)], [step.id])
    assert log.out_of_turn == []
    with engine.begin() as connection:
        insert = "INSERT INTO lease_log (what, subject, fence, owner, beside) VALUES ('devices', 'dev', 9, '{}', 0)"
        for owner in (f"step:{step.id}", "step:other"):
            connection.exec_driver_sql(insert.format(owner))
        for state in ("ready", "done"):
            connection.exec_driver_sql(f"UPDATE steps SET state = '{state}'")
    assert lease_log.read(engine).out_of_turn == [step.id]
    engine.dispose()
