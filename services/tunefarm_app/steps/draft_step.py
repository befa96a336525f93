"""The draft step: compiles a job's network in the background, so that the job has something to offer, and to time, early."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import structlog

from tunefarm_app.engines.interface import CompiledFile, CompileTerms
from tunefarm_app.jobs.drafts import holds_draft, note_network, wants_draft
from tunefarm_app.jobs.network_timings import costs_now
from tunefarm_app.jobs.transitions import fail_subject
from tunefarm_app.leases.step_context import StepContext
from tunefarm_app.models.quantised import job_model
from tunefarm_app.models.samples import sample_ids
from tunefarm_app.steps.attestation import CompileFacts, Signer
from tunefarm_app.steps.compile_step import MEDIA_TYPE
from tunefarm_app.steps.draft_watch import OWN_JOB, UNWANTED, giving_way
from tunefarm_app.storage.blob_store import StoredBlob
from tunefarm_app.storage.file_names import file_stem
from tunefarm_app.storage.job_options import max_error_of, precision_of
from tunefarm_app.storage.rows import engine_record
from tunefarm_db.repositories.records.records import RecordFilter
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import Job, JobTask, Record, SampleFile, StepState
from tunefarm_db.values import Model as ModelRow
from tunefarm_tuning.core.cancellation import Cancellation
from tunefarm_tuning.core.errors import InvalidInputError, TransientError
from tunefarm_tuning.process.scratch import ScratchDir
from tunefarm_tuning.records.findings import Findings
from tunefarm_tuning.records.history import History
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.workload.model import Model

log = structlog.stdlib.get_logger(__name__)

_INPUTS = "application/vnd.tunefarm.inputs"
_BUSY_SEC = 15.0
_LONGEST_BUSY_SEC = 600.0
"""How long a draft waits after it made room: twice as long each time, up to this."""
_ELSEWHERE = "draft-elsewhere"
_ELSEWHERE_TRIES = 16
_ELSEWHERE_SEC = 5.0
_LONGEST_ELSEWHERE_SEC = 60.0
"""Workers that cannot run the target's code pass a draft on so often, within about twelve minutes."""


def run_draft(context: StepContext) -> None:
    """Compile the network, check it on this machine, and offer it as the job's draft, or have it timed first.

    The first one (round 0) is untuned, later ones have the kernels so far. It takes no device and ranks behind other work for processor time; as soon as another step waits for a worker, it makes room
    for that. A worker whose machine cannot run the target's code leaves it to another one. Its kernels' object code is kept for
    the job's own compile.

    Raises:
        InvalidInputError: If the network cannot be compiled; the search goes on.
        TransientError: ``no-signing-key`` if the farm signs its results, and this worker cannot.
    """
    services, step = context.services, context.step
    with services.uow.read() as repos:
        draft = _read(context, repos)
    job = draft.job
    if not wants_draft(job, step.round):
        with context.commit():
            return
    if holds_draft(job):
        _give_way(context, OWN_JOB)
        return
    if not context.engine.runs_here(Target.from_json(job.target)):
        _pass_on(context)
        return
    signer, began = Signer.of(services), time.monotonic()
    with closing(ScratchDir()) as scratch, giving_way(context, job) as watch:
        try:
            model = job_model(services, job, draft.model)
            compiled = _compile(context, draft, model, scratch.path, watch.cancellation)
        except Exception:
            if watch.way_for is None or context.lease.reason is not None:
                raise
            _give_way(context, watch.way_for)
            return
        blob = services.blobs.put_file(compiled.path)
        inputs = None if compiled.inputs is None else services.blobs.put_file(compiled.inputs)
    compile_facts = CompileFacts(
        job=job,
        model=draft.model,
        compiled_sha256=model.sha256,
        samples=draft.samples,
        records=draft.records,
        took_sec=time.monotonic() - began,
    )
    _commit(context, draft, compiled, (blob, inputs), signer.sign(compiled, blob, compile_facts))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Draft:
    """What a draft is compiled from: the job as it is now, and the best records of its tasks so far, by workload key."""

    job: Job
    model: ModelRow
    samples: Sequence[SampleFile]
    tasks: Sequence[JobTask]
    records: Mapping[str, Record]


def _read(context: StepContext, repos: Repositories) -> _Draft:
    job = repos.jobs.get(context.step.subject_id)
    tasks = repos.jobs.tasks(job.id) if context.step.round else ()
    return _Draft(
        job=job,
        model=repos.models.get(job.model_id),
        samples=[repos.samples.get(job.model_id, samples_id) for samples_id in sample_ids(job.options)],
        tasks=tasks,
        records=_records_so_far(context, repos, job, tasks),
    )


