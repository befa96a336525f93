"""Changing a job's budget while it runs, and retrying a failed job."""

from __future__ import annotations

import threading

import pytest
from waiting import wait_until

from tunefarm_app.engines.replay import ReplayEngine
from tunefarm_app.engines.scenario import Scenario
from tunefarm_app.engines.simulated_tasks import landscape_answer
from tunefarm_app.jobs.change import JobChange, change_job
from tunefarm_app.jobs.control import cancel_job, pause_job, resume_job, retry_job
from tunefarm_db.states.job import JobState
from tunefarm_db.values import StepKind, StepState
from tunefarm_tuning.core.errors import ConflictError, InvalidInputError, NotFoundError, TransientError
from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.measure.interfaces import Failure


@pytest.fixture
def farm(farm):
    """A farm in which every round is a message of its own."""
    return farm.with_settings(step_chain_sec=0.0)


@pytest.fixture
def tuning_job(farm):
    """A job that has had one of its three rounds."""
    model = farm.ready_model(Scenario(tasks=2))
    farm.add_device()
    job = farm.submit(model, trials=24)
    farm.run(steps=2)
    assert farm.job(job.id).trials == 8
    return job


def change(farm, job, **budget):
    return change_job(farm.services, job.id, JobChange(budget=budget))


def test_a_budget_is_extended(farm, tuning_job) -> None:
    changed = change(farm, tuning_job, trials=40, wall_sec=1000.0)
    assert (changed.budget["trials"], changed.budget["wall_sec"]) == (40, 1000.0)
    farm.run()
    job = farm.job(tuning_job.id)
    assert (job.state, job.trials, job.stop_reason) == (JobState.SUCCEEDED, 40, "trials")
    assert farm.events(job.id).count("budget") == 1


def test_a_job_whose_new_budget_is_spent_ends_cleanly(farm, tuning_job) -> None:
    change(farm, tuning_job, trials=4)
    farm.run()
    job = farm.job(tuning_job.id)
    assert (job.state, job.trials, job.stop_reason) == (JobState.SUCCEEDED, 8, "trials")


def test_a_limit_is_removed_but_not_the_last_one(farm, tuning_job) -> None:
    with pytest.raises(InvalidInputError) as refused:
        change(farm, tuning_job, trials=None)
    assert refused.value.code == "invalid-budget"
    for wrong in ({"trials": 0}, {"trials": 1 << 40}, {"wall_sec": float("nan")}):
        with pytest.raises(InvalidInputError):
            change(farm, tuning_job, **wrong)
    assert farm.job(tuning_job.id).budget["trials"] == 24
    changed = change(farm, tuning_job, trials=None, patience_trials=8)
    assert (changed.budget["trials"], changed.budget["patience_trials"]) == (None, 8)
    assert change(farm, tuning_job, patience_trials=8).event_seq == changed.event_seq  # nothing new


def test_of_a_change_all_is_made_or_nothing(farm, tuning_job) -> None:
    def labels() -> tuple[list[str], str]:
        job = farm.job(tuning_job.id)
        return job.tags, job.note

    for wrong in (
        {"priority": "silly"},
        {"budget": {"trials": 0}},
        {"priority": 1, "budget": {"trials": None}},
    ):
        with pytest.raises(InvalidInputError):
            change_job(farm.services, tuning_job.id, JobChange(**wrong, tags=["new"], note="new"))
        assert (labels(), farm.job(tuning_job.id).priority) == (([], ""), 0)
    changed = change_job(farm.services, tuning_job.id, JobChange(priority=2, tags=["new"]))
    assert (changed.priority, changed.tags, labels()) == (2, ["new"], (["new"], ""))
    cancel_job(farm.services, tuning_job.id)
    farm.run()
    with pytest.raises(ConflictError):
        change_job(farm.services, tuning_job.id, JobChange(priority=3, tags=["late"]))
    assert labels() == (["new"], "")
    assert change_job(farm.services, tuning_job.id, JobChange(tags=["late"])).tags == ["late"]


class Pausing(ReplayEngine):
    """Stops in the middle of every measurement until it is let go."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.go_on = threading.Event()
        super().__init__(self._answer)

    def _answer(self, task, config):
        self.entered.set()
        self.go_on.wait(60)
        return landscape_answer(task, config)


@pytest.mark.parametrize(("trials", "total"), [(40, 40), (12, 16)])
def test_a_budget_is_changed_while_a_round_runs(farm, tuning_job, trials: int, total: int) -> None:
    """It counts from that round's end on."""
    engine = Pausing()
    thread = threading.Thread(target=farm.with_engine(engine).run)
    thread.start()
    assert engine.entered.wait(60)
    change(farm, tuning_job, trials=trials)
    engine.go_on.set()
    thread.join(60)
    job = farm.job(tuning_job.id)
    assert (job.state, job.trials) == (JobState.SUCCEEDED, total)


