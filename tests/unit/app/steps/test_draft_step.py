"""The draft step beside a search: it gives way, survives killed workers, and never fails its job."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from app_farm import Farm

from tunefarm_app.engines.interface import CompiledFile
from tunefarm_app.engines.replay import ReplayEngine
from tunefarm_app.engines.scenario import Scenario
from tunefarm_app.jobs.control import cancel_job, finish_job, pause_job
from tunefarm_app.operations.reconcile import reap
from tunefarm_app.steps import draft_step, draft_watch, run
from tunefarm_app.steps.run import run_step
from tunefarm_db.states.job import JobState
from tunefarm_db.values import Job, Step, StepKind, StepState
from tunefarm_tuning.core.errors import CancelledError, InvalidModelError


@pytest.fixture
def searching(farm: Farm) -> Job:
    farm.add_device()
    job = farm.with_settings(max_drafts_bytes=1 << 20).submit(farm.ready_model(Scenario(tasks=2)), trials=32)
    farm.with_settings(max_drafts_bytes=1 << 20).run(steps=1)
    assert farm.job(job.id).state is JobState.TUNING
    farm.inbox.messages.clear()
    return job


class Drafting(ReplayEngine):
    """Compiles until it is told to go on, or cancelled."""

    def __init__(self) -> None:
        super().__init__(drafts=True)
        self.entered, self.go_on = threading.Event(), threading.Event()

    def compile(self, *args: Any, **terms: Any) -> CompiledFile:
        self.entered.set()
        with terms["cancellation"].attach(self):
            self.go_on.wait(60)
        if terms["cancellation"].cancelled:
            raise CancelledError("the compile was cancelled")
        return super().compile(*args, **terms)

    def close(self) -> None:
        self.go_on.set()


def draft_step_of(farm: Farm, job: Job) -> Step:
    with farm.services.uow.read() as repos:
        step = repos.steps.find("draft", job.id)
    assert step is not None
    return step


def has_draft(farm: Farm, job: Job) -> bool:
    with farm.services.uow.read() as repos:
        return bool(repos.drafts.of([job.id]))


def started(farm: Farm, job: Job, engine: Drafting) -> threading.Thread:
    worker = farm.with_engine(engine).with_settings(max_drafts_bytes=1 << 20)
    thread = threading.Thread(target=run_step, args=(draft_step_of(farm, job).id, worker.services))
    thread.start()
    assert engine.entered.wait(60)
    return thread


@pytest.mark.parametrize(
    ("end", "state"),
    [
        (cancel_job, StepState.CANCELLED),
        (finish_job, StepState.READY),  # the job's own compile may fail
        (pause_job, StepState.READY),
    ],
)
def test_it_stops_with_the_search(farm: Farm, searching: Job, end: Any, state: StepState) -> None:
    engine = Drafting()
    thread = started(farm, searching, engine)
    end(farm.services, searching.id)
    thread.join(60)
    assert not thread.is_alive()
    assert draft_step_of(farm, searching).state is state
    assert not has_draft(farm, searching)
    assert "undrafted" not in farm.events(searching.id)
    if state is not StepState.READY:
        return
    with farm.services.uow.write() as repos:
        repos.steps.expedite(draft_step_of(farm, searching).id)
    again = Drafting()
    run_step(draft_step_of(farm, searching).id, farm.with_engine(again).services)
    assert not again.entered.is_set()
    assert draft_step_of(farm, searching).state is StepState.READY
    if end is finish_job:
        farm.run_until_quiet()
        assert farm.job(searching.id).state is JobState.SUCCEEDED
        assert draft_step_of(farm, searching).state is StepState.CANCELLED


def test_what_is_finished_when_the_job_compiles_is_offered(farm: Farm, searching: Job) -> None:
    class Late(ReplayEngine):
        def compile(self, *args: Any, **terms: Any) -> CompiledFile:
            compiled = super().compile(*args, **terms)
            finish_job(farm.services, searching.id)
            return compiled

    worker = farm.with_engine(Late(drafts=True)).with_settings(max_drafts_bytes=1 << 20)
    run_step(draft_step_of(farm, searching).id, worker.services)
    assert farm.job(searching.id).state is JobState.COMPILING
    assert has_draft(farm, searching)


def tried_elsewhere(farm: Farm, job: Job) -> Step:
    """Let a worker whose machine cannot run the job's code take the draft step."""
    with farm.services.uow.write() as repos:
        repos.steps.expedite(draft_step_of(farm, job).id)
    run_step(draft_step_of(farm, job).id, farm.with_engine(ReplayEngine(drafts=False)).services)
    return draft_step_of(farm, job)


