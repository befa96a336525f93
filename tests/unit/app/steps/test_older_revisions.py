"""A job in the database of an older release: tasks and spaces are computed again where they may differ now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from app_farm import Farm
from sqlalchemy import text

from tunefarm_app.engines.replay import ReplayEngine
from tunefarm_app.engines.scenario import Scenario
from tunefarm_app.storage.rows import engine_space
from tunefarm_db.states.job import JobState
from tunefarm_db.values import Record, Space
from tunefarm_tuning.space.config_space import ConfigSpace
from tunefarm_tuning.workload.task import TuningTask


class OlderEngine(ReplayEngine):
    """Its graph passes find other kernels."""

    def extract_tasks(self, *args: Any, **named: Any) -> tuple[TuningTask, ...]:
        tasks = super().extract_tasks(*args, **named)
        return tuple(
            replace(task, workload=replace(task.workload, key=task.workload.key[::-1])) for task in tasks
        )


def forget_revisions(farm: Farm) -> None:
    with farm.services.uow.engine.begin() as connection:
        for table in ("model_tasks", "config_spaces"):
            connection.execute(text(f"UPDATE {table} SET revision = 0"))


def tune(farm: Farm, model_id: str, *, seed: int) -> tuple[list[str], Sequence[Record]]:
    """Run a job; return its workloads, and its records."""
    job = farm.submit(farm.model(model_id), trials=16, seed=seed)
    farm.run()
    assert farm.job(job.id).state is JobState.SUCCEEDED, farm.job(job.id).error
    with farm.services.uow.read() as repos:
        return [task.workload_key for task in repos.jobs.tasks(job.id)], repos.records.for_job(job.id)


def test_a_job_tunes_the_kernels_that_this_release_finds(farm: Farm) -> None:
    older = farm.with_engine(OlderEngine())
    older.add_device()
    model = older.upload(Scenario(tasks=2))
    older.run()
    before, _ = tune(older, model.id, seed=1)
    assert tune(farm, model.id, seed=2)[0] == before, "the same revision: known"
    forget_revisions(farm)
    assert tune(farm, model.id, seed=3)[0] == [key[::-1] for key in before]


def test_a_job_tunes_in_the_space_that_this_release_makes(farm: Farm) -> None:
    farm.add_device()
    model = farm.upload(Scenario(tasks=1))
    farm.run()
    (key,), records = tune(farm, model.id, seed=1)
    where = {"target_key": records[0].target_key, "toolchain": records[0].toolchain}

    def stored() -> Space:
        with farm.services.uow.read() as repos:
            space = repos.spaces.get(key, **where)
        assert space is not None
        return space

    now = stored()
    space = engine_space(now)
    assert space is not None
    older = ConfigSpace(
        [replace(sketch, knobs=sketch.knobs[:-1], axes=()) for sketch in space.sketches], space.computation
    )
    assert older.key != now.space_key
    with farm.services.uow.write() as repos:
        repos.spaces.put(replace(now, space=older.to_json(), space_key=older.key))
    forget_revisions(farm)
    _, records = tune(farm, model.id, seed=2)
    assert stored() == now
    assert records
    assert {record.space_key for record in records} == {now.space_key}
