"""The rows that retention finds, on both databases; tests/unit/app/operations/test_retention.py tests what it does."""

from __future__ import annotations

from typing import Any

from sqlalchemy import text

from tunefarm_db.states.job import JobState
from tunefarm_db.unit_of_work import UnitOfWork


def ready(uow: UnitOfWork, model_id: str) -> None:
    with uow.write() as repos:
        repos.models.set_ready(model_id, inputs=[], outputs=[], operators=[], opset=17, num_params=1)


def test_unused_models_and_old_artifacts(uow: UnitOfWork, seed: Any) -> None:
    unused, busy, lately, importing = (seed.model(sha256=letter * 64) for letter in "abcd")
    for model in (unused, busy, lately):
        ready(uow, model.id)
    seed.job(busy)
    job = seed.job(lately)
    with uow.write() as repos:
        repos.blobs.add("e" * 64, size_bytes=1, media_type="x")
        repos.artifacts.add(job_id=job.id, sha256="e" * 64, size_bytes=1, name="a", manifest={}, report={})
        repos.jobs.move(job.id, JobState.CANCELLED)
        for table in ("models", "artifacts"):
            repos._connection.execute(text(f"UPDATE {table} SET created_at = created_at - 1000"))
        repos._connection.execute(text("UPDATE models SET updated_at = updated_at - 1000"))
    with uow.read() as repos:
        assert [model.id for model in repos.retention.unused_models(500, limit=9)] == [unused.id]
        assert repos.retention.unused_models(5000, limit=9) == ()
        assert repos.retention.unused_models(500, after=unused.id, limit=9) == ()
        assert repos.retention.old_artifacts(500) == ("e" * 64,)
        assert repos.retention.old_artifacts(5000) == ()
        assert not repos.retention.is_needed("e" * 64, 500)
        assert repos.retention.is_needed("e" * 64, 5000)
        assert repos.retention.is_needed(importing.sha256, 500)


def test_failures_that_still_say_why(uow: UnitOfWork, seed: Any, new_trial: Any) -> None:
    model = seed.model()
    job, at_work = seed.job(model), seed.job(model)
    with uow.write() as repos:
        for number, owner in enumerate((job, at_work)):
            trials = [
                new_trial(ordinal=0, config_key="a", outcome="ok", message="a remark"),
                new_trial(ordinal=1, config_key="b", outcome="build-error", message="no"),
                new_trial(ordinal=2, config_key="c", outcome="run-crash", message=""),
                new_trial(ordinal=3, config_key="d", outcome="run-crash", message="SIGSEGV"),
            ]
            ids = repos.trials.add_many(owner.id, number, trials)
            if owner is job:
                wanted = (ids[1], ids[3])
        repos.jobs.move(job.id, JobState.CANCELLED)
        repos._connection.execute(text("UPDATE jobs SET finished_at = finished_at - 1000"))
    with uow.write() as repos:
        assert repos.retention.failures_with_messages(5000, limit=9) == ((), ())
        assert repos.retention.failures_with_messages(500, limit=9) == (wanted, ())
        assert repos.retention.failures_with_messages(500, limit=1) == (wanted[:1], ())
        assert repos.retention.failures_with_messages(500, trials_after=wanted[0], limit=9) == (
            wanted[1:],
            (),
        )
        repos.retention.forget_messages(wanted, ())
        assert repos.retention.failures_with_messages(500, limit=9) == ((), ())
        kept = [trial.message for trial in repos.trials.page(at_work.id, limit=9).items]
        assert kept == ["a remark", "no", "", "SIGSEGV"]