def _compile(
    context: StepContext, draft: _Draft, model: Model, folder: Path, cancellation: Cancellation
) -> CompiledFile:
    services, job = context.services, draft.job
    findings = Findings(objects=services.settings.objects_dir, references=services.settings.references_dir)
    compiled = context.engine.compile(
        model,
        Target.from_json(job.target),
        History(map(engine_record, draft.records.values()), findings),
        CompileTerms(
            precision=precision_of(job).of_network,
            max_error=max_error_of(job),
            other_shapes=False,
            samples=[services.blobs.path(sample_file.sha256) for sample_file in draft.samples],
            goal_sec=0.0,
        ),
        device=None,
        output=folder / f"{file_stem(draft.model.name)}.tunefarm",
        cancellation=cancellation,
        on_progress=lambda _phase, _done: context.lease.check(),
    )
    context.lease.check()
    return compiled


def _commit(
    context: StepContext,
    draft: _Draft,
    compiled: CompiledFile,
    blobs: tuple[StoredBlob, StoredBlob | None],
    envelope: str | None,
) -> None:
    """Store the network and its inputs, unless the job needs no draft any more or it is too large for one."""
    services, number = context.services, context.step.round
    blob, inputs = blobs
    limit_bytes = services.settings.max_drafts_bytes
    with context.commit() as repos:
        job = repos.jobs.get(draft.job.id, lock=True)
        if not wants_draft(job, number):
            return
        if blob.size_bytes > limit_bytes:
            error = InvalidInputError(
                f"it is larger than the limit for all drafts together ({limit_bytes} bytes)",
                code="draft-too-large",
            )
            repos.events.add(job.id, "undrafted", {"error": error.to_json()})
            return
        repos.blobs.add(blob.sha256, size_bytes=blob.size_bytes, media_type=MEDIA_TYPE)
        services.blobs.path(blob.sha256)  # a sweep may have come between
        if inputs is not None:
            repos.blobs.add(inputs.sha256, size_bytes=inputs.size_bytes, media_type=_INPUTS)
            services.blobs.path(inputs.sha256)
        note_network(
            repos,
            services.settings,
            job,
            number,
            compiled,
            blobs,
            began_sec=draft.job.tuned_sec,
            costs=costs_now(draft.tasks),
            envelope=envelope,
        )
    log.info("draft stored", job_id=job.id, size_bytes=blob.size_bytes)


def _records_so_far(
    context: StepContext, repos: Repositories, job: Job, tasks: Sequence[JobTask]
) -> dict[str, Record]:
    """Return the best record of each task, by workload key, for the device model that the job's newest record is of."""
    newest = repos.records.query(RecordFilter(job_id=job.id), limit=1).items if tasks else ()
    if not newest:
        return {}
    return repos.records.best(
        [task.workload_key for task in tasks],
        target_key=job.target_key,
        device_model=newest[0].device_model,
        toolchain=context.engine.toolchain,
    )


def _give_way(context: StepContext, way_for: str) -> None:
    step = context.step
    with context.services.uow.write() as repos:
        if way_for == UNWANTED:
            repos.steps.finish(step.id, step.fence, state=StepState.CANCELLED)
        else:
            delay_sec = min(_BUSY_SEC * 2.0 ** min(step.fence - 1, 10), _LONGEST_BUSY_SEC)
            # Its error counts the workers that passed it on.
            repos.steps.release(step.id, step.fence, delay_sec=delay_sec, error=step.error)
    log.info("draft gives way", to=way_for)


def _pass_on(context: StepContext) -> None:
    """Leave the draft to a worker on another machine; give it up once none of many was of the target's kind."""
    step = context.step
    before = step.error if step.error is not None and step.error.get("code") == _ELSEWHERE else {}
    tries = int(before.get("fields", {}).get("tries", 0)) + 1
    error = TransientError(
        f"no worker that took it can run the target's code ({tries} tries)",
        code=_ELSEWHERE,
        tries=tries,
    ).to_json()
    with context.services.uow.write() as repos:
        if tries < _ELSEWHERE_TRIES:
            delay_sec = min(_ELSEWHERE_SEC * 2.0 ** (tries - 1), _LONGEST_ELSEWHERE_SEC)
            repos.steps.release(step.id, step.fence, delay_sec=delay_sec, error=error)
        else:
            repos.steps.finish(step.id, step.fence, state=StepState.FAILED, error=error)
            fail_subject(repos, step, error)
    log.info("draft left to another worker", tries=tries)
