"""A rebuilt tuner learns from the records of other jobs, and a process reads each record once.

`choose_histories` and the tuners have tests of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from math import log2
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from sqlalchemy import event

from tunefarm_app.engines.replay import ReplayEngine
from tunefarm_app.engines.scenario import Scenario
from tunefarm_app.storage.rows import engine_record
from tunefarm_app.tuning.rebuilt_tuner import RecordCache
from tunefarm_db.repositories.records.transfer import Outline
from tunefarm_db.values import Job
from tunefarm_tuning.records.transfer import TaskHistory
from tunefarm_tuning.tuner.xgb import XGBTuner

SMALL = Scenario(tasks=1, extent=64, nests=True)
LARGE = Scenario(tasks=1, extent=128, seed=1, nests=True)


def odd_machine(task: Any, config: Any) -> tuple[float, ...]:
    """Time kernels as no real machine would: the shorter the innermost loop over columns, the better.

    The prior that ships with the tuner expects the opposite, so who does well at once has learned it here.
    """
    inner_columns = config.decisions[1][-1]
    return (1e-3 * (1.0 + log2(inner_columns)),) * 3


def run(farm: Any, scenario: Scenario, *, trials: int, **terms: Any) -> Job:
    job = farm.submit(farm.ready_model(scenario), trials=trials, **terms)
    farm.run()
    done: Job = farm.job(job.id)
    assert done.error is None
    assert done.trials == trials
    return done


def first_costs(farm: Any, job: Job) -> list[float]:
    return [trial.cost_sec for trial in farm.trials(job.id) if trial.round == 0]


def keys(farm: Any, job: Job) -> list[str]:
    """Return the workloads of the job's tasks."""
    with farm.services.uow.read() as repos:
        return [task.workload_key for task in repos.jobs.tasks(job.id)]


@pytest.fixture
def odd_farm(farm: Any) -> Any:
    """A farm on the odd machine, with one device."""
    farm.add_device()
    return farm.with_engine(ReplayEngine(odd_machine))


def test_a_like_workload_makes_the_first_round_better(odd_farm: Any, tmp_path: Path) -> None:
    run(odd_farm, SMALL, trials=32)
    learned = first_costs(odd_farm, run(odd_farm, LARGE, trials=8))
    twin = odd_farm.empty_twin(tmp_path).with_engine(ReplayEngine(odd_machine))
    with closing(twin.services):
        twin.add_device()
        cold = first_costs(twin, run(twin, LARGE, trials=8))
    # Seeds are equal: without what is on record, both would be the same eight trials.
    assert median(learned) < median(cold)
    assert min(learned) <= min(cold)


def test_the_best_of_another_device_is_tried_first(odd_farm: Any) -> None:
    # Another tuner with another seed: nobody comes upon these configs by himself.
    first = run(odd_farm, SMALL, trials=16, tuner="random", seed=3)
    trials = [trial for trial in odd_farm.trials(first.id) if trial.cost_sec is not None]
    best = min(trials, key=lambda trial: (trial.cost_sec, trial.config_key))
    odd_farm.add_device("dev-2", "others", device_model="another-cpu")
    second = run(odd_farm, SMALL, trials=8, device_key="others")
    assert best.config_key in {trial.config_key for trial in odd_farm.trials(second.id)}


def test_histories_of_a_tuner(odd_farm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Like workloads of other jobs and of this one; the same workload of elsewhere; not the task's own records."""
    loaded: list[dict[str, set[str]]] = []

    def load_history(tuner: XGBTuner, histories: Sequence[TaskHistory]) -> None:
        loaded.append({h.records[0].workload_key: {r.device_model for r in h.records} for h in histories})

    odd_farm.add_device("dev-2", "others", device_model="another-cpu")
    (small,) = keys(odd_farm, run(odd_farm, SMALL, trials=8, tuner="random", device_key="pool"))
    (large,) = keys(odd_farm, run(odd_farm, LARGE, trials=8, tuner="random", device_key="others"))
    monkeypatch.setattr(XGBTuner, "load_history", load_history)
    run(odd_farm, LARGE, trials=16, device_key="pool")
    assert len(loaded) == 2  # once for each round
    for histories in loaded:
        assert histories == {small: {"replay-cpu"}, large: {"another-cpu"}}


def test_tasks_of_one_job_learn_from_each_other(farm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[set[str]] = []

    def load_history(tuner: XGBTuner, histories: Sequence[TaskHistory]) -> None:
        loaded.append({h.records[0].workload_key for h in histories})

    monkeypatch.setattr(XGBTuner, "load_history", load_history)
    farm.add_device()
    small, large = keys(farm, run(farm, Scenario(tasks=2, nests=True), trials=16))
    assert loaded == [set(), {large}]  # the large one came first
    assert small != large


def tuned(farm: Any) -> tuple[list[Any], Outline]:
    """Return the records of a job of one task, and an outline of them."""
    farm.add_device()
    job = farm.submit(farm.ready_model(Scenario(tasks=1)), trials=16)
    farm.run()
    with farm.services.uow.read() as repos:
        rows = [row for row in repos.records.for_job(job.id) if not row.confirmed]
    outline = Outline(
        workload_key=rows[0].workload_key,
        target_key=rows[0].target_key,
        device_model=rows[0].device_model,
        toolchain=rows[0].toolchain,
        space_key=rows[0].space_key,
        record_ids=tuple(row.id for row in rows),
    )
    return rows, outline


def test_what_was_read_is_not_read_again(farm) -> None:
    rows, outline = tuned(farm)
    cache = RecordCache()
    statements: list[str] = []
    event.listen(
        farm.services.uow.engine, "before_cursor_execute", lambda _c, _k, sql, *_: statements.append(sql)
    )

    def look(*ids: str) -> int:
        statements.clear()
        with farm.services.uow.read() as repos:
            assert cache.records(repos, ids) == tuple(by_id[record_id] for record_id in ids)
            space = cache.space(repos, outline)
            assert space is not None
            assert space.key == outline.space_key
        return sum("FROM records" in sql or "FROM config_spaces" in sql for sql in statements)

    by_id = {row.id: engine_record(row) for row in rows}
    ids = outline.record_ids
    assert look(*ids[:10]) == 2  # the records, and the space
    assert look(*ids[5:]) == 1
    assert look(*reversed(ids)) == 0


def test_the_cache_is_bounded(farm) -> None:
    rows, outline = tuned(farm)
    cache = RecordCache(max_records=4, max_spaces=1)
    with farm.services.uow.read() as repos:
        assert len(cache.records(repos, outline.record_ids)) == len(rows)
        assert len(cache.records(repos, outline.record_ids[:2])) == 2
        assert cache.records(repos, ["rec_none"]) == ()
        assert len(cache._records) <= 4
        assert cache.space(repos, outline) is not None


def test_a_space_of_another_release_is_none(farm) -> None:
    _, outline = tuned(farm)
    changed = Outline(
        workload_key=outline.workload_key,
        target_key=outline.target_key,
        device_model=outline.device_model,
        toolchain=outline.toolchain,
        space_key="another",
        record_ids=outline.record_ids,
    )
    with farm.services.uow.read() as repos:
        assert RecordCache().space(repos, changed) is None
