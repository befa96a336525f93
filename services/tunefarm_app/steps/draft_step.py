"""The draft step: compiles a job's network in the background, so that the job has something to offer, and to time, early."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

import structlog

from tunefarm_app.engines.interface import CompileTerms
from tunefarm_app.jobs.drafts import holds_draft, note_network, wants_draft
from tunefarm_app.jobs.network_timings import costs_now
from tunefarm_app.jobs.transitions import fail_subject
from tunefarm_app.leases.step_context import StepContext
from tunefarm_app.models.quantised import job_model
from tunefarm_app.models.samples import sample_ids
from tunefarm_app.runtime.composition import Services
from tunefarm_app.steps.attestation import CompileFacts, Signer
from tunefarm_app.steps.compile_step import MEDIA_TYPE
from tunefarm_app.storage.file_names import file_stem
from tunefarm_app.storage.job_options import max_error_of, precision_of
from tunefarm_app.storage.rows import engine_record
from tunefarm_db.repositories.records.records import RecordFilter
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import Job, JobTask, Record, StepKind, StepState
from tunefarm_tuning.core.cancellation import Cancellation, Closing
from tunefarm_tuning.core.errors import InvalidInputError, TransientError
from tunefarm_tuning.process.scratch import ScratchDir
from tunefarm_tuning.records.findings import Findings
from tunefarm_tuning.records.history import History
from tunefarm_tuning.target.target import Target

log = structlog.stdlib.get_logger(__name__)

_INPUTS = "application/vnd.tunefarm.inputs"
_LOOK_SEC = 1.0
_BUSY_LOOKS = 2
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
        job = repos.jobs.get(step.subject_id)
        row = repos.models.get(job.model_id)
        samples = [repos.samples.get(row.id, samples_id) for samples_id in sample_ids(job.options)]
        tasks = repos.jobs.tasks(job.id) if step.round else ()
        records = _records_so_far(context, repos, job, tasks)
    target = Target.from_json(job.target)
    if not wants_draft(job, step.round):
        with context.commit():
            return
    if holds_draft(job):
        _give_way(context, _OWN_JOB)
        return
    if not context.engine.runs_here(target):
        _pass_on(context)
        return
    signer, began = Signer.of(services), time.monotonic()
    with closing(ScratchDir()) as scratch, _giving_way(context, job) as watch:
        try:
            model = job_model(services, job, row)
            findings = Findings(
                objects=services.settings.objects_dir, references=services.settings.references_dir
            )
            compiled = context.engine.compile(
                model,
                target,
                History(map(engine_record, records.values()), findings),
                CompileTerms(
                    precision=precision_of(job).of_network,
                    max_error=max_error_of(job),
                    other_shapes=False,
                    samples=[services.blobs.path(sample_file.sha256) for sample_file in samples],
                    goal_sec=0.0,
                ),
                device=None,
                output=scratch.path / f"{file_stem(row.name)}.tunefarm",
                cancellation=watch.cancellation,
                on_progress=lambda _phase, _done: context.lease.check(),
            )
            context.lease.check()
        except Exception:
            if watch.way_for is None or context.lease.reason is not None:
                raise
            _give_way(context, watch.way_for)
            return
        blob = services.blobs.put_file(compiled.path)
        inputs = None if compiled.inputs is None else services.blobs.put_file(compiled.inputs)
    compile_facts = CompileFacts(
        job=job,
        model=row,
        compiled_sha256=model.sha256,
        samples=samples,
        records=records,
        took_sec=time.monotonic() - began,
    )
    envelope = signer.sign(compiled, blob, compile_facts)
    with context.commit() as repos:
        began_sec, job = job.tuned_sec, repos.jobs.get(job.id, lock=True)
        if not wants_draft(job, step.round):
            return
        limit_bytes = services.settings.max_drafts_bytes
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
            step.round,
            compiled,
            (blob, inputs),
            began_sec=began_sec,
            costs=costs_now(tasks),
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


_UNWANTED = "nobody"
_OWN_JOB = "its job"
_OTHERS = "other steps"


class _Watch(Closing):
    """Cancels the compile when it must give way.

    Attributes:
        way_for: `_UNWANTED` if the job needs no draft any more, `_OWN_JOB` while that compiles or is paused, `_OTHERS` if steps
            wait for a worker; None while it may go on.
    """

    def __init__(self, services: Services, job_id: str, number: int) -> None:
        self.cancellation = Cancellation()
        self.way_for: str | None = None
        self._services = services
        self._job_id = job_id
        self._number = number
        self._busy_looks = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"draft-{job_id}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Cancel the compile."""
        self.cancellation.cancel()

    def end(self) -> None:
        """Stop watching."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(_LOOK_SEC):
            try:
                self.way_for = self._look()
            except TransientError as error:
                log.warning("draft not looked after", error=error.message)
            if self.way_for is not None:
                self.cancellation.cancel()
                return

    def _look(self) -> str | None:
        with self._services.uow.read() as repos:
            job = repos.jobs.get(self._job_id)
        if not wants_draft(job, self._number):
            return _UNWANTED
        if holds_draft(job):
            return _OWN_JOB
        # A message that a free worker is about to take does not count.
        self._busy_looks = self._busy_looks + 1 if _steps_wait(self._services) else 0
        return _OTHERS if self._busy_looks >= _BUSY_LOOKS else None


@contextmanager
def _giving_way(context: StepContext, job: Job) -> Iterator[_Watch]:
    watch = _Watch(context.services, job.id, context.step.round)
    try:
        with context.cancellation.attach(watch):
            yield watch
    finally:
        watch.end()


def _steps_wait(services: Services) -> bool:
    return any(
        services.dispatcher.queue_length(kind) for kind in (StepKind.IMPORT, StepKind.TUNE, StepKind.COMPILE)
    )


def _give_way(context: StepContext, way_for: str) -> None:
    step = context.step
    with context.services.uow.write() as repos:
        if way_for == _UNWANTED:
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
