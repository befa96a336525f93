"""Sources of kernels: requested, made by a step, kept, deleted; and the reasons for their absence."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import text

from tunefarm_app.engines.replay import ReplayEngine
from tunefarm_app.engines.scenario import Scenario
from tunefarm_app.jobs.control import cancel_job
from tunefarm_app.models.removal import sweep_blobs
from tunefarm_app.operations.backup import back_up, restore
from tunefarm_app.operations.reconcile import reap
from tunefarm_app.operations.retention import DAY_SEC, apply_retention
from tunefarm_app.records.kernel_sources import TRY_AGAIN_SEC, Progress, SourceView, source_of
from tunefarm_app.storage.blob_store import BlobStore
from tunefarm_db.values import Job
from tunefarm_tuning.compiler.kernel_source import KernelSource
from tunefarm_tuning.core.cancellation import Cancellation
from tunefarm_tuning.core.errors import InvalidInputError, NotFoundError
from tunefarm_tuning.records.record import TuningRecord
from tunefarm_tuning.workload.task import TuningTask


@pytest.fixture
def done(farm: Any) -> Job:
    farm.add_device()
    job = farm.submit(farm.ready_model(Scenario(tasks=2, seed=5)), trials=24)
    farm.run()
    finished: Job = farm.job(job.id)
    return finished


def ask(farm: Any, job: Job, position: int = 0) -> SourceView:
    return source_of(farm.services, job.id, position, ask=True)


def look(farm: Any, job: Job, position: int = 0) -> SourceView:
    return source_of(farm.services, job.id, position, ask=False)


def make_source(farm: Any, job: Job) -> SourceView:
    assert ask(farm, job).progress is Progress.MAKING
    farm.run()
    view = look(farm, job)
    assert view.progress is Progress.READY, view
    return view


def let_pass(farm: Any, sec: float) -> None:
    with farm.services.uow.write() as repos:
        for table, columns in {"kernel_sources": ("updated_at",), "steps": ("created_at",)}.items():
            for column in columns:
                repos._connection.execute(
                    text(f"UPDATE {table} SET {column} = {column} - :sec"), {"sec": sec}
                )


class Failing(ReplayEngine):
    """Cannot make a source."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error
        self.asked = 0

    def kernel_source(
        self, task: TuningTask, record: TuningRecord, *, cancellation: Cancellation
    ) -> KernelSource:
        self.asked += 1
        raise self._error


def test_it_is_made_once_and_kept(farm: Any, done: Job) -> None:
    assert look(farm, done).progress is Progress.UNASKED
    assert farm.inbox.messages == [], "looking asks for nothing"
    assert ask(farm, done).progress is Progress.MAKING
    assert ask(farm, done).progress is Progress.MAKING
    assert len(farm.inbox.messages) == 1, "it is asked for once"
    assert not look(farm, done).waiting
    let_pass(farm, 60)
    assert look(farm, done).waiting, "no worker has taken it"
    farm.run()
    view = look(farm, done)
    assert view.source is not None
    assert view.source.kinds == ("schedule", "llvm", "asm")
    assert view.winner is not None
    assert view.winner.in_artifact
    assert str(view.winner.record.config).replace(" ", "") in view.source.text("llvm")
    assert ask(farm, done).sha256 == view.sha256
    assert farm.inbox.messages == []
    assert look(farm, done, 1).progress is Progress.UNASKED, "another kernel is another source"


def test_before_and_without_an_artifact(farm: Any) -> None:
    farm.add_device()
    model = farm.ready_model(Scenario(tasks=1, seed=5))
    job = farm.submit(model, trials=16)
    farm.run(steps=1)
    assert ask(farm, job).progress is Progress.NO_KERNEL
    farm.run(steps=1)
    at_work = ask(farm, job)
    assert at_work.progress is Progress.MAKING
    assert at_work.winner is not None
    assert not at_work.winner.in_artifact
    cancel_job(farm.services, job.id)
    farm.run()
    view = look(farm, job)
    assert view.progress is Progress.READY, "it does not end with the job"
    # The best is from the first job: there it is made already.
    second = farm.submit(model, trials=4)
    farm.run(steps=1)
    inherited = ask(farm, second)
    assert inherited.progress is Progress.READY
    assert inherited.winner == at_work.winner