def test_a_search_that_has_ended_goes_on_before_it_is_compiled(farm, tuning_job) -> None:
    farm.run(steps=2)
    job = farm.job(tuning_job.id)
    assert (job.state, job.stop_reason, job.trials) == (JobState.COMPILING, "trials", 24)
    for useless in ({"trials": 20}, {"trials": 24, "patience_trials": 500}):
        with pytest.raises(ConflictError) as refused:
            change(farm, job, **useless)
        assert refused.value.code == "search-ended"
    job = change(farm, job, trials=32)
    assert (job.state, job.stop_reason, job.progress) == (JobState.TUNING, None, {"phase": "tuning"})
    (compiling,) = [step for step in farm.steps(job.id) if step.kind is StepKind.COMPILE]
    assert compiling.state is StepState.CANCELLED
    farm.run()
    job = farm.job(job.id)
    assert (job.state, job.trials) == (JobState.SUCCEEDED, 32)
    assert len({(t.position, t.config_key) for t in farm.trials(job.id)}) == 32
    with pytest.raises(ConflictError, match="submit another job") as late:
        change(farm, job, trials=64)
    assert late.value.code == "job-state"


def test_a_compiler_at_work_is_stopped_for_more_search(farm) -> None:
    model = farm.ready_model(Scenario(tasks=1, compile_sec=3600.0))
    device = farm.add_device()
    job = farm.submit(model, trials=8)
    thread = threading.Thread(target=farm.run)
    thread.start()

    def compiles() -> bool:
        return farm.job(job.id).state is JobState.COMPILING and farm.device(device.id).lease_owner is not None

    wait_until(compiles, "the compiler to begin")
    change(farm, job, trials=16)
    wait_until(lambda: farm.job(job.id).trials == 16, "the search to go on")
    wait_until(compiles, "the compiler to begin again")
    cancel_job(farm.services, job.id)
    thread.join(60)
    assert not thread.is_alive()


def test_a_paused_job_is_extended_and_stays_paused(farm, tuning_job) -> None:
    farm.run(steps=2)
    pause_job(farm.services, tuning_job.id)
    changed = change(farm, tuning_job, trials=32)
    assert (changed.state, changed.progress["paused_in"]) == (JobState.PAUSED, "tuning")
    farm.run()
    assert farm.job(tuning_job.id).trials == 24
    assert resume_job(farm.services, tuning_job.id).state is JobState.TUNING
    farm.run()
    assert (farm.job(tuning_job.id).state, farm.job(tuning_job.id).trials) == (JobState.SUCCEEDED, 32)


def test_where_nothing_is_left_to_try_no_budget_helps(farm) -> None:
    farm.add_device()
    job = farm.submit(farm.ready_model(Scenario(tasks=1, extent=1)), trials=1000)
    while farm.job(job.id).state is not JobState.COMPILING:
        farm.run(steps=1)
    with pytest.raises(ConflictError, match="exhausted") as refused:
        change(farm, job, trials=2000)
    assert refused.value.code == "search-ended"
    farm.run()
    assert farm.job(job.id).state is JobState.SUCCEEDED


def lost(task, config):
    return Failure(Outcome.INFRASTRUCTURE_ERROR, "the device is gone")


def test_a_failed_job_is_retried_with_what_failed(farm, tuning_job) -> None:
    broken = farm.with_engine(ReplayEngine(lost)).with_settings(max_step_attempts=1)
    broken.run()
    failed = farm.job(tuning_job.id)
    assert (failed.state, failed.error["code"], failed.trials) == (JobState.FAILED, "device-lost", 8)
    before = farm.trials(failed.id)
    with pytest.raises(ConflictError) as refused:
        change(farm, failed, trials=64)
    assert refused.value.code == "job-state"

    job = retry_job(farm.services, failed.id)
    assert (job.state, job.error, job.finished_at) == (JobState.TUNING, None, None)
    farm.run_until_quiet()
    job = farm.job(job.id)
    assert (job.state, job.trials) == (JobState.SUCCEEDED, 24)
    trials = farm.trials(job.id)
    assert trials[: len(before)] == before, "nothing was done again"
    assert len({(t.position, t.config_key) for t in trials}) == 24
    kinds = farm.events(job.id)
    assert (kinds.count("retried"), kinds.count("finished")) == (1, 2)  # the first end stays on record


def test_a_failed_compile_is_retried_without_another_search(farm) -> None:
    class Broken(ReplayEngine):
        def compile(self, *args, **kwargs):
            raise TransientError("the store is away", code="store-unavailable")

    farm.add_device()
    job = farm.submit(farm.ready_model(), trials=8)
    farm.with_engine(Broken()).with_settings(max_step_attempts=1).run()
    assert farm.job(job.id).error["code"] == "store-unavailable"
    rounds = [step.id for step in farm.steps(job.id) if step.kind is StepKind.TUNE]
    assert retry_job(farm.services, job.id).state is JobState.COMPILING
    assert retry_job(farm.services, job.id).state is JobState.COMPILING  # again: nothing
    farm.run()
    assert farm.job(job.id).state is JobState.SUCCEEDED
    assert [step.id for step in farm.steps(job.id) if step.kind is StepKind.TUNE] == rounds
    assert farm.events(job.id).count("retried") == 1
    with pytest.raises(ConflictError) as refused:
        retry_job(farm.services, job.id)
    assert refused.value.code == "job-state"


def test_what_cannot_be_retried(farm, tuning_job) -> None:
    cancel_job(farm.services, tuning_job.id)
    with pytest.raises(ConflictError, match="cancelled"):
        retry_job(farm.services, tuning_job.id)
    with pytest.raises(NotFoundError):
        retry_job(farm.services, "job_nothing")