def test_a_worker_on_another_kind_of_machine_leaves_it_to_others(farm: Farm, searching: Job) -> None:
    for _ in range(3):
        assert tried_elsewhere(farm, searching).state is StepState.READY
    with farm.services.uow.write() as repos:
        repos.steps.expedite(draft_step_of(farm, searching).id)
    engine = Drafting()
    engine.go_on.set()
    started(farm, searching, engine).join(60)
    assert has_draft(farm, searching)


def test_it_is_given_up_where_no_worker_can_run_it(farm: Farm, searching: Job) -> None:
    tries = 0
    while tried_elsewhere(farm, searching).state is StepState.READY:
        assert "undrafted" not in farm.events(searching.id)
        tries += 1
        assert tries < 100
    assert tries > 5
    assert draft_step_of(farm, searching).state is StepState.FAILED
    assert farm.events(searching.id).count("undrafted") == 1
    assert farm.job(searching.id).state is JobState.TUNING


def test_it_makes_room_for_steps_that_wait_for_a_worker_and_comes_back(
    farm: Farm, searching: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(draft_step, "_BUSY_SEC", 0.0)
    farm.inbox.messages.append("another job's step")
    started(farm, searching, Drafting()).join(60)
    step = draft_step_of(farm, searching)
    assert (step.state, step.attempts) == (StepState.READY, 0)
    farm.inbox.messages.clear()
    engine = Drafting()
    engine.go_on.set()
    started(farm, searching, engine).join(60)
    assert has_draft(farm, searching)


def test_drafts_do_not_give_way_to_each_other_and_end_no_turn(farm: Farm, searching: Job) -> None:
    farm.inbox.send(draft_step_of(farm, searching).id, StepKind.DRAFT)
    assert not draft_watch._steps_wait(farm.services)
    assert run._may_go_on(farm.with_settings(step_turn_sec=0.0).services, 1.0)
    farm.inbox.send("another job's step", StepKind.MEASURE)
    assert draft_watch._steps_wait(farm.services)
    assert not run._may_go_on(farm.with_settings(step_turn_sec=0.0).services, 1.0)


def test_it_comes_back_later_each_time_it_made_room(farm: Farm, searching: Job) -> None:
    delays = []
    for _ in range(5):
        farm.inbox.messages[:] = ["another job's step"]
        started(farm, searching, Drafting()).join(60)
        with farm.services.uow.read() as repos:
            delays.append(draft_step_of(farm, searching).not_before - repos.now())
        with farm.services.uow.write() as repos:
            repos.steps.expedite(draft_step_of(farm, searching).id)
    assert [round(sec) for sec in delays] == [15, 30, 60, 120, 240]


def test_a_killed_worker_leaves_nothing_and_another_one_makes_it_once(farm: Farm, searching: Job) -> None:
    stalled = Drafting()
    thread = started(farm, searching, stalled)
    farm.end_leases()
    (reaped,) = reap(farm.services)
    assert (reaped.id, reaped.state) == (draft_step_of(farm, searching).id, StepState.READY)
    prompt = Drafting()
    prompt.go_on.set()
    started(farm, searching, prompt).join(60)
    assert has_draft(farm, searching)
    again = Drafting()  # the message comes once more
    worker = farm.with_engine(again).with_settings(max_drafts_bytes=1 << 20)
    assert run_step(reaped.id, worker.services) == []
    assert not again.entered.is_set()
    stalled.go_on.set()
    thread.join(60)
    assert farm.events(searching.id).count("draft") == 1


def test_its_failure_is_told_and_the_search_goes_on(farm: Farm, searching: Job) -> None:
    class Failing(ReplayEngine):
        def compile(self, *_: Any, **__: Any) -> CompiledFile:
            raise InvalidModelError("LLVM does not like it", code="compile-failed")

    worker = farm.with_engine(Failing(drafts=True))
    run_step(draft_step_of(farm, searching).id, worker.services)
    assert draft_step_of(farm, searching).state is StepState.FAILED
    assert "undrafted" in farm.events(searching.id)
    assert farm.job(searching.id).state is JobState.TUNING


def test_a_full_store_is_waited_out(farm: Farm, searching: Job, tmp_path: Path) -> None:
    class Full(ReplayEngine):
        def compile(self, *_: Any, **__: Any) -> CompiledFile:
            raise OSError(28, "No space left on device", str(tmp_path))

    run_step(draft_step_of(farm, searching).id, farm.with_engine(Full(drafts=True)).services)
    step = draft_step_of(farm, searching)
    assert (step.state, (step.error or {}).get("code")) == (StepState.READY, "disk-full")
    assert farm.job(searching.id).state is JobState.TUNING
