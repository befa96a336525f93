"""Uploads in parts: their progress and result."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import delete, func, select, update

from tunefarm_db.ids import new_id
from tunefarm_db.repositories.base import Repository
from tunefarm_db.tables import UploadRow, table_of
from tunefarm_db.tables.columns import db_now
from tunefarm_db.values import Json, Upload, UploadState
from tunefarm_tuning.core.errors import ConflictError, NotFoundError

_UPLOADS = table_of(UploadRow)


class Uploads(Repository):
    """Uploads in parts that are not complete yet."""

    def add(
        self,
        *,
        api_key_id: str,
        name: str,
        shapes: Mapping[str, Sequence[int] | str],
        values: Mapping[str, Any] | None = None,
        metadata: str,
        size_bytes: int,
        sha256: str | None,
        keep_sec: float,
    ) -> Upload:
        """Begin an upload; it is deleted after `keep_sec` without progress."""
        row = {
            "id": new_id("upl"),
            "api_key_id": api_key_id,
            "name": name,
            "shapes": {
                key: shape if isinstance(shape, str) else list(shape) for key, shape in shapes.items()
            },
            "values": dict(values or {}),
            "metadata": metadata,
            "size_bytes": size_bytes,
            "sha256": sha256,
            "expires_at": db_now() + keep_sec,
        }
        return self._add(Upload, _UPLOADS, row)

    def get(self, upload_id: str, *, api_key_id: str) -> Upload:
        """Return the upload.

        Raises:
            NotFoundError: ``upload-not-found`` if it does not exist, belongs to another key, or has expired.
        """
        query = select(_UPLOADS).where(
            UploadRow.id == upload_id, UploadRow.api_key_id == api_key_id, UploadRow.expires_at > db_now()
        )
        return self._required(Upload, query, _not_found(upload_id))

    def of_key(self, api_key_id: str, *, limit: int) -> tuple[Upload, ...]:
        """Return the uploads of a key, newest first."""
        return self._all(
            Upload,
            select(_UPLOADS)
            .where(UploadRow.api_key_id == api_key_id, UploadRow.expires_at > db_now())
            .order_by(UploadRow.id.desc())
            .limit(limit),
        )

    def count_open(self, api_key_id: str) -> int:
        query = select(func.count()).where(
            UploadRow.api_key_id == api_key_id,
            UploadRow.state == UploadState.OPEN,
            UploadRow.expires_at > db_now(),
        )
        return int(self._run(query).scalar_one())

    def advance(self, upload_id: str, before: int, after: int, *, keep_sec: float) -> None:
        """Advance the upload from `before` to `after` bytes on the disk.

        Raises:
            NotFoundError: ``upload-not-found`` if somebody ended it.
            ConflictError: ``upload-offset`` if it is elsewhere.
        """
        self._change(
            upload_id, UploadRow.offset_bytes == before, offset_bytes=after, expires_at=db_now() + keep_sec
        )

    def note_digest(self, upload_id: str, digest: str) -> None:
        """Store the SHA-256 of all its bytes. Raises as `advance`."""
        self._change(upload_id, digest=digest)

    def finish(self, upload_id: str, model_id: str) -> Upload:
        """Open -> finished, as this model. Raises as `advance`."""
        return self._change(
            upload_id, state=UploadState.FINISHED, model_id=model_id, offset_bytes=UploadRow.size_bytes
        )

    def fail(self, upload_id: str, error: Json) -> Upload:
        """Open -> failed, because its bytes are refused. Raises as `advance`."""
        return self._change(upload_id, state=UploadState.FAILED, error=error)

    def delete(self, upload_id: str) -> bool:
        """Delete the upload; return whether it existed."""
        return self._run(delete(_UPLOADS).where(UploadRow.id == upload_id)).rowcount > 0

    def forget_expired(self, *, limit: int) -> tuple[str, ...]:
        """Delete expired uploads; return their ids."""
        over = select(UploadRow.id).where(UploadRow.expires_at <= db_now()).limit(limit)
        # Checked again for each row: the upload may have advanced in between.
        gone = delete(_UPLOADS).where(UploadRow.id.in_(over), UploadRow.expires_at <= db_now())
        return tuple(row[0] for row in self._run(gone.returning(UploadRow.id)))

    def open_among(self, upload_ids: Collection[str]) -> frozenset[str]:
        """Return the ids that belong to open uploads."""
        ids = self._texts(upload_ids, "wanted")
        query = select(UploadRow.id).where(
            UploadRow.id.in_(select(ids.c.value)), UploadRow.state == UploadState.OPEN
        )
        return frozenset(row[0] for row in self._run(query))

    def _change(self, upload_id: str, *conditions: Any, **changes: Any) -> Upload:
        changed = self._first(
            Upload,
            update(_UPLOADS)
            .where(UploadRow.id == upload_id, UploadRow.state == UploadState.OPEN, *conditions)
            .values(changes)
            .returning(_UPLOADS),
        )
        if changed is not None:
            return changed
        query = select(_UPLOADS).where(UploadRow.id == upload_id)
        present = self._required(Upload, query, _not_found(upload_id))
        raise ConflictError(
            f"the upload is {present.state} and has {present.offset_bytes} bytes",
            code="upload-offset",
            offset_bytes=present.offset_bytes,
        )


def _not_found(upload_id: str) -> NotFoundError:
    return NotFoundError(
        "there is no such upload: it may have been stopped, or been left for too long",
        code="upload-not-found",
        upload_id=upload_id,
    )
