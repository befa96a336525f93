"""Drafts: what a job offers until it has an artifact.

When a search begins, a draft step compiles the network untuned, in the background. What `compile_now` makes of the records so far
replaces that, and the job's own artifact ends it. A job that failed or was cancelled keeps its draft.
"""

from __future__ import annotations

from tunefarm_app.engines.interface import CompiledFile
from tunefarm_app.leases.step_context import StepContext
from tunefarm_app.storage.blob_store import StoredBlob
from tunefarm_db.states.job import JobState
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import Job, StepKind

_CPU = "llvm"


def plan_draft(context: StepContext, repos: Repositories, job: Job) -> None:
    """Plan the job's draft step, if the farm makes drafts. On a GPU a draft would need the device, which the search has."""
    if not context.services.settings.max_drafts_bytes or job.target.get("kind") != _CPU:
        return
    # It belongs to no job: it goes on beside the job's own steps, and none of these waits for it.
    context.follow_with(repos, repos.steps.add(StepKind.DRAFT, subject_id=job.id, model_id=job.model_id))


def wants_draft(job: Job) -> bool:
    """Return whether an untuned draft is still of use: not once the job has its artifact, or was given up."""
    return job.state not in (JobState.SUCCEEDED, JobState.CANCELLED)


def holds_draft(job: Job) -> bool:
    """Return whether the draft's compile must wait: for the job's own, which may fail, or for a pause to end."""
    return job.state in (JobState.COMPILING, JobState.PAUSED)


def offer_draft(
    repos: Repositories,
    job_id: str,
    blob: StoredBlob,
    compiled: CompiledFile,
    *,
    envelope: str | None = None,
    limit_bytes: int,
) -> bool:
    """Offer a compiled network, whose blob is stored, as the job's draft; return whether it is one now.

    It replaces a draft with no more tuned kernels. A job that has an artifact needs none. If drafts do not fit below the limit
    together, those of other jobs give way, the oldest first; one that does not fit alone is no draft.
    """
    repos.jobs.get(job_id, lock=True)
    if repos.artifacts.for_job(job_id) is not None:
        return False
    if blob.size_bytes > limit_bytes:
        return False
    coverage = compiled.report.get("coverage") or {}
    tasks, covered = int(coverage.get("tasks", 0)), int(coverage.get("covered", 0))
    is_better = repos.drafts.put(
        job_id,
        sha256=blob.sha256,
        size_bytes=blob.size_bytes,
        name=compiled.path.name,
        tasks=tasks,
        covered=covered,
        envelope=envelope,
    )
    if is_better:
        repos.drafts.make_room(job_id, limit_bytes=limit_bytes)
        noted = {"tasks": tasks, "covered": covered, "size_bytes": blob.size_bytes}
        repos.events.add(job_id, "draft", noted)
    return is_better
