"""Uploads in parts: begin, read and delete them. `upload_part` writes to them.

The database knows how many bytes are safely on the disk, and the staging folder holds at least those. A part's bytes are
flushed before their count is committed, so that no offset ever goes back, even if a process is killed. The last bytes are
counted in the transaction that finishes the upload. So an unfinished upload always has bytes left to send, and the
request that sends them finishes it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import structlog

from tunefarm_app.access.quotas import check_bytes
from tunefarm_app.models.submit import check_shapes, check_values
from tunefarm_app.runtime.composition import Services
from tunefarm_app.storage.blob_store import too_large
from tunefarm_app.storage.staged_blob import staged_bytes
from tunefarm_convert import check_head
from tunefarm_db.values import Upload, UploadState
from tunefarm_tuning.core.errors import ConflictError, InvalidInputError
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.workload.shapes import GivenShape

log = structlog.stdlib.get_logger(__name__)

MAX_OPEN = 100
"""Maximum number of unfinished uploads per key."""

_SHA256 = re.compile(r"[0-9a-f]{64}")
_HOUR_SEC = 3600.0


def begin_upload(
    services: Services,
    *,
    api_key_id: str,
    name: str,
    size_bytes: int,
    shapes: Mapping[str, GivenShape] | None = None,
    values: Mapping[str, Any] | None = None,
    sha256: str | None = None,
    metadata: str = "",
) -> Upload:
    """Begin an empty upload.

    Args:
        services: The process's services.
        api_key_id: The key that owns it.
        name: A name for people, often the file's.
        size_bytes: The file's size.
        shapes: Shapes of inputs with open dimensions, by input name.
        values: Values of inputs that become constants, by input name.
        sha256: The file's SHA-256, if the client knows it; the bytes must match.
        metadata: The client's own description, to be returned to it.

    Raises:
        InvalidInputError: ``too-large``, ``bad-shape``, ``too-many-shapes``, ``bad-value``, ``bad-digest``.
        InvalidModelError: ``empty-file``.
        ConflictError: ``too-many-uploads``.
        QuotaError: ``quota-bytes``.
    """
    if size_bytes > services.settings.max_upload_bytes:
        raise too_large(services.settings.max_upload_bytes)
    if size_bytes == 0:
        check_head(b"")
    stored, constants = check_shapes(shapes or {}), check_values(values or {})
    if sha256 is not None and not _SHA256.fullmatch(sha256):
        raise InvalidInputError("the SHA-256 is not 64 lower-case hexadecimal digits", code="bad-digest")
    with services.uow.write() as repos:
        if repos.uploads.count_open(api_key_id) >= MAX_OPEN:
            raise ConflictError(
                f"this key has {MAX_OPEN} unfinished uploads, which is the limit: finish or delete some",
                code="too-many-uploads",
                limit=MAX_OPEN,
            )
        check_bytes(repos, size_bytes)
        upload = repos.uploads.add(
            api_key_id=api_key_id,
            name=clean(name) or "model",
            shapes=stored,
            values=constants,
            metadata=metadata,
            size_bytes=size_bytes,
            sha256=sha256,
            keep_sec=keep_sec(services),
        )
    log.info("upload begun", upload_id=upload.id, size_bytes=size_bytes)
    return upload


def find_upload(services: Services, upload_id: str, *, api_key_id: str) -> Upload:
    """Return the upload's present state.

    Raises:
        NotFoundError: ``upload-not-found``, for somebody else's as well.
    """
    with services.uow.read() as repos:
        return _as_stored(services, repos.uploads.get(upload_id, api_key_id=api_key_id))


def list_uploads(services: Services, *, api_key_id: str, limit: int) -> tuple[Upload, ...]:
    """Return the key's uploads, newest first. Finished and failed ones are listed until they expire."""
    with services.uow.read() as repos:
        uploads = repos.uploads.of_key(api_key_id, limit=limit)
    return tuple(_as_stored(services, upload) for upload in uploads)


def end_upload(services: Services, upload_id: str, *, api_key_id: str) -> None:
    """Delete the upload and its bytes; a model that it became stays. A request that writes to it fails at its next commit.

    Raises:
        NotFoundError: ``upload-not-found``.
    """
    with services.uow.write() as repos:
        repos.uploads.get(upload_id, api_key_id=api_key_id)
        repos.uploads.delete(upload_id)
    services.blobs.staged_path(upload_id).unlink(missing_ok=True)
    log.info("upload ended", upload_id=upload_id)


def _as_stored(services: Services, upload: Upload) -> Upload:
    """Return the upload, with offset 0 if the store lost its bytes (a database restored from a backup may count them)."""
    if upload.state is not UploadState.OPEN or upload.offset_bytes == 0:
        return upload
    if staged_bytes(services.blobs.staged_path(upload.id)) >= upload.offset_bytes:
        return upload
    if upload.digest is not None and services.blobs.has(upload.digest):
        return upload
    return replace(upload, offset_bytes=0)


def corrected_upload(services: Services, upload_id: str, api_key_id: str) -> Upload:
    """Return the upload after correcting the database's offset if bytes are lost. The caller holds the upload's lock."""
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
