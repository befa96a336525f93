"""Sweeping the store: what killed processes left there, and what nothing refers to any more."""

from __future__ import annotations

import structlog

from tunefarm_app.runtime.composition import Services

log = structlog.stdlib.get_logger(__name__)

TEMPORARY_AGE_SEC = 6 * 3600.0
UNREFERENCED_AGE_SEC = 24 * 3600.0
_BATCH = 500


def sweep_blobs(
    services: Services,
    *,
    temporary_age_sec: float = TEMPORARY_AGE_SEC,
    unreferenced_age_sec: float = UNREFERENCED_AGE_SEC,
) -> int:
    """Remove abandoned temporary files, and blobs that no model, artifact or source needs; return how many.

    The ages keep what is being written, or was stored a moment ago and is about to be registered. Uploads that come in
    parts have a time of their own (``keep_uploads_hours``).
    """
    swept = services.blobs.sweep(temporary_age_sec) + sweep_uploads(services, temporary_age_sec)
    for sha256 in services.blobs.older_than(unreferenced_age_sec):
        with services.uow.read() as repos:
            if repos.blobs.is_referenced(sha256):
                continue
        swept += remove_useless(services, sha256, least_age_sec=unreferenced_age_sec)
    if swept:
        log.info("store swept", files=swept)
    return swept


def sweep_uploads(services: Services, temporary_age_sec: float = TEMPORARY_AGE_SEC) -> int:
    """Forget the uploads whose time is over, and drop bytes that belong to none; return how many had any."""
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


def remove_useless(services: Services, sha256: str, *, least_age_sec: float | None = None) -> bool:
    """Remove a blob, unless a model, an artifact or a source needs it or it is younger than asked; return whether it went.

    At any age for the bytes of a model that failed: what is worth another try comes with another upload.
    """
    with services.uow.write() as repos:
        # Under the write lock: whoever registers the blob meanwhile looks for the file afterwards.
        if repos.blobs.is_referenced(sha256):
            return False
        if least_age_sec is not None and not services.blobs.is_older(sha256, least_age_sec):
            return False
        repos.blobs.delete(sha256)
        services.blobs.delete(sha256)
        return True
