"""Delete models; sweep from the store files that no row refers to, or that killed processes left."""

from __future__ import annotations

import structlog

from tunefarm_app.runtime.composition import Services
from tunefarm_db.values import AuditAction, Model
from tunefarm_text import quantities
from tunefarm_tuning.core.errors import ConflictError
from tunefarm_tuning.core.kept_files import remove_folder_of_file
from tunefarm_tuning.reference.kept_outputs import KeptOutputs

log = structlog.stdlib.get_logger(__name__)

TEMPORARY_AGE_SEC = 6 * 3600.0
UNREFERENCED_AGE_SEC = 24 * 3600.0
_BATCH = 500


def delete_model(services: Services, model_id: str) -> Model:
    """Mark the model as deleted, and delete its samples, its quantised forms and its file, unless another model has the same.

    Jobs, records and artifacts stay.

    Raises:
        NotFoundError: ``model-not-found`` or ``model-deleted``.
        ConflictError: ``model-in-use`` while a job of it runs.
    """
    with services.uow.write() as repos:
        model = repos.models.get(model_id)
        jobs = repos.jobs.open(model_id=model.id)
        if jobs:
            sweep_ids = list(repos.sweeps.of_jobs([job.id for job in jobs]))
            of_sweeps = f" (of {quantities.plural(len(sweep_ids), 'sweep')}: {', '.join(sweep_ids[:3])})"
            raise ConflictError(
                f"{quantities.plural(len(jobs), 'job')} of this model {'has' if len(jobs) == 1 else 'have'} not ended"
                f"{of_sweeps if sweep_ids else ''}: cancel first, or wait",
                code="model-in-use",
                job_ids=[job.id for job in jobs[:20]],
                **({"sweep_ids": sweep_ids[:20]} if sweep_ids else {}),
            )
        repos.steps.cancel_open(subject_id=model.id)
        samples = repos.samples.delete_of_model(model.id)
        quantised = repos.quantised.delete_of_model(model.id)
        for sample_file in samples:
            repos.steps.cancel_open(subject_id=sample_file.id)
        deleted = repos.models.delete(model.id)
        repos.audit.note(AuditAction.MODEL_DELETED, model.id)
    for sha256 in (deleted.sha256, *(sample_file.sha256 for sample_file in samples), *quantised):
        remove_unreferenced(services, sha256)
    return deleted


def sweep_blobs(
    services: Services,
    *,
    temporary_age_sec: float = TEMPORARY_AGE_SEC,
    unreferenced_age_sec: float = UNREFERENCED_AGE_SEC,
) -> int:
    """Remove abandoned temporary files, and blobs that no model, samples, artifact or source need; return how many.

    The ages protect files that are being written, and blobs that are about to be registered. Uploads in parts expire by
    a setting of their own (``keep_uploads_hours``), and so do samples that no job uses.
    """
    forget_unused_samples(services)
    swept = services.blobs.sweep(temporary_age_sec) + sweep_uploads(services, temporary_age_sec)
    for sha256 in services.blobs.older_than(unreferenced_age_sec):
        with services.uow.read() as repos:
            if repos.blobs.is_referenced(sha256):
                continue
        swept += remove_unreferenced(services, sha256, least_age_sec=unreferenced_age_sec)
    if swept:
        log.info("store swept", files=swept)
    return swept


def sweep_uploads(services: Services, temporary_age_sec: float = TEMPORARY_AGE_SEC) -> int:
    """Delete expired uploads, and staged files of no upload; return the number of removed files."""
    gone: list[str] = []
    while True:
        with services.uow.write() as repos:
            expired = repos.uploads.forget_expired(limit=_BATCH)
        gone += expired
        if len(expired) < _BATCH:
            break
    old = list(services.blobs.staged_older_than(temporary_age_sec))
    for start in range(0, len(old), _BATCH):
        names = old[start : start + _BATCH]
        with services.uow.read() as repos:
            needed = repos.uploads.open_among(names)
        gone += [name for name in names if name not in needed]
    swept = 0
    for name in set(gone):
        path = services.blobs.staged_path(name)
        swept += path.exists()
        path.unlink(missing_ok=True)
    return swept


def forget_unused_samples(services: Services) -> int:
    """Forget samples that no job used in time; return how many. Their files are unreferenced then."""
    forgotten = 0
    while True:
        with services.uow.write() as repos:
            expired = repos.samples.forget_expired(limit=_BATCH)
        forgotten += len(expired)
        if len(expired) < _BATCH:
            return forgotten


def remove_unreferenced(services: Services, sha256: str, *, least_age_sec: float | None = None) -> bool:
    """Remove a blob that no model, samples, artifact or source need; return whether it was removed.

    A blob younger than `least_age_sec` is kept. With None, a blob of any age is removed: that of a failed model or
    failed samples, since a retry uploads it again, and that of deleted models and samples.
    """
    with services.uow.write() as repos:
        # Under the write lock: a process that registers the blob meanwhile checks for the file afterwards.
        if repos.blobs.is_referenced(sha256):
            return False
        if least_age_sec is not None and not services.blobs.is_older(sha256, least_age_sec):
            return False
        repos.blobs.delete(sha256)
        services.blobs.delete(sha256)
        KeptOutputs(services.settings.references_dir).forget(sha256)
        remove_folder_of_file(services.settings.objects_dir, sha256)
        return True
