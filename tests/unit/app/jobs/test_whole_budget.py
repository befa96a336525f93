"""The budget of a whole job: what its search gets, what its compile is told, and how the compile's time is foreseen."""

from __future__ import annotations

from typing import Any

import pytest
from job_values import job as job_row
from sqlalchemy import update

from tunefarm_app.engines.interface import CompiledFile
from tunefarm_app.engines.replay import ReplayEngine
from tunefarm_app.engines.scenario import Scenario
from tunefarm_app.jobs.change import JobChange, change_job
from tunefarm_app.jobs.submit import JobRequest, compile_now, submit_job
from tunefarm_app.jobs.whole_budget import (
    JobBudget,
    compile_goal_sec,
    expected_compile_sec,
    search_sec,
    settled_limits,
)
from tunefarm_db.states.job import JobState
from tunefarm_db.tables import ArtifactRow, ModelRow, StepRow
from tunefarm_db.values import StepKind
from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.search.budget import Budget


class NotingEngine(ReplayEngine):
    """Notes the goals of its compiles."""

    def __init__(self) -> None:
        super().__init__()
        self.goals_sec: list[float | None] = []

    def compile(self, *args: Any, **named: Any) -> CompiledFile:
        self.goals_sec.append(args[3].goal_sec)
        return super().compile(*args, **named)


def give_phases(farm, job_id: str, phases_sec: dict[str, float]) -> None:
    give_report(farm, job_id, {"phases_sec": phases_sec})


def give_report(farm, job_id: str, report: dict[str, Any]) -> None:
    with farm.services.uow.engine.begin() as connection:
        row = update(ArtifactRow).where(ArtifactRow.job_id == job_id)
        connection.execute(row.values(report=report))


def expected(farm, job, kernels: int) -> float:
    with farm.services.uow.read() as repos:
        return expected_compile_sec(repos, job, kernels)


def test_the_search_gets_what_the_others_leave() -> None:
    assert search_sec(600.0, 10.0, 60.0) == pytest.approx(506.0)
    assert search_sec(60.0, 10.0, 100.0) == 9.0, "a job without a search was not asked for"


def test_a_budget_is_written_as_before_where_it_is_of_the_search_alone() -> None:
    assert JobBudget(trials=3).to_json() == Budget(trials=3).to_json()
    whole = JobBudget(job_sec=60.0)
    assert JobBudget.from_json(whole.to_json()) == whole
    digests = {
        JobRequest(model_id="m", budget=budget).digest
        for budget in (Budget(wall_sec=60.0), JobBudget(wall_sec=60.0))
    }
    assert len(digests) == 1
    assert JobRequest(model_id="m", budget=JobBudget(job_sec=60.0)).digest not in digests
    for wrong in (0.0, -1.0, float("nan")):
        with pytest.raises(InvalidInputError):
            JobBudget(job_sec=wrong)


def test_a_job_searches_for_what_is_left_and_tells_its_compiler(farm) -> None:
    model = farm.ready_model(Scenario(tasks=2))
    with farm.services.uow.engine.begin() as connection:  # its import took 20 s
        imported = update(StepRow).where(StepRow.kind == StepKind.IMPORT)
        connection.execute(imported.values(created_at=StepRow.finished_at - 20.0))
    farm.add_device()
    job = farm.submit(model, budget=JobBudget(job_sec=600.0, trials=16))
    assert job.budget.get("wall_sec") is None
    farm.run(steps=1)
    job = farm.job(job.id)
    assert job.options["expected_compile_sec"] == 15.7
    assert job.options["prepared_sec"] == pytest.approx(20.0, abs=5.0)
    assert job.budget["wall_sec"] == pytest.approx(576 - 20 - 17, abs=5.0)
    engine = NotingEngine()
    farm.with_engine(engine).run()
    job = farm.job(job.id)
    assert (job.state, job.stop_reason) == (JobState.SUCCEEDED, "trials")
    assert engine.goals_sec == [compile_goal_sec(job)]
    assert engine.goals_sec[0] == pytest.approx(580.0, abs=10.0)

    second = farm.submit(model, budget=JobBudget(job_sec=600.0, wall_sec=30.0))
    plain = farm.submit(model, trials=8)
    farm.with_settings(step_chain_sec=0.0).run(steps=2)
    assert farm.job(second.id).options["prepared_sec"] < 10, "the model was there already"
    assert farm.job(second.id).budget["wall_sec"] == 30.0, "the limit that comes first"
    assert (farm.job(plain.id).budget["wall_sec"], compile_goal_sec(farm.job(plain.id))) == (None, None)


