"""Samples: real inputs that a user gives for a model, in a ``.npz`` file. Submit, list and delete them.

A worker checks a file after its upload: that it fits the model's inputs, and that the model runs on it. A file belongs to its model.
It is kept while a job refers to it, and deleted with the model; one that no job uses is deleted after some hours. The farm never
sends its bytes to anybody.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from tunefarm_app.models.removal import remove_unreferenced
from tunefarm_app.models.submit import require_ready
from tunefarm_app.runtime.composition import Services
from tunefarm_app.storage.blob_store import StoredBlob
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import AuditAction, SampleFile, SampleState, Step, StepKind
from tunefarm_text.quantities import plural
from tunefarm_tuning.core.errors import ConflictError, InvalidInputError
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.reference.samples import MAX_SAMPLE_FILES, check_sample_head

log = structlog.stdlib.get_logger(__name__)

MEDIA_TYPE = "application/x-npz"
MAX_PER_MODEL = 100
"""Most files of samples of one model."""

_HOUR_SEC = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmittedSamples:
    """The file, and whether this submission created it; otherwise the model had these bytes already."""

    samples: SampleFile
    created: bool


def require_ready_model(services: Services, model_id: str) -> None:
    """Refuse samples for a model that is not imported, before their bytes are received.

    Raises:
        NotFoundError, ConflictError, InvalidInputError: As `submit_samples`.
    """
    with services.uow.read() as repos:
        require_ready(repos.models.get(model_id))


def submit_samples(services: Services, model_id: str, *, name: str, blob: StoredBlob) -> SubmittedSamples:
    """Register a stored ``.npz`` file as samples for a model, and plan its check, in one transaction.

    The same bytes for the same model are the same samples: they are returned as they are. If they were refused before, they
    are checked once more.

    Args:
        services: The process's services.
        model_id: The model, which must be ready.
        name: A name for people, often the file's.
        blob: The stored file.

    Raises:
        NotFoundError: ``model-not-found`` or ``model-deleted``.
        ConflictError: ``model-importing``, ``too-many-samples``.
        InvalidInputError: ``model-failed``, ``empty-samples``, ``not-npz``. The blob is removed after any error.
    """
    try:
        check_sample_head(blob.head)
        try:
            submitted, step = _register(services, model_id, clean(name) or "samples", blob)
        except ConflictError as error:
            if error.code != "conflict":
                raise
            # Another request registered the same bytes in between.
            submitted, step = _register(services, model_id, clean(name) or "samples", blob)
    except Exception:
        remove_unreferenced(services, blob.sha256)
        raise
    if step is not None:
        log.info("samples submitted", model_id=model_id, samples_id=submitted.samples.id)
        services.dispatcher.send(step.id, step.kind)
    return submitted


def _register(
    services: Services, model_id: str, name: str, blob: StoredBlob
) -> tuple[SubmittedSamples, Step | None]:
    keep_sec = services.settings.keep_uploads_hours * _HOUR_SEC
    with services.uow.write() as repos:
        model = repos.models.get(model_id)
        require_ready(model)
        repos.blobs.add(blob.sha256, size_bytes=blob.size_bytes, media_type=MEDIA_TYPE)
        samples = repos.samples.find(model.id, blob.sha256)
        created = samples is None
        if samples is None:
            if len(repos.samples.of_model(model.id)) >= MAX_PER_MODEL:
                raise ConflictError(
                    f"the model has {MAX_PER_MODEL} files of samples, which is the limit: delete some",
                    code="too-many-samples",
                    limit=MAX_PER_MODEL,
                )
            samples = repos.samples.add(
                model_id=model.id,
                name=name,
                sha256=blob.sha256,
                size_bytes=blob.size_bytes,
                keep_sec=keep_sec,
            )
        elif samples.state is SampleState.FAILED:
            samples = repos.samples.set_checking(samples.id, keep_sec=keep_sec)
        else:
            samples = repos.samples.renew(samples.id, keep_sec=keep_sec)
            return SubmittedSamples(samples=samples, created=False), None
        step = repos.steps.add(
            StepKind.SAMPLES,
            subject_id=samples.id,
            model_id=model.id,
            round=repos.steps.next_round(StepKind.SAMPLES, samples.id),
        )
        services.blobs.path(blob.sha256)  # raises if a sweep removed the bytes meanwhile
        repos.steps.mark_sent([step.id])
        repos.audit.note(AuditAction.SAMPLES_ADDED, samples.id, model_id=model.id)
        return SubmittedSamples(samples=samples, created=created), step


def find_samples(services: Services, model_id: str, samples_id: str) -> SampleFile:
    """Return a file of samples.

    Raises:
        NotFoundError: ``model-not-found``, ``model-deleted``, ``samples-not-found``.
    """
    with services.uow.read() as repos:
        return repos.samples.get(repos.models.get(model_id).id, samples_id)


def list_samples(services: Services, model_id: str) -> tuple[SampleFile, ...]:
    """Return the model's files of samples, newest first.

    Raises:
        NotFoundError: ``model-not-found``, ``model-deleted``.
    """
    with services.uow.read() as repos:
        return repos.samples.of_model(repos.models.get(model_id).id)


def delete_samples(services: Services, model_id: str, samples_id: str) -> None:
    """Delete a file of samples and its bytes. Jobs that used it, and their reports, stay.

    Raises:
        NotFoundError: ``model-not-found``, ``model-deleted``, ``samples-not-found``.
        ConflictError: ``samples-in-use`` while a job with them is not finished.
    """
    with services.uow.write() as repos:
        samples = repos.samples.get(repos.models.get(model_id).id, samples_id)
        users = [
            job.id for job in repos.jobs.open(model_id=model_id) if samples_id in sample_ids(job.options)
        ]
        if users:
            raise ConflictError(
                f"{plural(len(users), 'job')} with these samples {'has' if len(users) == 1 else 'have'} not ended: cancel first, or wait",
                code="samples-in-use",
                job_ids=users[:20],
            )
        repos.steps.cancel_open(subject_id=samples.id)
        repos.samples.delete(samples.id)
        repos.audit.note(AuditAction.SAMPLES_DELETED, samples.id, model_id=model_id)
    remove_unreferenced(services, samples.sha256)
    log.info("samples deleted", model_id=model_id, samples_id=samples_id)


def sample_ids(options: dict[str, object]) -> list[str]:
    """Return the samples in a job's options; jobs of old releases have none."""
    ids = options.get("samples")
    return [str(samples_id) for samples_id in ids] if isinstance(ids, list) else []


