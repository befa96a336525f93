"""Retention: deletes old models, artifacts, messages of failures and kernel sources, each only if a setting says so.

Records, trials, reports and jobs stay: they are small, and they are the farm's knowledge. Deliveries to webhooks and the
traces of jobs are deleted after some days by default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import structlog

from tunefarm_app.access.audit_pruning import apply_audit_retention
from tunefarm_app.models.removal import delete_model
from tunefarm_app.runtime.composition import Services
from tunefarm_db.values import Model
from tunefarm_tuning.core.errors import ConflictError, NotFoundError

log = structlog.stdlib.get_logger(__name__)

DAY_SEC = 86_400.0
YOUNG_SEC = DAY_SEC
"""A file stored within this time is in use, even if the database does not say so yet."""
_BATCH = 100
_ROWS_AT_ONCE = 500
_ROWS_MOST = 100_000
"""The maximum of rows per call; others wait for the next call."""


def apply_retention(services: Services) -> int:
    """Delete what is older than the settings say; return how many models, artifacts and rows were deleted."""
    settings = services.settings
    deleted = 0
    if settings.keep_models_days is not None:
        deleted += _models(services, settings.keep_models_days * DAY_SEC)
    if settings.keep_artifacts_days is not None:
        deleted += _drafts(services, settings.keep_artifacts_days * DAY_SEC)
        deleted += _artifacts(services, settings.keep_artifacts_days * DAY_SEC)
    if settings.keep_failures_days is not None:
        deleted += _failures(services, settings.keep_failures_days * DAY_SEC)
    if settings.keep_sources_days is not None:
        deleted += _sources(services, settings.keep_sources_days * DAY_SEC)
    if settings.keep_audit_days is not None:
        deleted += apply_audit_retention(services, settings.keep_audit_days)
    deleted += _traces(services, settings.keep_traces_days * DAY_SEC)
    deleted += _findings(services, settings.remember_days * DAY_SEC)
    return deleted + _deliveries(services, settings.keep_deliveries_days * DAY_SEC)


def _models(services: Services, age_sec: float) -> int:
    deleted = 0
    for model in _unused_models(services, age_sec):
        if deleted == _BATCH:
            break  # the others wait for the next call
        # Uploading a model again renews its file: it is about to be used.
        if not services.blobs.is_older(model.sha256, age_sec) and services.blobs.has(model.sha256):
            continue
        try:
            delete_model(services, model.id)
        except (ConflictError, NotFoundError):
            continue  # a job was submitted meanwhile, or another process was faster
        log.info("model deleted by retention", model_id=model.id, name=model.name)
        deleted += 1
    return deleted


def _unused_models(services: Services, age_sec: float) -> Iterator[Model]:
    after = ""
    while True:
        with services.uow.read() as repos:
            models = repos.retention.unused_models(age_sec, after=after, limit=_BATCH)
        if not models:
            return
        yield from models
        after = models[-1].id


def _artifacts(services: Services, age_sec: float) -> int:
    with services.uow.read() as repos:
        candidates = repos.retention.old_artifacts(age_sec)
    deleted = 0
    for sha256 in candidates:
        if not services.blobs.is_older(sha256, YOUNG_SEC):  # or its file is gone already
            continue
        with services.uow.write() as repos:
            # Under the write lock, as for any blob: a process that registers it meanwhile checks for the file later.
            if repos.retention.is_needed(sha256, age_sec) or not services.blobs.is_older(sha256, YOUNG_SEC):
                continue
            services.blobs.delete(sha256)
        log.info("artifact deleted by retention", sha256=sha256)
        deleted += 1
    return deleted


def _drafts(services: Services, age_sec: float) -> int:
    """Delete drafts; `sweep_blobs` deletes their files."""

    def delete_batch() -> int:
        with services.uow.write() as repos:
            return repos.drafts.forget(age_sec, limit=_ROWS_AT_ONCE)

    return _in_batches(delete_batch, "drafts deleted")


def _failures(services: Services, age_sec: float) -> int:
    """Delete the messages of failures. Their outcomes and configs stay, so that nothing is tried again."""
    trial_id = record_id = ""

    def delete_batch() -> int:
        nonlocal trial_id, record_id
        # Read outside of the transaction that writes, which would keep other writers waiting.
        with services.uow.read() as repos:
            trials, records = repos.retention.failures_with_messages(
                age_sec, trials_after=trial_id, records_after=record_id, limit=_ROWS_AT_ONCE
            )
        if trials or records:
            with services.uow.write() as repos:
                repos.retention.forget_messages(trials, records)
            trial_id, record_id = (trials or (trial_id,))[-1], (records or (record_id,))[-1]
        return len(trials) + len(records)

    return _in_batches(delete_batch, "messages of failures deleted")


def _sources(services: Services, age_sec: float) -> int:
    """Delete kernel sources; `sweep_blobs` deletes their files."""

    def delete_batch() -> int:
        with services.uow.write() as repos:
            old = repos.sources.older_than(age_sec, limit=_BATCH)
            for source in old:
                repos.sources.delete(source.key)
        return len(old)

    return _in_batches(delete_batch, "kernel sources deleted")


def _traces(services: Services, age_sec: float) -> int:
    def delete_batch() -> int:
        with services.uow.write() as repos:
            return repos.traces.forget(age_sec, limit=_ROWS_AT_ONCE)

    return _in_batches(delete_batch, "traces deleted")


def _findings(services: Services, age_sec: float) -> int:
    def delete_batch() -> int:
        with services.uow.write() as repos:
            return repos.findings.forget(age_sec, limit=_ROWS_AT_ONCE)

    return _in_batches(delete_batch, "findings deleted")


def _deliveries(services: Services, age_sec: float) -> int:
    def delete_batch() -> int:
        with services.uow.write() as repos:
            return repos.deliveries.forget(age_sec, limit=_ROWS_AT_ONCE)

    return _in_batches(delete_batch, "deliveries deleted")


def _in_batches(delete_batch: Callable[[], int], event: str) -> int:
    """Delete batches, each in a transaction, until one is empty or `_ROWS_MOST` rows are deleted; return the number."""
    deleted = 0
    while deleted < _ROWS_MOST and (count := delete_batch()):
        deleted += count
    if deleted:
        log.info(event, count=deleted)
    return deleted
