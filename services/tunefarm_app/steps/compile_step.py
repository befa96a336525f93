"""The compile step: compiles the job's model with the best records, checks the result, and stores the artifact."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any

import structlog

from tunefarm_app.engines.interface import CompiledFile, CompileTerms
from tunefarm_app.jobs.drafts import offer_draft
from tunefarm_app.jobs.whole_budget import compile_goal_sec
from tunefarm_app.leases.device_wait import wait_for_device
from tunefarm_app.leases.step_context import StepContext
from tunefarm_app.models.quantised import make_job_model
from tunefarm_app.models.samples import sample_ids
from tunefarm_app.records.farm_facts import FARM, farm_facts
from tunefarm_app.records.rooflines import device_model_peak, job_kernels, trusted_peak
from tunefarm_app.report.evidence import Evidence
from tunefarm_app.report.numbers import listed_numbers
from tunefarm_app.steps.attestation import CompileFacts, Signer
from tunefarm_app.storage.blob_store import StoredBlob
from tunefarm_app.storage.file_names import file_stem
from tunefarm_app.storage.job_options import (
    baselines_of,
    max_error_of,
    precision_of,
    searches,
    wants_other_shapes,
)
from tunefarm_app.storage.rows import best_latency_sec, engine_record
from tunefarm_db.repositories.records.records import RecordFilter
from tunefarm_db.states.job import JobState
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import DeviceLease, Job, Record
from tunefarm_tuning.core.errors import TransientError
from tunefarm_tuning.process.scratch import ScratchDir
from tunefarm_tuning.records.findings import Finding, Findings
from tunefarm_tuning.records.history import History
from tunefarm_tuning.target.target import Target

log = structlog.stdlib.get_logger(__name__)

MEDIA_TYPE = "application/vnd.tunefarm.artifact"
_NOTE_EVERY_SEC = 1.0
_DAY_SEC = 86_400.0
_RECORDS_FOR_REASONS = 20
_NEAR_BEST = 8


def run_compile(context: StepContext) -> None:
    """Compile with the best records, also of earlier jobs; check on a leased device; store; finish the job.

    Raises:
        InvalidInputError: If the model cannot be compiled for the target; the job fails with it.
        NotFoundError: ``samples-not-found`` if its samples were deleted.
        DeviceLostError: If the device went away during the checks; the step is tried again.
        TransientError: ``no-signing-key`` if the farm signs its results, and this worker cannot.
    """
    with context.services.uow.read() as repos:
        job = repos.jobs.get(context.job_id)
        row = repos.models.get(job.model_id)
        samples = [repos.samples.get(row.id, samples_id) for samples_id in sample_ids(job.options)]
        tasks = repos.jobs.tasks(job.id)
    signer = Signer.of(context.services)
    device = context.lease.take_device(job.device_key)
    if device is None:
        wait_for_device(context, job)
        return
    best, others = _history(context, job, device, [task.workload_key for task in tasks])
    settings = context.services.settings
    findings = Findings(
        _known_findings(context),
        objects=settings.objects_dir,
        references=settings.references_dir,
        owner=job.owner or "",
    )
    history = History((engine_record(record) for record in [*best.values(), *others]), findings)
    began = time.monotonic()
    with closing(ScratchDir()) as scratch:  # the next compile removes the files of a killed worker
        model = make_job_model(context, job, row)
        compiled = context.engine.compile(
            model,
            Target.from_json(job.target),
            history,
            CompileTerms(
                precision=precision_of(job).of_network,
                max_error=max_error_of(job),
                other_shapes=wants_other_shapes(job),
                baselines=baselines_of(job),
                samples=[context.services.blobs.path(sample_file.sha256) for sample_file in samples],
                goal_sec=compile_goal_sec(job),
                quick=not searches(job),
            ),
            device=device.device,
            output=scratch.path / f"{file_stem(row.name)}.tunefarm",
            cancellation=context.cancellation,
            on_progress=_ProgressNotes(context, job),
        )
        context.lease.check()
        blob = context.services.blobs.put_file(compiled.path)
    compile_facts = CompileFacts(
        job=job,
        model=row,
        compiled_sha256=model.sha256,
        samples=samples,
        device=device.device,
        records=best,
        took_sec=time.monotonic() - began,
    )
    envelope = signer.sign(compiled, blob, compile_facts)
    _commit(context, device, compiled, blob, best, findings.noted, envelope)
    log.info("artifact stored", size_bytes=blob.size_bytes, seconds=round(time.monotonic() - began, 3))


def _known_findings(context: StepContext) -> Callable[[str], Finding | None]:
    age_sec = context.services.settings.remember_days * _DAY_SEC

    def known(key: str) -> Finding | None:
        with context.services.uow.read() as repos:
            finding = repos.findings.find(key, age_sec=age_sec)
        return None if finding is None else finding.value

    return known


def _history(
    context: StepContext, job: Job, device: DeviceLease, workload_keys: Sequence[str]
) -> tuple[dict[str, Record], list[Record]]:
    """Return the best records by workload, and others: of a model of several shapes, the next best of the same spaces.

    Workloads without a record get records that are invalid here: the report says why.
    """
    with context.services.uow.read() as repos:
        best = repos.records.best(
            workload_keys,
            target_key=job.target_key,
            device_model=device.device.device_model,
            toolchain=context.engine.toolchain,
        )
        others: list[Record] = []
        if repos.models.get(job.model_id).specialisations:
            # Of records that are about as fast, those are taken whose kernels share packed weights.
            near = repos.records.top_of(
                workload_keys,
                limit=_NEAR_BEST,
                target_key=job.target_key,
                device_model=device.device.device_model,
                toolchain=context.engine.toolchain,
            )
            others += [
                record
                for key, records in near.items()
                for record in records
                if key in best and record.space_key == best[key].space_key and record.id != best[key].id
            ]
        for key in sorted(set(workload_keys) - best.keys()):
            others += repos.records.query(RecordFilter(workload_key=key), limit=_RECORDS_FOR_REASONS).items
    return best, others


def _commit(
    context: StepContext,
    device: DeviceLease,
    compiled: CompiledFile,
    blob: StoredBlob,
    best: Mapping[str, Record],
    noted: Mapping[str, Finding],
    envelope: str | None,
) -> None:
    with context.commit(device) as repos:
        repos.findings.store({key: dict(finding) for key, finding in noted.items()})
        job = context.job(repos)
        pool = repos.devices.in_pool(job.device_key)
        peak = device_model_peak(repos, device.device)
        repos.blobs.add(blob.sha256, size_bytes=blob.size_bytes, media_type=MEDIA_TYPE)
        context.services.blobs.path(blob.sha256)  # a sweep may have come between
        artifact = repos.artifacts.add(
            job_id=job.id,
            sha256=blob.sha256,
            size_bytes=blob.size_bytes,
            name=compiled.path.name,
            manifest=dict(compiled.manifest),
            report={**compiled.report, FARM: farm_facts(device.device, best, pool, peak)},
            envelope=envelope,
        )
        repos.drafts.delete(job.id)
        repos.steps.cancel_open(subject_id=job.id, skip_locked=True)  # its draft step may wait
        if (of := job.options.get("of")) is not None:
            limit_bytes = context.services.settings.max_drafts_bytes
            offer_draft(repos, str(of), blob, compiled, envelope=envelope, limit_bytes=limit_bytes)
        if not job.trials:  # no round has noted what the compiler used
            job = _note_best(repos, job, best)
        _note_untuned(repos, job, compiled.report)
        kernels = job_kernels(repos, job, repos.jobs.tasks(job.id), repos.models.tasks(job.model_id))
        if trusted_peak(peak, kernels.values()) is not peak:
            repos.peaks.doubt(device.device.id)
        repos.jobs.set_numbers(job.id, **listed_numbers(artifact.report))
        repos.jobs.move(job.id, JobState.SUCCEEDED, artifact_id=artifact.id, progress={"phase": "succeeded"})
        repos.events.add(job.id, "finished", {"state": JobState.SUCCEEDED.value, "artifact_id": artifact.id})


def _note_best(repos: Repositories, job: Job, best: Mapping[str, Record]) -> Job:
    """Store the best recorded cost of each task, and their sum."""
    for task in repos.jobs.tasks(job.id):
        if (record := best.get(task.workload_key)) is not None:
            repos.jobs.update_task(job.id, task.position, best_cost_sec=record.cost_sec)
    return repos.jobs.update(job.id, best_latency_sec=best_latency_sec(repos.jobs.tasks(job.id)))


def _note_untuned(repos: Repositories, job: Job, report: Mapping[str, Any]) -> None:
    """Store each task's time of its untuned kernel, as the compiler measured it: also of those that the artifact runs untuned."""
    untuned_sec = {
        hit["workload_key"]: hit["untuned_sec"] for hit in report.get("coverage", {}).get("hits", ())
    }
    for key, (untuned, _) in Evidence({}, report).kernels().items():
        if untuned is not None:
            untuned_sec[key] = untuned.median_sec
    for task in repos.jobs.tasks(job.id):
        if untuned_sec.get(task.workload_key) is not None:
            repos.jobs.update_task(job.id, task.position, untuned_cost_sec=untuned_sec[task.workload_key])


class _ProgressNotes:
    """Writes the compiler's progress into the job's row, about once a second."""

    def __init__(self, context: StepContext, job: Job) -> None:
        self._context = context
        self._job_id = job.id
        self._phase = ""
        self._next_note = 0.0
        self._began_at: float | None = None

    def __call__(self, phase: str, done: float) -> None:
        self._context.lease.check()
        now = time.monotonic()
        if now < self._next_note and phase == self._phase:
            return
        self._phase = phase
        self._next_note = now + _NOTE_EVERY_SEC
        try:
            with self._context.note() as repos:
                self._began_at = self._began_at or repos.now()
                noted = {"step": phase, "done": round(done, 3), "began_at": self._began_at}
                repos.jobs.update(self._job_id, progress={"phase": "compiling", **noted})
        except TransientError as error:
            log.warning("progress not noted", error=error.message)
