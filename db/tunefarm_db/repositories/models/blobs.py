"""Blobs: which files the content-addressed store should hold."""

from __future__ import annotations

from sqlalchemy import delete, exists, or_, select

from tunefarm_db.repositories.base import Repository
from tunefarm_db.tables import ArtifactRow, BlobRow, ModelRow, SourceRow, table_of
from tunefarm_db.values import Blob, ModelState

_BLOBS = table_of(BlobRow)


class Blobs(Repository):
    def add(self, sha256: str, *, size_bytes: int, media_type: str) -> None:
        """Note that the store holds this blob; noting it again changes nothing."""
        values = {"sha256": sha256, "size_bytes": size_bytes, "media_type": media_type}
        self._run(self._insert(_BLOBS).values(values).on_conflict_do_nothing())

    def find(self, sha256: str) -> Blob | None:
        return self._first(Blob, select(_BLOBS).where(BlobRow.sha256 == sha256))

    def is_referenced(self, sha256: str) -> bool:
        """Whether a model that is ready or may become so, an artifact or a kernel's source needs the blob.

        A failed model does not: a retry comes with another upload.
        """
        useless = (ModelState.FAILED, ModelState.DELETED)
        models = exists().where(ModelRow.sha256 == sha256, ModelRow.state.not_in(useless))
        artifacts = exists().where(ArtifactRow.sha256 == sha256)
        sources = exists().where(SourceRow.sha256 == sha256)
        return bool(self._run(select(or_(models, artifacts, sources))).scalar_one())

    def delete(self, sha256: str) -> bool:
        """Forget the blob unless it is referenced; return whether it was forgotten."""
        if self.is_referenced(sha256):
            return False
        return self._run(delete(_BLOBS).where(BlobRow.sha256 == sha256)).rowcount > 0
