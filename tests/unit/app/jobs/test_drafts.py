"""What a job offers until it has an artifact."""

from __future__ import annotations

from pathlib import Path

import pytest
from app_farm import Farm

from tunefarm_app.engines.interface import CompiledFile
from tunefarm_app.engines.replay import ReplayEngine
from tunefarm_app.engines.scenario import Scenario
from tunefarm_app.jobs.artifacts import artifact_of, best_so_far
from tunefarm_app.jobs.control import cancel_job
from tunefarm_app.jobs.drafts import offer_draft
from tunefarm_app.jobs.submit import compile_now
from tunefarm_db.states.job import JobState
from tunefarm_db.values import Draft, Job
from tunefarm_tuning.core.errors import ConflictError

LIMIT = 1 << 20


@pytest.fixture
def drafting(farm: Farm) -> Farm:
    """Return a farm with a device, whose workers' machine can run what they compile."""
    farm.add_device()
    return farm.with_settings(max_drafts_bytes=LIMIT).with_engine(ReplayEngine(drafts=True))


def searching(farm: Farm) -> Job:
    """Return a job whose messages are of its first round and its draft step."""
    job = farm.submit(farm.ready_model(), trials=64)
    farm.run(steps=1)
    assert farm.job(job.id).state is JobState.TUNING
    return job


def draft_of(farm: Farm, job: Job) -> Draft | None:
    with farm.services.uow.read() as repos:
        return repos.drafts.of([job.id]).get(job.id)


def run_draft(farm: Farm, job: Job) -> None:
    """Run the job's draft step, and no other one."""
    with farm.services.uow.read() as repos:
        step = repos.steps.find("draft", job.id)
    assert step is not None
    others = [message for message in farm.inbox.messages if message != step.id]
    farm.inbox.messages[:] = [step.id]
    farm.run(steps=1)
    farm.inbox.messages += others


def test_a_search_offers_an_untuned_network_until_its_artifact_is_there(drafting: Farm) -> None:
    farm, job = drafting, searching(drafting)
    with farm.services.uow.read() as repos, pytest.raises(ConflictError):
        best_so_far(repos, farm.job(job.id))
    run_draft(farm, job)
    draft = draft_of(farm, job)
    assert draft is not None
    assert draft.covered == 0
    assert draft.tasks > 0
    assert farm.services.blobs.path(draft.sha256).stat().st_size == draft.size_bytes
    with farm.services.uow.read() as repos:
        assert best_so_far(repos, farm.job(job.id)) == draft
        with pytest.raises(ConflictError):
            artifact_of(repos, farm.job(job.id))
    farm.run()
    assert farm.job(job.id).state is JobState.SUCCEEDED
    assert draft_of(farm, job) is None
    with farm.services.uow.read() as repos:
        assert best_so_far(repos, farm.job(job.id)) == artifact_of(repos, farm.job(job.id))
    assert farm.events(job.id).count("draft") == 1


def test_what_is_compiled_meanwhile_replaces_it_and_a_cancelled_job_keeps_it(drafting: Farm) -> None:
    farm, job = drafting, searching(drafting)
    run_draft(farm, job)
    now = compile_now(farm.services, job.id).job
    while farm.job(now.id).state is not JobState.SUCCEEDED:
        assert farm.run(steps=1)
    draft = draft_of(farm, job)
    assert draft is not None
    assert draft.covered > 0
    with farm.services.uow.read() as repos:
        assert artifact_of(repos, farm.job(now.id)).sha256 == draft.sha256
    cancel_job(farm.services, job.id)
    farm.run_until_quiet()
    with farm.services.uow.read() as repos:
        assert best_so_far(repos, farm.job(job.id)) == draft
    later = compile_now(farm.services, job.id).job
    farm.run_until_quiet()
    assert farm.job(later.id).state is JobState.SUCCEEDED
    assert draft_of(farm, job) is not None


@pytest.mark.parametrize("terms", [{"search": False, "trials": None}, {}])
def test_no_draft_where_none_is_of_use(farm: Farm, terms: dict[str, object]) -> None:
    """Of a job that does not search, or in a farm that makes none."""
    farm.add_device()
    if terms:
        farm = farm.with_settings(max_drafts_bytes=LIMIT)
    farm = farm.with_engine(ReplayEngine(drafts=True))
    job = farm.submit(farm.ready_model(Scenario(tasks=1)), **terms)  # type: ignore[arg-type]
    farm.run()
    assert farm.job(job.id).state is JobState.SUCCEEDED
    assert "draft" not in farm.events(job.id)
    with farm.services.uow.read() as repos:
        assert repos.steps.find("draft", job.id) is None


def test_another_machines_code_is_not_compiled_here(farm: Farm) -> None:
    farm.add_device()
    farm = farm.with_settings(max_drafts_bytes=LIMIT).with_engine(ReplayEngine(drafts=False))
    job = searching(farm)
    run_draft(farm, job)
    assert draft_of(farm, job) is None
    assert "undrafted" not in farm.events(job.id)


def test_a_draft_that_is_no_better_makes_no_room_and_a_better_one_not_of_its_own_job(
    drafting: Farm, tmp_path: Path
) -> None:
    farm, model = drafting, drafting.ready_model()
    job, other = farm.submit(model, trials=64), farm.submit(model, trials=64)
    path = tmp_path / "a.tunefarm"
    path.write_bytes(b"a" * 60)

    def offered(job: Job, covered: int) -> bool:
        compiled = CompiledFile(path=path, manifest={}, report={"coverage": {"tasks": 2, "covered": covered}})
        with farm.services.uow.write() as repos:
            blob = farm.services.blobs.put_file(path)
            repos.blobs.add(blob.sha256, size_bytes=blob.size_bytes, media_type="application/zip")
            return offer_draft(repos, job.id, blob, compiled, limit_bytes=120)

    assert offered(job, 2)
    assert offered(other, 0)
    assert not offered(job, 1)
    drafts = [draft_of(farm, each) for each in (job, other)]
    assert [draft.covered for draft in drafts if draft is not None] == [2, 0]
    path.write_bytes(b"b" * 100)
    assert offered(job, 2)
    assert (draft_of(farm, job) is not None, draft_of(farm, other)) == (True, None)


def test_a_draft_larger_than_the_limit_is_not_kept(farm: Farm) -> None:
    farm.add_device()
    farm = farm.with_settings(max_drafts_bytes=10).with_engine(ReplayEngine(drafts=True))
    job = searching(farm)
    run_draft(farm, job)
    assert draft_of(farm, job) is None
    assert "undrafted" in farm.events(job.id)
    farm.run()
    assert farm.job(job.id).state is JobState.SUCCEEDED