def test_the_time_limit_ends_the_search(farm) -> None:
    farm.add_device()
    job = farm.submit(
        farm.ready_model(Scenario(tasks=1, trial_sec=0.02)), budget=JobBudget(job_sec=1.0), round_size=1
    )
    farm.run()
    job = farm.job(job.id)
    assert (job.state, job.stop_reason, job.budget["wall_sec"]) == (JobState.SUCCEEDED, "wall_sec", 0.15)


def test_the_compile_is_foreseen_from_those_that_were_measured(farm) -> None:
    farm.add_device()
    model, other = farm.ready_model(Scenario(tasks=2)), farm.ready_model(Scenario(tasks=4, seed=3))
    job = farm.submit(model, trials=8)
    assert expected(farm, job, 10) == 22.5, "nothing was measured yet"
    elsewhere = farm.submit(other, trials=8)
    farm.run()
    give_phases(farm, elsewhere.id, {"load": 3.0, "measure": 5.0})
    assert expected(farm, job, 10) == 20.0, "2 s per kernel"
    give_phases(farm, job.id, {"load": 30.0, "measure": 1.0})
    untuned = farm.submit(model, search=False)
    farm.run()
    give_phases(farm, untuned.id, {"load": 100.0})
    assert expected(farm, job, 10) == 31.0, "of its own model, after a search"
    assert expected(farm, farm.job(elsewhere.id), 4) == 8.0
    with farm.services.uow.engine.begin() as connection:
        connection.execute(update(ArtifactRow).values(report={"phases_sec": {}}))
    assert expected(farm, job, 10) == 22.5, "reports of other releases may lack the phases"


def test_a_changed_budget_of_a_whole_job_changes_its_search(farm) -> None:
    farm.add_device()
    job = farm.submit(farm.ready_model(Scenario(tasks=2)), budget=JobBudget(job_sec=600.0))
    assert change_job(farm.services, job.id, JobChange(budget={"job_sec": 500.0})).budget["wall_sec"] is None
    farm.run(steps=1)
    before = farm.job(job.id).budget["wall_sec"]
    more = change_job(farm.services, job.id, JobChange(budget={"job_sec": 1500.0}))
    assert more.budget["wall_sec"] == pytest.approx(before + 960.0, abs=0.1)
    own = change_job(farm.services, job.id, JobChange(budget={"job_sec": 900.0, "wall_sec": 7.0}))
    assert (own.budget["job_sec"], own.budget["wall_sec"]) == (900.0, 7.0)
    derived = change_job(farm.services, job.id, JobChange(budget={"wall_sec": None}))
    assert derived.budget["wall_sec"] == pytest.approx(before + 0.96 * 400.0, abs=0.1), (
        "the whole job's limit stays"
    )
    assert change_job(farm.services, job.id, JobChange(budget={"job_sec": 900.0, "trials": 9})).budget == {
        **derived.budget, "trials": 9,
    }  # fmt: skip
    free = change_job(farm.services, job.id, JobChange(budget={"job_sec": None, "trials": 8}))
    assert (free.budget.get("job_sec"), free.budget["wall_sec"], free.budget["trials"]) == (None, None, 8)
    with pytest.raises(InvalidInputError):
        change_job(farm.services, job.id, JobChange(budget={"job_sec": 1e12}))


def test_what_a_job_has_so_far_is_compiled_without_refinements(farm, tuning_job) -> None:
    engine = NotingEngine()
    compile_now(farm.services, tuning_job.id)
    farm.with_engine(engine).run_until_quiet()
    assert engine.goals_sec == [0.0, None], "the search's own compile has the time"


def test_jobs_of_older_releases_have_no_estimates() -> None:
    old = job_row(budget={"wall_sec": 60.0})
    limits = {"wall_sec": 60.0, "job_sec": 65.0}
    assert settled_limits(limits, old.options) == (limits, old.options)
    assert compile_goal_sec(old) is None


