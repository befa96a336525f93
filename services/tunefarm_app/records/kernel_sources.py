"""The source of a job's winning kernels: made by a worker when somebody first asks, and kept in the store.

What it is made of (the workload's IR, the record's config, the target) is all on record: so it can be had while a job still
runs, after one that failed, and when the model is deleted. It takes a compiler of the version that measured the record.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from dataclasses import dataclass
from enum import StrEnum

from tunefarm_app.records.farm_facts import FARM
from tunefarm_app.runtime.composition import Services
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import (
    Artifact,
    Job,
    JobTask,
    Json,
    Record,
    Source,
    SourceState,
    Step,
    StepKind,
    StepState,
)
from tunefarm_tuning.compiler.kernel_source import KernelSource
from tunefarm_tuning.core.errors import ConflictError, NotFoundError

MEDIA_TYPE = "application/vnd.tunefarm.kernel-source+gzip"
TRY_AGAIN_SEC = 600.0
"""What could not be made is tried again when somebody asks so long after: another worker may have come."""

_NOT_TAKEN_SEC = 5.0


class Progress(StrEnum):
    """How far the source of a job's kernel is."""

    NO_KERNEL = "no-kernel"  # no candidate of it has worked yet
    UNASKED = "unasked"
    MAKING = "making"
    READY = "ready"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Winner:
    """The record that a kernel's source is of.

    Attributes:
        in_artifact: It is the one that the job's artifact was compiled with; else the best on record.
    """

    record: Record
    in_artifact: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceView:
    """What there is of a kernel's source.

    Attributes:
        winner: None where no candidate has worked.
        source: Where it is ready.
        sha256: Of its blob.
        error: Why it cannot be made.
        waiting: No worker has taken it for some time.
    """

    progress: Progress
    winner: Winner | None = None
    source: KernelSource | None = None
    sha256: str = ""
    error: Json | None = None
    waiting: bool = False


def source_of(services: Services, job_id: str, position: int, *, ask: bool) -> SourceView:
    """Return the source of a kernel's winning config, or how far it is.

    Args:
        services: The process's services.
        job_id: The job.
        position: Its task.
        ask: Whether it shall be made where it is not there.

    Raises:
        NotFoundError: If there is no such job or task.
        TransientError: If the database takes no writes, and it would have to be asked for.
    """
    with services.uow.read() as repos:
        job = repos.jobs.get(job_id)
        task = job_task(repos, job_id, position)
        winner = winner_of(repos, job, task, repos.artifacts.for_job(job_id))
        if winner is None:
            return SourceView(progress=Progress.NO_KERNEL)
        row = repos.sources.find(source_key(winner.record))
        step = None if row is None else _step_of(repos, row)
        now = repos.now()
    view = _view(services, winner, row, step, now)
    if ask and _is_to_be_made(view, row, now):
        _begin(services, job, winner.record)
        return SourceView(progress=Progress.MAKING, winner=winner)
    return view


def source_key(record: Record) -> str:
    """Return what names the source of a record's config, whichever of the config's records it is."""
    parts = [record.workload_key, record.target_key, record.toolchain, record.space_key, record.config]
    return hashlib.sha256(json.dumps(parts, separators=(",", ":")).encode()).hexdigest()


def job_task(repos: Repositories, job_id: str, position: int) -> JobTask:
    """Return one of a job's tasks.

    Raises:
        NotFoundError: ``task-not-found``.
    """
    tasks = repos.jobs.tasks(job_id)
    if position >= len(tasks):
        raise NotFoundError("the job has no such task", code="task-not-found", position=position)
    return tasks[position]


def winner_of(repos: Repositories, job: Job, task: JobTask, artifact: Artifact | None) -> Winner | None:
    """Return the record that won: the artifact's; else the best of where the job measured the task, or may do so."""
    held = _record_in(repos, artifact, task)
    if held is not None:
        return Winner(record=held, in_artifact=True)
    fastest = repos.searches.fastest(job.id, task.position)
    own = None if fastest is None or fastest.record_id is None else repos.searches.record(fastest.record_id)
    models = (
        {device.device_model for device in repos.devices.in_pool(job.device_key)}
        if own is None
        else {own.device_model}
    )
    records: list[Record] = []
    for model in sorted(models):
        best = repos.records.best(
            [task.workload_key], target_key=job.target_key, device_model=model, toolchain=task.toolchain
        )
        records += best.values()
    best_of_all = min(records, key=lambda record: record.cost_sec or 0.0, default=own)
    return None if best_of_all is None else Winner(record=best_of_all, in_artifact=False)


def _record_in(repos: Repositories, artifact: Artifact | None, task: JobTask) -> Record | None:
    if artifact is None:
        return None
    held = ((artifact.report.get(FARM) or {}).get("records") or {}).get(task.workload_key)
    coverage = artifact.report.get("coverage") or {}
    missed = {miss.get("workload_key") for miss in coverage.get("misses") or ()}
    if not held or task.workload_key in missed:
        return None
    return repos.searches.record(str(held.get("record_id")))


def pack_source(source: KernelSource) -> bytes:
    """Return the source as its blob: equal sources are equal blobs."""
    return gzip.compress(json.dumps(source.to_json()).encode(), mtime=0)


def _read(services: Services, sha256: str) -> KernelSource | None:
    try:
        return KernelSource.from_json(json.loads(gzip.decompress(services.blobs.path(sha256).read_bytes())))
    except (NotFoundError, OSError, EOFError, zlib.error, ValueError, KeyError, TypeError):
        return None  # it is gone, or damaged: it can be made again


def _step_of(repos: Repositories, row: Source) -> Step | None:
    newest = repos.steps.next_round(StepKind.SOURCE, row.key) - 1
    return repos.steps.find(StepKind.SOURCE, row.key, newest)


def _view(
    services: Services, winner: Winner, row: Source | None, step: Step | None, now: float
) -> SourceView:
    if row is None:
        return SourceView(progress=Progress.UNASKED, winner=winner)
    if row.state is SourceState.READY and row.sha256 is not None:
        source = _read(services, row.sha256)
        if source is None:
            return SourceView(progress=Progress.UNASKED, winner=winner)
        return SourceView(progress=Progress.READY, winner=winner, source=source, sha256=row.sha256)
    if row.state is SourceState.FAILED:
        return SourceView(progress=Progress.FAILED, winner=winner, error=row.error)
    if step is None or step.finished_at is not None:
        return SourceView(progress=Progress.UNASKED, winner=winner)  # as after a restored backup
    waiting = step.state is StepState.READY and now > step.created_at + _NOT_TAKEN_SEC
    return SourceView(progress=Progress.MAKING, winner=winner, waiting=waiting)


def _is_to_be_made(view: SourceView, row: Source | None, now: float) -> bool:
    if view.progress is Progress.FAILED:
        return row is not None and now > row.updated_at + TRY_AGAIN_SEC
    return view.progress is Progress.UNASKED


def _begin(services: Services, job: Job, record: Record) -> None:
    key = source_key(record)
    try:
        with services.uow.write() as repos:
            repos.sources.begin(key, record_id=record.id, target=job.target)
            # Of no job: it goes on when the job is paused, and does not end with it.
            step = repos.steps.add(
                StepKind.SOURCE,
                subject_id=key,
                model_id=job.model_id,
                round=repos.steps.next_round(StepKind.SOURCE, key),
            )
            repos.steps.mark_sent([step.id])
    except ConflictError:
        return  # somebody asked at the same moment
    services.dispatcher.send(step.id, StepKind.SOURCE)
