"""Retention: models, artifacts and failures that have been kept for as long as they are to be. Nothing goes unless a setting says so.

Records, trials, reports and jobs stay: they are small, and what the farm has learned. Of failures, only the messages go.
The log of deliveries to webhooks alone goes by itself, after some days.
"""

from __future__ import annotations

from collections.abc import Iterator

import structlog

from tunefarm_app.models.removal import delete_model
from tunefarm_app.runtime.composition import Services
from tunefarm_db.values import Model
from tunefarm_tuning.core.errors import ConflictError, NotFoundError

log = structlog.stdlib.get_logger(__name__)

DAY_SEC = 86_400.0
YOUNG_SEC = DAY_SEC
"""A file that was stored (again) within this time is in use, whatever the database says yet."""
_BATCH = 100
_MESSAGES_AT_ONCE = 500
_MESSAGES_MOST = 100_000
"""What is more than that has to wait for the next time."""


def apply_retention(services: Services) -> int:
    """Remove what is older than the settings say; return how many models, artifacts, messages of failures, sources and deliveries went."""
    settings = services.settings
    deleted = 0
    if settings.keep_models_days is not None:
        deleted += _models(services, settings.keep_models_days * DAY_SEC)
    if settings.keep_artifacts_days is not None:
        deleted += _artifacts(services, settings.keep_artifacts_days * DAY_SEC)
    if settings.keep_failures_days is not None:
        deleted += _failures(services, settings.keep_failures_days * DAY_SEC)
    if settings.keep_sources_days is not None:
        deleted += _sources(services, settings.keep_sources_days * DAY_SEC)
    return deleted + _deliveries(services, settings.keep_deliveries_days * DAY_SEC)


def _models(services: Services, age_sec: float) -> int:
    deleted = 0
    for model in _unused_models(services, age_sec):
        if deleted == _BATCH:
            break  # the rest goes the next time
        # Uploading a model again renews its file: somebody is about to use it.
        if (
            not services.blobs.is_older(model.sha256, age_sec)
            and services.blobs.path_of(model.sha256).exists()
        ):
            continue
        try:
            delete_model(services, model.id)
        except (ConflictError, NotFoundError):
            continue  # a job came in between, or somebody else was faster
        log.info("model not kept any longer", model_id=model.id, name=model.name)
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
            # Under the write lock, as for any other blob: whoever registers it meanwhile looks for the file afterwards.
            if repos.retention.is_needed(sha256, age_sec) or not services.blobs.is_older(sha256, YOUNG_SEC):
                continue
            services.blobs.delete(sha256)
        log.info("artifact not kept any longer", sha256=sha256)
        deleted += 1
    return deleted


def _failures(services: Services, age_sec: float) -> int:
    """Forget why candidates failed. How they failed stays, and so does the config: nothing is tried again for it."""
    deleted = 0
    trial_id = record_id = ""
    while deleted < _MESSAGES_MOST:
        # Looked for outside of the transaction that writes: that would keep other writers waiting.
        with services.uow.read() as repos:
            trials, records = repos.retention.failures_with_messages(
                age_sec, trials_after=trial_id, records_after=record_id, limit=_MESSAGES_AT_ONCE
            )
        if not trials and not records:
            break
        with services.uow.write() as repos:
            repos.retention.forget_messages(trials, records)
        trial_id, record_id = (trials or (trial_id,))[-1], (records or (record_id,))[-1]
        deleted += len(trials) + len(records)
    if deleted:
        log.info("messages of failures not kept any longer", messages=deleted)
    return deleted


def _sources(services: Services, age_sec: float) -> int:
    """Forget sources of kernels: the sweep takes their files."""
    deleted = 0
    while deleted < _MESSAGES_MOST:
        with services.uow.write() as repos:
            old = repos.sources.older_than(age_sec, limit=_BATCH)
            for source in old:
                repos.sources.delete(source.key)
        deleted += len(old)
        if len(old) < _BATCH:
            break
    if deleted:
        log.info("kernel sources not kept any longer", sources=deleted)
    return deleted


def _deliveries(services: Services, age_sec: float) -> int:
    deleted = 0
    while deleted < _MESSAGES_MOST:
        with services.uow.write() as repos:
            batch = repos.deliveries.forget(age_sec, limit=_MESSAGES_AT_ONCE)
        deleted += batch
        if batch < _MESSAGES_AT_ONCE:
            break
    if deleted:
        log.info("deliveries not kept any longer", deliveries=deleted)
    return deleted
