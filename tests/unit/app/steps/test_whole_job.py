"""A job from upload to artifact, without a compiler and without a broker."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from sqlalchemy import update

from tunefarm_app.engines.interface import CompiledFile
from tunefarm_app.engines.replay import ReplayEngine
from tunefarm_app.engines.scenario import Scenario
from tunefarm_app.operations.reconcile import reap
from tunefarm_app.report.assemble import job_report
from tunefarm_app.report.page import report_page
from tunefarm_db.states.job import JobState
from tunefarm_db.tables import JobRow
from tunefarm_db.values import ModelState, StepKind, StepState
from tunefarm_tuning.records.coverage import Coverage, CoveredTask
from tunefarm_tuning.search.budget import Budget


def test_upload_tune_compile(farm) -> None:
    model = farm.upload(Scenario(tasks=2, failing=0.2))
    assert model.state is ModelState.IMPORTING
    farm.run()
    model = farm.model(model.id)
    assert model.state is ModelState.READY
    assert [spec["name"] for spec in model.inputs] == ["x"]
    device = farm.add_device()
    job = farm.submit(model, trials=40)
    assert job.state is JobState.QUEUED
    farm.run()

    job = farm.job(job.id)
    assert job.state is JobState.SUCCEEDED, job.error
    assert job.stop_reason == "trials"
    assert job.trials == 40
    trials = farm.trials(job.id)
    assert len(trials) == 40
    assert len({(t.position, t.config_key) for t in trials}) == 40
    assert job.failures == sum(t.outcome != "ok" for t in trials) > 0
    assert job.tuned_sec > 0
    with farm.services.uow.read() as repos:
        tasks = repos.jobs.tasks(job.id)
        artifact = repos.artifacts.for_job(job.id)
        records = repos.records.for_job(job.id)
        events = repos.events.after(job.id)
    assert job.best_latency_sec == sum(t.weight * t.best_cost_sec for t in tasks)
    assert sum(t.trials for t in tasks) == 40
    assert sum(not record.confirmed for record in records) == 40
    assert {r.device_id for r in records} == {device.id}
    assert artifact is not None
    assert artifact.id == job.artifact_id
    assert artifact.name == "net.tunefarm"
    packed = json.loads(farm.services.blobs.path(artifact.sha256).read_text())
    assert packed["report"]["coverage"] == {"tasks": 2, "covered": 2}
    assert [e.kind for e in events[:3]] == ["queued", "phase", "phase"]
    assert events[-1].kind == "finished"
    assert all(b.seq == a.seq + 1 for a, b in pairwise(events))
    assert {s.state for s in farm.steps(job.id)} == {StepState.DONE}
    assert farm.device(device.id).lease_owner is None


def test_a_job_without_a_search_compiles_what_is_on_record(farm) -> None:
    model = farm.ready_model(Scenario(tasks=2))
    farm.add_device()
    untuned = farm.submit(model, search=False)
    farm.run()
    untuned = farm.job(untuned.id)
    assert (untuned.state, untuned.stop_reason, untuned.trials) == (JobState.SUCCEEDED, "no-search", 0)
    assert untuned.best_latency_sec is None
    searched = farm.submit(model, trials=16)
    farm.run()

    job = farm.submit(model, search=False)
    farm.run()
    job = farm.job(job.id)
    assert (job.state, job.stop_reason, job.trials, job.tuned_sec) == (JobState.SUCCEEDED, "no-search", 0, 0)
    assert job.best_latency_sec == farm.job(searched.id).best_latency_sec > 0
    assert {step.kind for step in farm.steps(job.id)} == {StepKind.EXTRACT, StepKind.COMPILE}
    with farm.services.uow.read() as repos:
        artifacts = [repos.artifacts.for_job(job_id) for job_id in (untuned.id, job.id)]
    covered = [artifact.report["coverage"]["covered"] for artifact in artifacts if artifact]
    assert covered == [0, 2]

    report = job_report(farm.services, job.id)
    assert report.summary[0] == (
        "The job succeeded: one artifact after a compile from what was on record, without a search."
    )
    (command,) = [step.code for step in report.reproduce.steps if step.code.startswith("tunefarm ")][:1]
    assert command.startswith("tunefarm compile net.onnx --target ")
    assert not any(option in command for option in ("--seed", "--tuner", "--trials"))
    assert not any("seed" in caveat or "search =" in caveat for caveat in report.reproduce.caveats)
    assert not any("had a turn" in warning for warning in report.warnings)


def test_a_killed_compile_without_a_search_is_taken_back(farm) -> None:
    model = farm.ready_model(Scenario(tasks=2))
    farm.add_device()
    job = farm.submit(model, search=False)
    farm.run(steps=1)
    (step_id,) = farm.inbox.messages
    farm.inbox.messages.clear()
    with farm.services.uow.write() as repos:
        assert repos.steps.claim(step_id, "a worker that is killed", 30.0) is not None
    farm.end_leases()
    assert [step.id for step in reap(farm.services)] == [step_id]
    farm.run_until_quiet()
    assert farm.job(job.id).state is JobState.SUCCEEDED
    assert farm.steps(job.id)[-1].attempts == 2


class ComparingEngine(ReplayEngine):
    """Reports one kernel as compared with the untuned one, one as timed alone and used without."""

    def compile(self, *args: Any, **named: Any) -> CompiledFile:
        compiled = super().compile(*args, **named)
        first, second = sorted(record.workload_key for record in args[2].records)
        hits = [
            CoveredTask(workload_key=first, name="a", weight=1, record_cost_sec=1e-3, untuned_sec=0.25),
            CoveredTask(workload_key=second, name="b", weight=1, record_cost_sec=1e-3),
        ]
        kernels = [{"workload_key": second, "untuned_sec": [0.5, 0.75, 0.5], "tuned_sec": [1.0, 1.0, 1.0]}]
        report = {
            **compiled.report,
            "coverage": Coverage(hits=tuple(hits), misses=()).to_json(),
            "kernels": kernels,
        }
        return replace(compiled, report=report)


def test_a_task_knows_how_fast_it_was_untuned(farm) -> None:
    farm = farm.with_engine(ComparingEngine())
    farm.add_device()
    job = farm.submit(farm.ready_model(Scenario(tasks=2)), trials=8)
    farm.run()
    with farm.services.uow.read() as repos:
        tasks = sorted(repos.jobs.tasks(job.id), key=lambda task: task.workload_key)
    assert [task.untuned_cost_sec for task in tasks] == [0.25, 0.5]


class FindingEngine(ReplayEngine):
    """Finds something out that a later compile asks for.

    Attributes:
        objects: Where the last compile should keep object code.
    """

    objects: Path | None = None

    def compile(self, *args: Any, **named: Any) -> CompiledFile:
        findings = args[2].findings
        self.objects = findings.objects
        scoped = findings.within(device_model="d")
        if scoped.find("kernel", {"workload": "w"}) is None:
            scoped.note("kernel", {"workload": "w"}, {"tuned_sec": [1e-3]})
        compiled = super().compile(*args, **named)
        return replace(compiled, report={**compiled.report, "reused": dict(findings.reused)})


def test_a_later_compile_knows_what_an_earlier_one_found_out(farm) -> None:
    engine = FindingEngine()
    farm = farm.with_engine(engine)
    farm.add_device()
    model = farm.ready_model(Scenario(tasks=1))
    jobs = [farm.submit(model, trials=8)]
    farm.run()
    jobs.append(farm.submit(model, trials=8))
    farm.run()
    reports = [job_report(farm.services, job.id) for job in jobs]
    assert [report.reused for report in reports] == [{}, {"kernel": 1}]
    assert engine.objects == farm.services.settings.store_dir / "kernels"
    assert "Known from earlier jobs" not in report_page(reports[0])
    assert "checks of kernels: 1" in report_page(reports[1])
    farm = farm.with_settings(remember_days=1e-9)
    last = farm.submit(model, trials=8)
    farm.run()
    assert job_report(farm.services, last.id).reused == {}


class AskedEngine(ReplayEngine):
    """Notes whether compiles were asked for code for other shapes."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[bool] = []

    def compile(self, *args: Any, **named: Any) -> CompiledFile:
        self.asked.append(args[3].other_shapes)
        return super().compile(*args, **named)


