"""Files of the store, and whether anything still needs them."""

from __future__ import annotations

from sqlalchemy import and_, delete, exists, or_, select

from tunefarm_db.repositories.base import Repository
from tunefarm_db.states.job import OPEN_STATES
from tunefarm_db.tables import (
    ArtifactRow,
    BlobRow,
    DraftRow,
    JobRow,
    ModelRow,
    NetworkTimingRow,
    QuantisedModelRow,
    SampleFileRow,
    SourceRow,
    table_of,
)
from tunefarm_db.values import BINDING_CODES, Blob, ModelState, SampleState

_BLOBS = table_of(BlobRow)


class Blobs(Repository):
    """Blobs that the blob store holds, and who refers to them."""

    def add(self, sha256: str, *, size_bytes: int, media_type: str) -> None:
        """Store that the blob is in the blob store; doing it again changes nothing."""
        values = {"sha256": sha256, "size_bytes": size_bytes, "media_type": media_type}
        self._run(self._insert(_BLOBS).values(values).on_conflict_do_nothing())

    def find(self, sha256: str) -> Blob | None:
        return self._first(Blob, select(_BLOBS).where(BlobRow.sha256 == sha256))

    def is_referenced(self, sha256: str) -> bool:
        """Return whether a model, a quantised form of it, samples, an artifact, a draft, a network to be timed or a kernel's source need the blob.

        Failed and deleted models need none, nor do failed samples: a retry comes with another upload. A model that failed
        for its shapes or values needs it, because other ones mend that.
        """
        useless = (ModelState.FAILED, ModelState.DELETED)
        needs_binding = and_(
            ModelRow.state == ModelState.FAILED, ModelRow.error["code"].as_string().in_(BINDING_CODES)
        )
        models = exists().where(ModelRow.sha256 == sha256, or_(ModelRow.state.not_in(useless), needs_binding))
        samples = exists().where(SampleFileRow.sha256 == sha256, SampleFileRow.state != SampleState.FAILED)
        others = (
            exists().where(row.sha256 == sha256)
            for row in (ArtifactRow, DraftRow, QuantisedModelRow, SourceRow)
        )
        # A network is timed while its job is open.
        to_be_timed = exists().where(
            or_(NetworkTimingRow.sha256 == sha256, NetworkTimingRow.inputs_sha256 == sha256),
            NetworkTimingRow.latency_sec.is_(None),
            NetworkTimingRow.error.is_(None),
            JobRow.id == NetworkTimingRow.job_id,
            JobRow.state.in_(sorted(OPEN_STATES)),
        )
        return bool(self._run(select(or_(models, samples, to_be_timed, *others))).scalar_one())

    def delete(self, sha256: str) -> bool:
        """Delete the blob's row unless it is referenced; return whether it was deleted."""
        if self.is_referenced(sha256):
            return False
        return self._run(delete(_BLOBS).where(BlobRow.sha256 == sha256)).rowcount > 0