def test_what_cannot_be_made_says_why(farm: Any, done: Job) -> None:
    refuses = Failing(InvalidInputError("it does not fit", code="does-not-apply"))
    broken = farm.with_engine(refuses)
    ask(broken, done)
    broken.run()
    view = ask(broken, done)
    assert view.progress is Progress.FAILED
    assert view.error is not None
    assert (view.error["code"], view.error["message"]) == ("does-not-apply", "it does not fit")
    assert refuses.asked == 1
    assert farm.job(done.id).state is done.state
    assert broken.inbox.messages == [], "it is not tried again at once"
    let_pass(farm, TRY_AGAIN_SEC + 1)
    make_source(farm, done)


def test_of_another_compiler(farm: Any, done: Job) -> None:
    with farm.services.uow.write() as repos:
        connection = repos._connection
        connection.execute(text("PRAGMA defer_foreign_keys = ON"))
        for table in ("records", "workloads", "job_tasks", "model_tasks", "config_spaces"):
            connection.execute(text(f"UPDATE {table} SET toolchain = 'tvm-0.1'"))
    ask(farm, done)
    farm.run()
    error = look(farm, done).error
    assert error is not None
    assert error["code"] == "other-toolchain"
    assert "tvm-0.1" in error["message"]


def test_a_crash_is_tried_again_and_then_told(farm: Any, done: Job) -> None:
    crashing = Failing(RuntimeError("boom"))
    broken = farm.with_engine(crashing)
    ask(broken, done)
    broken.run()
    assert look(broken, done).progress is Progress.MAKING
    while look(broken, done).progress is Progress.MAKING:
        farm.run_again(crashing)
    assert crashing.asked == farm.services.settings.max_step_faults
    view = look(broken, done)
    assert view.progress is Progress.FAILED
    assert "boom" in (view.error or {})["message"]


def test_workers_that_die_of_it(farm: Any, done: Job) -> None:
    ask(farm, done)
    (step_id,) = farm.inbox.messages
    for _ in range(farm.services.settings.max_step_attempts):
        with farm.services.uow.write() as repos:
            repos.steps.claim(step_id, "somebody", 30.0, max_attempts=100)
        farm.end_leases()
        reap(farm.services)
    view = look(farm, done)
    assert view.progress is Progress.FAILED
    assert (view.error or {})["code"] == "step-abandoned"


def test_what_was_lost_is_made_again(farm: Any, done: Job) -> None:
    view = make_source(farm, done)
    farm.services.blobs.delete(view.sha256)
    assert look(farm, done).progress is Progress.UNASKED
    assert make_source(farm, done).sha256 == view.sha256
    farm.services.blobs.path_of(view.sha256).write_bytes(b"\x1f\x8b damaged")
    assert look(farm, done).progress is Progress.UNASKED
    assert make_source(farm, done).source == view.source


def test_retention_and_the_sweep(farm: Any, done: Job) -> None:
    sha256 = make_source(farm, done).sha256
    let_pass(farm, 40 * DAY_SEC)
    assert apply_retention(farm.services) == 0
    assert sweep_blobs(farm.services, unreferenced_age_sec=0.0) == 0
    keeping = farm.with_settings(keep_sources_days=50)
    assert apply_retention(keeping.services) == 0
    assert look(farm, done).progress is Progress.READY
    keeping = farm.with_settings(keep_sources_days=30)
    assert apply_retention(keeping.services) == 1
    assert sweep_blobs(farm.services, unreferenced_age_sec=0.0) == 1
    assert not farm.services.blobs.path_of(sha256).exists()
    make_source(farm, done)


def test_it_is_in_the_backup(farm: Any, done: Job, tmp_path: Any) -> None:
    view = make_source(farm, done)
    ask(farm, done, 1)  # and one that is not there yet
    url = farm.services.settings.database_url.get_secret_value()
    backup = back_up(url, farm.services.blobs, tmp_path / "farm.backup")
    assert view.sha256 in backup.blobs
    twin = farm.empty_twin(tmp_path)
    try:
        restore(
            tmp_path / "farm.backup",
            database_url=twin.services.settings.database_url.get_secret_value(),
            store=BlobStore(twin.services.settings.store_dir),
            replace=True,
        )
        assert look(twin, done).source == view.source
        twin.run_until_quiet()
        assert look(twin, done, 1).progress is Progress.READY
    finally:
        twin.services.close()


def test_what_is_not_there(farm: Any, done: Job) -> None:
    with pytest.raises(NotFoundError, match="no such task"):
        ask(farm, done, 2)
    with pytest.raises(NotFoundError, match="no such job"):
        source_of(farm.services, "job_x", 0, ask=True)