def test_the_code_for_other_shapes_is_left_out_if_the_job_says_so(farm) -> None:
    engine = AskedEngine()
    farm = farm.with_engine(engine)
    farm.add_device()
    model = farm.ready_model(Scenario(tasks=1))
    jobs = []
    for wanted in (True, False, None):
        jobs.append(farm.submit(model, trials=8, other_shapes=wanted is not False))
        if wanted is None:  # as a release before the option wrote it
            without = update(JobRow).where(JobRow.id == jobs[-1].id).values(options={"round_size": 8})
            with farm.services.uow.engine.begin() as connection:
                connection.execute(without)
        farm.run()
    assert engine.asked == [True, False, True]
    reports = [job_report(farm.services, job.id) for job in jobs]
    assert [report.other_shapes and report.other_shapes.reason for report in reports] == [
        None,
        "not asked for",
        None,
    ]
    assert "The artifact runs no other shapes: not asked for." in report_page(reports[1])
    recipes = ["\n".join(step.code for step in report.reproduce.steps) for report in reports]
    assert ["--no-other-shapes" in recipe for recipe in recipes] == [False, True, False]
    assert [", other_shapes=False)" in recipe for recipe in recipes] == [False, True, False]
    assert not any("other_shapes" in caveat for report in reports for caveat in report.reproduce.caveats)


