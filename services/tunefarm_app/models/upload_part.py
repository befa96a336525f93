"""Write one part of an upload: its bytes are flushed, then counted; the last part completes the model."""

from __future__ import annotations

import time
from dataclasses import replace

import structlog

from tunefarm_app.models.submit import submit_model
from tunefarm_app.models.uploads import corrected_upload, find_upload, keep_sec
from tunefarm_app.runtime.composition import Services
from tunefarm_app.storage.blob_store import HEAD_BYTES, StoredBlob
from tunefarm_app.storage.staged_blob import StagedBlob, staged_bytes
from tunefarm_convert import check_head
from tunefarm_db.values import Upload, UploadState
from tunefarm_tuning.core.cancellation import Closing
from tunefarm_tuning.core.errors import (
    ConflictError,
    InvalidInputError,
    NotFoundError,
    TunefarmError,
    error_from_json,
)

log = structlog.stdlib.get_logger(__name__)

COMMIT_EVERY_BYTES = 8 << 20
COMMIT_EVERY_SEC = 2.0
"""A killed process loses at most the bytes since the last commit."""


class UploadPart(Closing):
    """Writes one request's bytes to an upload: `write` in order, then `end`; use it in a ``with``.

    Leaving without `end` keeps the written bytes, as far as disk and database take them.

    Args:
        services: The process's services.
        upload_id: The upload.
        api_key_id: The key that must own the upload.
        offset_bytes: The offset at which the client continues.
        more_bytes: Number of bytes that the client announced; None if it announced none.

    Raises:
        NotFoundError: ``upload-not-found``.
        ConflictError: ``upload-locked`` while another request writes; ``upload-offset`` if the upload has another offset.
        InvalidInputError: ``upload-overrun`` if that is more than the file's size; a failed upload's own error.
        TransientError: ``store-full``, ``store-unavailable``.
    """

    def __init__(
        self,
        services: Services,
        upload_id: str,
        *,
        api_key_id: str,
        offset_bytes: int,
        more_bytes: int | None = None,
    ) -> None:
        self._services = services
        self._upload = find_upload(services, upload_id, api_key_id=api_key_id)
        self._staged: StagedBlob | None = None
        self._end_bytes = offset_bytes
        self._committed_at = time.monotonic()
        if self._upload.state is UploadState.OPEN:
            self._staged = StagedBlob(services.blobs, upload_id)
        try:
            self._read_again()
            if self._upload.error is not None:
                raise error_from_json(self._upload.error)
            self._check_room(offset_bytes, more_bytes)
        except BaseException:
            self.close()
            raise

    def _read_again(self) -> None:
        """Read the upload now that its lock is held, and release the lock if there is nothing to write."""
        staged, upload = self._staged, self._upload
        if staged is None:
            return
        path = self._services.blobs.staged_path(upload.id)
        try:
            self._upload = corrected_upload(self._services, upload.id, upload.api_key_id)
        except NotFoundError:
            path.unlink(missing_ok=True)
            raise
        if self._upload.state is UploadState.OPEN:
            if self._stored_blob() is None:
                return
            # A process was killed while it made the model: the store has all bytes; repeated ones are skipped.
            path.unlink(missing_ok=True)
        self._staged = None
        staged.close()

    def _check_room(self, offset_bytes: int, more_bytes: int | None) -> None:
        upload = self._upload
        if offset_bytes != upload.offset_bytes:
            raise ConflictError(
                f"the upload has {upload.offset_bytes} bytes: continue from there",
                code="upload-offset",
                offset_bytes=upload.offset_bytes,
            )
        if more_bytes is not None and offset_bytes + more_bytes > upload.size_bytes:
            raise _overrun(upload)
        if self._staged is not None:
            if not self._staged.begin_at(offset_bytes):
                raise ConflictError(
                    "another request changed the upload", code="upload-offset", offset_bytes=0
                )
            self._staged.require_room(upload.size_bytes - offset_bytes)

    def write(self, chunk: bytes) -> None:
        """Take the next bytes.

        Raises:
            InvalidInputError: ``upload-overrun``.
            InvalidModelError: ``not-protobuf``, as soon as the beginning shows it: the upload has failed.
            TransientError: ``store-full``, ``store-unavailable``; ``database-…`` from committing.
            NotFoundError: ``upload-not-found`` if the upload was deleted or expired.
        """
        if self._end_bytes + len(chunk) > self._upload.size_bytes:
            raise _overrun(self._upload)
        self._end_bytes += len(chunk)
        staged = self._staged
        if staged is None or not chunk:
            return
        head_bytes = min(HEAD_BYTES, self._upload.size_bytes)
        head_is_new = staged.size_bytes < head_bytes
        staged.write(chunk)
        if head_is_new and staged.size_bytes >= head_bytes:
            try:
                check_head(staged.head())
            except InvalidInputError as error:
                raise self._failed(error) from None
        uncommitted = staged.size_bytes - self._upload.offset_bytes
        if uncommitted >= COMMIT_EVERY_BYTES or time.monotonic() - self._committed_at >= COMMIT_EVERY_SEC:
            self._commit_offset()

    def end(self) -> Upload:
        """Commit the written bytes; if they complete the file, make it the model that `POST /v1/models` would make.

        Raises:
            InvalidInputError: ``digest-mismatch``, or as `submit_model`. The upload has failed.
            TransientError: As `write`; the last part can be sent again.
        """
        if self._upload.state is not UploadState.OPEN:
            return self._upload
        if self._end_bytes < self._upload.size_bytes:
            self._commit_offset()
            return self._upload
        blob = self._stored_blob() or self._store()
        try:
            submitted = submit_model(
                self._services,
                name=self._upload.name,
                blob=blob,
                shapes=self._upload.shapes,
                values=self._upload.values,
                began=self._upload.created_at,
            )
        except InvalidInputError as error:
            raise self._failed(error) from None
        with self._services.uow.write() as repos:
            self._upload = repos.uploads.finish(self._upload.id, submitted.model.id)
        log.info("upload finished", upload_id=self._upload.id, model_id=submitted.model.id)
        return self._upload

    def _store(self) -> StoredBlob:
        staged = self._staged
        assert staged is not None
        digest = staged.digest()
        if self._upload.sha256 not in (None, digest):
            raise self._failed(
                InvalidInputError(
                    "the received bytes do not match the announced SHA-256: send the file again",
                    code="digest-mismatch",
                    sha256=digest,
                )
            )
        staged.flush()
        with self._services.uow.write() as repos:
            repos.uploads.note_digest(self._upload.id, digest)
        self._upload = replace(self._upload, digest=digest)
        return staged.commit()

    def _stored_blob(self) -> StoredBlob | None:
        """Return the blob that a process stored before it was killed; None if there is none."""
        digest = self._upload.digest
        if digest is None or staged_bytes(self._services.blobs.staged_path(self._upload.id)):
            return None
        try:
            with self._services.blobs.open(digest) as file:
                head = file.read(HEAD_BYTES)
        except NotFoundError:
            return None
        return StoredBlob(sha256=digest, size_bytes=self._upload.size_bytes, head=head, created=False)

    def _commit_offset(self) -> None:
        """Flush the written bytes to the disk, then commit their count; never the file's last byte, which `end` does."""
        staged, before = self._staged, self._upload.offset_bytes
        self._committed_at = time.monotonic()
        if staged is None or not before < staged.size_bytes < self._upload.size_bytes:
            return
        after = staged.size_bytes
        staged.flush()
        with self._services.uow.write() as repos:
            repos.uploads.advance(self._upload.id, before, after, keep_sec=keep_sec(self._services))
        self._upload = replace(self._upload, offset_bytes=after)

    def _failed(self, error: InvalidInputError) -> InvalidInputError:
        self._services.blobs.staged_path(self._upload.id).unlink(missing_ok=True)
        with self._services.uow.write() as repos:
            self._upload = repos.uploads.fail(self._upload.id, error.to_json())
        log.info("upload refused", upload_id=self._upload.id, code=error.code)
        return error

    def close(self) -> None:
        """Release the lock. Written bytes that are not committed yet are kept if possible."""
        staged = self._staged
        if staged is None:
            return
        try:
            if self._upload.state is UploadState.OPEN:
                self._commit_offset()
        except TunefarmError as error:
            log.warning("a part of an upload is lost", upload_id=self._upload.id, error=error.message)
        finally:
            self._staged = None
            staged.close()


def _overrun(upload: Upload) -> InvalidInputError:
    return InvalidInputError(
        f"the file has more bytes than the announced {upload.size_bytes}",
        code="upload-overrun",
        size_bytes=upload.size_bytes,
    )
