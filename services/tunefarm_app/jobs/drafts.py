"""Drafts: what a job offers until it has an artifact.

When a search begins, a draft step compiles the network untuned, in the background. While it goes on, further draft steps compile it
with the kernels so far, as soon as these promise enough (`tunefarm_app.jobs.network_timings`). What `compile_now` makes of the records
so far replaces a draft as well, and the job's own artifact ends it. A job that failed or was cancelled keeps its draft.
"""

from __future__ import annotations

from tunefarm_app.engines.interface import CompiledFile
from tunefarm_app.jobs.network_timings import (
    costs_then,
    expected_sec,
    may_compile_again,
    offer_network,
    promised_gain,
    promises_enough,
    put_draft,
    why_never,
)
from tunefarm_app.leases.step_context import StepContext
from tunefarm_app.models.quantised import job_pipeline
from tunefarm_app.settings import Settings
from tunefarm_app.storage.blob_store import StoredBlob
from tunefarm_db.states.job import JobState
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import Draft, Job, Json, StepKind, StepState

_CPU = "llvm"


def plan_draft(context: StepContext, repos: Repositories, job: Job) -> None:
    """Plan the job's draft step, if the farm makes drafts. On a GPU a draft would need the device, which the search has."""
    if not context.services.settings.max_drafts_bytes or job.target.get("kind") != _CPU:
        return
    # It belongs to no job: it goes on beside the job's own steps, and none of these waits for it.
    context.follow_with(repos, repos.steps.add(StepKind.DRAFT, subject_id=job.id, model_id=job.model_id))


def plan_next_draft(context: StepContext, repos: Repositories, job: Job) -> None:
    """Plan the job's next draft step, if its kernels have become so much faster that the network should be compiled with them.

    None is planned while there is one, or where none came through.

    Args:
        context: The step that commits a round.
        repos: Its transaction, with the job's row locked.
        job: The job.
    """
    settings = context.services.settings
    networks = repos.network_timings.of(job.id) if settings.max_drafts_bytes else ()
    if not networks or not may_compile_again(job, networks[-1], settings):
        return
    number = repos.steps.next_round(StepKind.DRAFT, job.id)
    last = repos.steps.find(StepKind.DRAFT, job.id, number - 1)
    if last is None or last.state is not StepState.DONE:
        return
    tasks = repos.jobs.tasks(job.id)
    flops = repos.models.flops(job.model_id, pipeline=job_pipeline(job), toolchain=context.engine.toolchain)
    newest = networks[-1]
    gain = promised_gain(tasks, flops, costs_then(newest, len(tasks)), newest.latency_sec)
    if not promises_enough(gain):
        return
    step = repos.steps.add(StepKind.DRAFT, subject_id=job.id, model_id=job.model_id, round=number)
    context.send_along(repos, step)


def wants_draft(job: Job, number: int = 0) -> bool:
    """Return whether a draft is still of use: not once the job has its artifact, or was given up.

    Args:
        job: The job.
        number: The draft's: one with tuned kernels is of use while the search goes on.
    """
    if number:
        return job.state in (JobState.TUNING, JobState.PAUSED) and job.stop_reason is None
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
    tasks, covered = coverage_of(compiled)
    draft = Draft(
        job_id=job_id,
        sha256=blob.sha256,
        size_bytes=blob.size_bytes,
        name=compiled.path.name,
        tasks=tasks,
        covered=covered,
        created_at=0.0,
        envelope=envelope,
    )
    return put_draft(repos, draft, limit_bytes=limit_bytes)


def coverage_of(compiled: CompiledFile) -> tuple[int, int]:
    """Return how many tasks a network has, and how many of them run a tuned kernel."""
    coverage = compiled.report.get("coverage") or {}
    return int(coverage.get("tasks", 0)), int(coverage.get("covered", 0))


def note_network(
    repos: Repositories,
    settings: Settings,
    job: Job,
    number: int,
    compiled: CompiledFile,
    blobs: tuple[StoredBlob, StoredBlob | None],
    *,
    began_sec: float,
    costs: Json,
    envelope: str | None = None,
) -> None:
    """Store a network that a draft step compiled, to be timed; offer one that will not be timed.

    Args:
        repos: A write transaction; the blobs are in `Blobs` already.
        settings: The farm's.
        job: The job.
        number: The step's round. The untuned network is 0.
        compiled: The network.
        blobs: Its artifact, and its inputs, if it can be timed on any.
        began_sec: Seconds of search when the compile began.
        costs: Its kernels' costs then.
        envelope: The signed statement about the artifact; None if the farm does not sign.
    """
    artifact, inputs = blobs
    tasks, covered = coverage_of(compiled)
    expected = expected_sec(size_bytes=artifact.size_bytes, latency_here_sec=_latency_of(compiled))
    networks = repos.network_timings.of(job.id)
    timed = [network for network in networks if network.latency_sec is not None]
    error = why_never(job, timed[-1] if timed else None, expected, settings)
    if inputs is None:
        error = {"code": "runs-parts", "message": "ONNX Runtime runs parts of the network"}
    repos.network_timings.add(
        job.id,
        number,
        sha256=artifact.sha256,
        inputs_sha256="" if inputs is None else inputs.sha256,
        size_bytes=artifact.size_bytes,
        name=compiled.path.name,
        tasks=tasks,
        covered=covered,
        began_sec=began_sec,
        costs=costs,
        expected_sec=expected,
        error=error,
        envelope=envelope,
    )
    if number == 0 or error is not None:
        networks = repos.network_timings.of(job.id)
        offer_network(repos, networks[-1], networks, limit_bytes=settings.max_drafts_bytes)


def _latency_of(compiled: CompiledFile) -> float | None:
    latency = compiled.report.get("latency") or {}
    median_sec = (latency.get("tuned") or latency.get("untuned") or {}).get("median_sec")
    return float(median_sec) if isinstance(median_sec, int | float) else None
