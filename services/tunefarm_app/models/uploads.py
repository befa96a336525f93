"""Uploads that come in parts: begun, gone on with, finished as a model, ended.

The database knows how many bytes are safely on the disk, and the staging area holds at least those. A part's bytes are
flushed before they are noted, so an offset that was told is never taken back, whatever is killed when. The last byte
is noted in one go with what the upload became: one that is not finished always has something left to send, and whoever
sends that finishes it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import structlog

from tunefarm_app.models.submit import check_shapes
from tunefarm_app.runtime.composition import Services
from tunefarm_app.storage.blob_store import too_large
from tunefarm_app.storage.staged_blob import staged_bytes
from tunefarm_convert import check_head
from tunefarm_db.values import Upload, UploadState
from tunefarm_tuning.core.errors import ConflictError, InvalidInputError
from tunefarm_tuning.core.untrusted_text import clean

log = structlog.stdlib.get_logger(__name__)

MAX_OPEN = 100
"""Unfinished uploads that one key may have."""

_SHA256 = re.compile(r"[0-9a-f]{64}")
_HOUR_SEC = 3600.0


def begin_upload(
    services: Services,
    *,
    api_key_id: str,
    name: str,
    size_bytes: int,
    shapes: Mapping[str, Sequence[int]] | None = None,
    sha256: str | None = None,
    metadata: str = "",
) -> Upload:
    """Begin an upload; no byte of it is there yet.

    Args:
        services: The process's services.
        api_key_id: Whose it is.
        name: A name for people, often the file's.
        size_bytes: How long the file is.
        shapes: Shapes of dynamic inputs, by input.
        sha256: What the file comes to, if the client knows; it is held to that.
        metadata: What the client said of it, to be told it back.

    Raises:
        InvalidInputError: ``too-large``, ``bad-shape``, ``bad-digest``.
        InvalidModelError: ``empty-file``.
        ConflictError: ``too-many-uploads``.
    """
    if size_bytes > services.settings.max_upload_bytes:
        raise too_large(services.settings.max_upload_bytes)
    if size_bytes == 0:
        check_head(b"")
    check_shapes(shapes or {})
    if sha256 is not None and not _SHA256.fullmatch(sha256):
        raise InvalidInputError("a SHA-256 has 64 lower-case hexadecimal digits", code="bad-digest")
    with services.uow.write() as repos:
        if repos.uploads.count_open(api_key_id) >= MAX_OPEN:
            raise ConflictError(
                f"this key has {MAX_OPEN} unfinished uploads: go on with one, or end some",
                code="too-many-uploads",
                limit=MAX_OPEN,
            )
        upload = repos.uploads.add(
            api_key_id=api_key_id,
            name=clean(name) or "model",
            shapes=shapes or {},
            metadata=metadata,
            size_bytes=size_bytes,
            sha256=sha256,
            keep_sec=keep_sec(services),
        )
    log.info("upload begun", upload_id=upload.id, size_bytes=size_bytes)
    return upload


def find_upload(services: Services, upload_id: str, *, api_key_id: str) -> Upload:
    """Return the upload as it is now.

    Raises:
        NotFoundError: ``upload-not-found``, for somebody else's as well.
    """
    with services.uow.read() as repos:
        return _as_stored(services, repos.uploads.get(upload_id, api_key_id=api_key_id))


def list_uploads(services: Services, *, api_key_id: str, limit: int) -> tuple[Upload, ...]:
    """Return the key's uploads, newest first; those that ended stay for a while."""
    with services.uow.read() as repos:
        uploads = repos.uploads.of_key(api_key_id, limit=limit)
    return tuple(_as_stored(services, upload) for upload in uploads)


def end_upload(services: Services, upload_id: str, *, api_key_id: str) -> None:
    """Forget the upload and drop its bytes; a model that it became stays. Whoever writes to it is told with the next note.

    Raises:
        NotFoundError: ``upload-not-found``.
    """
    with services.uow.write() as repos:
        repos.uploads.get(upload_id, api_key_id=api_key_id)
        repos.uploads.delete(upload_id)
    services.blobs.staged_path(upload_id).unlink(missing_ok=True)
    log.info("upload ended", upload_id=upload_id)


def _as_stored(services: Services, upload: Upload) -> Upload:
    """Return the upload with the offset that the store can stand by: a restored database may tell of bytes that are gone."""
    if upload.state is not UploadState.OPEN or upload.offset_bytes == 0:
        return upload
    if staged_bytes(services.blobs.staged_path(upload.id)) >= upload.offset_bytes:
        return upload
    if upload.digest is not None and services.blobs.path_of(upload.digest).is_file():
        return upload
    return replace(upload, offset_bytes=0)


def settled_upload(services: Services, upload_id: str, api_key_id: str) -> Upload:
    """Return the upload, whose lock the caller holds, after the database was told of bytes that are gone."""
    with services.uow.write() as repos:
        upload = repos.uploads.get(upload_id, api_key_id=api_key_id)
        stored = _as_stored(services, upload)
        if stored.offset_bytes != upload.offset_bytes:
            before, after = upload.offset_bytes, stored.offset_bytes
            repos.uploads.advance(upload_id, before, after, keep_sec=keep_sec(services))
        return stored


def keep_sec(services: Services) -> float:
    """Return how long an upload is kept without progress."""
    return services.settings.keep_uploads_hours * _HOUR_SEC
