"""Traces, on both databases."""

from __future__ import annotations

from typing import Any

from sqlalchemy import text

from tunefarm_db.unit_of_work import UnitOfWork
from tunefarm_tuning.core.spans import Span, SpanKind


def test_a_job_shares_its_models_traces_and_old_ones_are_forgotten(uow: UnitOfWork, seed: Any) -> None:
    model, other = seed.model(), seed.model(sha256="b" * 64)
    job, sibling = seed.job(model), seed.job(model)
    noted = Span(name="step tune", kind=SpanKind.STEP, began=5.0, sec=1.5, process=3)
    with uow.write() as repos:
        upload = repos.traces.add(model_id=model.id, job_id=None, spans=[noted])
        own = repos.traces.add(model_id=model.id, job_id=job.id, spans=[noted, noted], dropped=4)
        repos.traces.add(model_id=model.id, job_id=sibling.id, spans=[])
        repos.traces.add(model_id=other.id, job_id=None, spans=[])
    with uow.read() as repos:
        assert repos.traces.of_job(job) == (upload, own)
        assert repos.traces.of_job(job, 1) == (upload,)
    assert own.dropped == 4
    assert [Span.from_json(span) for span in own.spans] == [noted, noted]
    with uow.write() as repos:
        repos._connection.execute(
            text("UPDATE traces SET created_at = created_at - 1000 WHERE job_id IS NULL")
        )
        assert repos.traces.forget(500, limit=1) == 1
        assert repos.traces.forget(500, limit=9) == 1
        assert repos.traces.forget(500, limit=9) == 0
        assert repos.traces.of_job(job) == (own,)