def test_the_users_own_limit_of_the_search_is_kept(farm) -> None:
    farm.add_device()
    model = farm.ready_model(Scenario(tasks=2))

    def changed(job, **budget):
        return change_job(farm.services, job.id, JobChange(budget=budget)).budget

    job = farm.submit(model, budget=JobBudget(job_sec=600.0, wall_sec=30.0))
    farm.run(steps=1)
    assert changed(job, job_sec=900.0)["wall_sec"] == 30.0
    assert changed(job, job_sec=30.0)["wall_sec"] < 30.0, "less is left"
    assert changed(job, job_sec=900.0)["wall_sec"] == 30.0
    assert changed(job, wall_sec=5000.0)["wall_sec"] == pytest.approx(850.0, abs=10.0)
    assert changed(job, job_sec=9000.0)["wall_sec"] == 5000.0
    assert changed(job, wall_sec=40.0)["wall_sec"] == 40.0
    with pytest.raises(InvalidInputError):
        changed(job, wall_sec=1e12)
    alone = changed(job, job_sec=None)
    assert (alone.get("job_sec"), alone["wall_sec"]) == (None, 40.0)
    assert "own_wall_sec" not in farm.job(job.id).options
    assert changed(job, job_sec=700.0)["wall_sec"] == 40.0
    assert changed(job, wall_sec=None)["wall_sec"] == pytest.approx(655.0, abs=10.0)
    assert changed(job, trials=8, job_sec=None)["wall_sec"] is None

    plain = farm.submit(model, budget=Budget(wall_sec=30.0))
    farm.with_settings(step_chain_sec=0.0).run(steps=2)
    assert changed(plain, job_sec=900.0)["wall_sec"] == 30.0


def test_a_compile_beside_other_runtimes_is_expected_to_take_longer(farm) -> None:
    farm.add_device()
    first, other = farm.ready_model(Scenario(tasks=2)), farm.ready_model(Scenario(tasks=3))
    job = farm.submit(first, trials=8)
    plain_sec = expected(farm, job, 2)
    asked = submit_job(
        farm.services,
        JobRequest(model_id=first.id, budget=Budget(trials=8), baselines=["openvino", "litert"]),
    ).job
    assert expected(farm, asked, 2) == pytest.approx(plain_sec + 10.0), "nothing is known yet"
    farm.run_until_quiet()
    give_report(farm, asked.id, {"phases_sec": {"measure": 40.0}, "baselines_sec": {"openvino": 12.0}})
    give_report(farm, job.id, {"phases_sec": {"measure": 20.0}})
    assert expected(farm, job, 2) == 28.0, "the longest without the time of other runtimes"
    assert expected(farm, asked, 2) == 28.0 + 12.0 + 5.0
    elsewhere = submit_job(
        farm.services, JobRequest(model_id=other.id, budget=Budget(trials=8), baselines=["openvino"])
    ).job
    assert expected(farm, elsewhere, 2) == pytest.approx(24.0 + 12.0), (
        "24 s of other models for as many kernels"
    )


def test_a_compile_of_a_network_of_open_sizes_is_expected_to_build_code_for_all(farm) -> None:
    farm.add_device()
    model = farm.ready_model(Scenario(tasks=2))
    job = farm.submit(model, trials=8)
    plain_sec = expected(farm, job, 2)
    with farm.services.uow.engine.begin() as connection:
        connection.execute(update(ModelRow).values(shapes={"x": [1, 8]}))
    assert expected(farm, job, 10) - expected(farm, job, 9) == pytest.approx(0.85 + 0.6)
    assert expected(farm, job, 2) == pytest.approx(plain_sec + 1.2)
    without = submit_job(
        farm.services, JobRequest(model_id=model.id, budget=Budget(trials=8), other_shapes=False)
    ).job
    assert expected(farm, without, 2) == plain_sec
    farm.run_until_quiet()
    give_report(
        farm,
        job.id,
        {"phases_sec": {"load": 20.0, "other-shapes": 30.0}, "other_shapes": {"entry": "main_1"}},
    )
    give_report(farm, without.id, {"phases_sec": {"load": 22.0}})
    assert (expected(farm, job, 2), expected(farm, without, 2)) == (52.0, 22.0)


def test_code_for_all_sizes_that_will_give_way_is_not_expected(farm) -> None:
    farm.add_device()
    model = farm.ready_model(Scenario(tasks=2))
    with farm.services.uow.engine.begin() as connection:
        connection.execute(update(ModelRow).values(shapes={"x": [1, 8]}))
    expected_sec = []
    for job_sec in (18.0, 600.0):
        job = farm.submit(model, budget=JobBudget(job_sec=job_sec, trials=2))
        farm.run()
        expected_sec.append(farm.job(job.id).options["expected_compile_sec"])
    assert expected_sec == [15.7, 16.9]