def keep_for_job(repos: Repositories, model_id: str, ids: Sequence[str]) -> list[str]:
    """Check the samples that a new job names, and keep them for it; return their ids without repetitions.

    Raises:
        NotFoundError: ``samples-not-found``.
        ConflictError: ``samples-checking``: wait until the check is over.
        InvalidInputError: ``samples-refused`` with the check's own error; ``too-many-sample-files``.
    """
    distinct = list(dict.fromkeys(ids))
    if len(distinct) > MAX_SAMPLE_FILES:
        raise InvalidInputError(
            f"a job can have {MAX_SAMPLE_FILES} files of samples, not {len(distinct)}",
            code="too-many-sample-files",
            limit=MAX_SAMPLE_FILES,
        )
    for samples_id in distinct:
        samples = repos.samples.get(model_id, samples_id)
        if samples.state is SampleState.CHECKING:
            raise ConflictError(
                "the samples are still being checked: wait until their state is ready",
                code="samples-checking",
                samples_id=samples.id,
            )
        if samples.state is SampleState.FAILED:
            why = (samples.error or {}).get("message", "")
            raise InvalidInputError(
                f"the samples cannot be used: {why}",
                code="samples-refused",
                samples_id=samples.id,
                error=samples.error,
            )
        repos.samples.keep(samples.id)
    return distinct