def test_a_second_job_learns_from_the_first(farm) -> None:
    model = farm.ready_model(Scenario(tasks=1))
    farm.add_device()
    first = farm.submit(model, trials=16)
    farm.run()
    second = farm.submit(model, trials=8)
    farm.run()
    first, second = farm.job(first.id), farm.job(second.id)
    assert second.state is JobState.SUCCEEDED
    # The configs of the first job count as tried, and its best as known.
    measured = {t.config_key for t in farm.trials(first.id)}
    assert not measured & {t.config_key for t in farm.trials(second.id)}
    assert second.best_latency_sec <= first.best_latency_sec


def test_the_same_job_twice_is_the_same_trials(farm, tmp_path: Path) -> None:
    """The tuner is rebuilt for each round, and goes on as one that was never taken apart."""
    twin = farm.empty_twin(tmp_path)  # in one farm the second would learn from the first

    def configs(farm: Any) -> list[str]:
        farm.add_device()
        # One task only: the clock decides which of several gets a round.
        job = farm.submit(farm.ready_model(Scenario(tasks=1)), trials=24, seed=7)
        farm.run()
        return [trial.config_key for trial in farm.trials(job.id)]

    with closing(twin.services):
        assert configs(farm) == configs(twin.with_settings(step_chain_sec=0.0))


def test_a_small_space_is_exhausted(farm) -> None:
    model = farm.ready_model(Scenario(tasks=2, extent=1))
    farm.add_device()
    job = farm.submit(model, trials=100)
    farm.run()
    job = farm.job(job.id)
    assert job.state is JobState.SUCCEEDED
    assert job.stop_reason == "exhausted"
    assert job.trials == 8  # two tasks, four configs each


def test_a_task_that_cannot_be_scheduled_does_not_fail_the_job(farm) -> None:
    model = farm.ready_model(Scenario(tasks=2, unschedulable=(1,)))
    farm.add_device()
    job = farm.submit(model, trials=16)
    farm.run()
    job = farm.job(job.id)
    assert job.state is JobState.SUCCEEDED
    assert job.trials == 16
    assert job.best_latency_sec is None  # one task has no kernel
    with farm.services.uow.read() as repos:
        first, second = repos.jobs.tasks(job.id)
        events = [e.data for e in repos.events.after(job.id) if e.kind == "round"]
    assert (first.exhausted, second.exhausted) == (False, True)
    assert [e["failed"] for e in events if e["failed"]] == ["no schedule rule fits matmul_1"]


def test_a_model_with_nothing_to_tune_is_compiled(farm) -> None:
    model = farm.ready_model(Scenario(tasks=0))
    farm.add_device()
    job = farm.submit(model)
    farm.run()
    job = farm.job(job.id)
    assert (job.state, job.stop_reason, job.trials) == (JobState.SUCCEEDED, "no-tasks", 0)


def test_the_wall_clock_ends_the_search(farm) -> None:
    model = farm.ready_model(Scenario(trial_sec=0.02))
    farm.add_device()
    job = farm.submit(model, budget=Budget(wall_sec=0.5))
    farm.run()
    job = farm.job(job.id)
    assert job.stop_reason == "wall_sec"
    assert job.tuned_sec >= 0.5
    assert job.state is JobState.SUCCEEDED


def test_patience_ends_the_search(farm) -> None:
    model = farm.ready_model(Scenario(tasks=1))
    farm.add_device()
    job = farm.submit(model, budget=Budget(patience_trials=24), tuner="random")
    farm.run()
    job = farm.job(job.id)
    assert job.stop_reason == "patience_trials"
    assert job.trials_since_improvement >= 24


def test_little_to_gain_ends_the_search(farm) -> None:
    model = farm.ready_model(Scenario(tasks=2))
    farm.add_device()
    job = farm.submit(model, budget=Budget(trials=200, min_gain_per_min=1.0), tuner="random")
    with farm.services.uow.write() as repos:  # replayed rounds take no time: ask for more than any gain
        repos._connection.exec_driver_sql(
            """UPDATE jobs SET budget = '{"trials": 200, "min_gain_per_min": 1e12}'"""
        )
    farm.run()
    job = farm.job(job.id)
    assert (job.state, job.stop_reason) == (JobState.SUCCEEDED, "min_gain_per_min")
    assert 0 < job.trials < 200
    with farm.services.uow.read() as repos:
        assert all(task.rounds > 0 for task in repos.jobs.tasks(job.id))


def test_a_chain_ends_after_its_time(farm) -> None:
    """With no time for a chain, each round is a message of its own."""
    model = farm.ready_model()
    farm.add_device()
    farm = farm.with_settings(step_chain_sec=0.0)
    job = farm.submit(model, trials=24)
    messages = farm.run()
    kinds = [step.kind for step in farm.steps(job.id)]
    assert messages == len(kinds)
    assert [kind for kind in kinds if kind is not StepKind.CONFIRM] == [
        StepKind.EXTRACT,
        StepKind.TUNE,
        StepKind.TUNE,
        StepKind.TUNE,
        StepKind.COMPILE,
    ]
