"""Files of samples: real inputs that users give for their models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import case, delete, select, update

from tunefarm_db.acting import acting
from tunefarm_db.ids import new_id
from tunefarm_db.repositories.base import Repository
from tunefarm_db.tables import SampleFileRow, table_of
from tunefarm_db.tables.columns import db_now
from tunefarm_db.values import Json, SampleFile, SampleState
from tunefarm_tuning.core.errors import NotFoundError

_SAMPLES = table_of(SampleFileRow)


class SampleFiles(Repository):
    """Files of samples, each for one model."""

    def add(self, *, model_id: str, name: str, sha256: str, size_bytes: int, keep_sec: float) -> SampleFile:
        """Add a file in state checking; it is deleted after `keep_sec` unless a job uses it.

        Raises:
            ConflictError: If the model has a file of the same bytes (found at once).
        """
        values = {
            "id": new_id("smp"),
            "model_id": model_id,
            "name": name,
            "sha256": sha256,
            "size_bytes": size_bytes,
            "expires_at": db_now() + keep_sec,
            "owner": acting().owner,
        }
        return self._add(SampleFile, _SAMPLES, values)

    def find(self, model_id: str, sha256: str) -> SampleFile | None:
        """Return the model's file of these bytes."""
        query = select(_SAMPLES).where(SampleFileRow.model_id == model_id, SampleFileRow.sha256 == sha256)
        return self._first(SampleFile, query)

    def get(self, model_id: str, samples_id: str) -> SampleFile:
        """Return a file of a model.

        Raises:
            NotFoundError: ``samples-not-found``.
        """
        query = select(_SAMPLES).where(SampleFileRow.id == samples_id, SampleFileRow.model_id == model_id)
        missing = NotFoundError(
            "the model has no such samples: they were deleted, or no job used them in time",
            code="samples-not-found",
            samples_id=samples_id,
        )
        return self._required(SampleFile, query, missing)

    def of_model(self, model_id: str) -> tuple[SampleFile, ...]:
        """Return the files of a model, newest first."""
        query = select(_SAMPLES).where(SampleFileRow.model_id == model_id).order_by(SampleFileRow.id.desc())
        return self._all(SampleFile, query)

    def set_checking(self, samples_id: str, *, keep_sec: float) -> SampleFile:
        """Check the file once more; it is kept for `keep_sec` from now, or for good if a job uses it."""
        return self._change(samples_id, state=SampleState.CHECKING, error=None, **_kept(keep_sec))

    def renew(self, samples_id: str, *, keep_sec: float) -> SampleFile:
        """Keep the file for `keep_sec` from now, or for good if a job uses it."""
        return self._change(samples_id, **_kept(keep_sec))

    def set_ready(self, samples_id: str, *, sets: int, used: Sequence[int]) -> SampleFile:
        """Mark the file as fit for its model."""
        return self._change(samples_id, state=SampleState.READY, error=None, sets=sets, used=list(used))

    def set_failed(self, samples_id: str, error: Json) -> SampleFile:
        """Mark the file as unfit. Its blob is not needed any more."""
        return self._change(samples_id, state=SampleState.FAILED, error=error, sets=None, used=[])

    def keep(self, samples_id: str) -> SampleFile:
        """Keep the file until it or its model is deleted: a job uses it."""
        return self._change(samples_id, expires_at=None)

    def delete(self, samples_id: str) -> None:
        self._run(delete(_SAMPLES).where(SampleFileRow.id == samples_id))

    def delete_of_model(self, model_id: str) -> tuple[SampleFile, ...]:
        """Delete the files of a model; return them."""
        gone = delete(_SAMPLES).where(SampleFileRow.model_id == model_id)
        return self._all(SampleFile, gone.returning(_SAMPLES))

    def forget_expired(self, *, limit: int) -> tuple[SampleFile, ...]:
        """Delete files that no job used in time; return them."""
        over = select(SampleFileRow.id).where(SampleFileRow.expires_at <= db_now()).limit(limit)
        # Checked again for each row: a job may have begun to use it in between.
        gone = delete(_SAMPLES).where(SampleFileRow.id.in_(over), SampleFileRow.expires_at <= db_now())
        return self._all(SampleFile, gone.returning(_SAMPLES))

    def _change(self, samples_id: str, **changes: Any) -> SampleFile:
        statement = update(_SAMPLES).where(SampleFileRow.id == samples_id).values(changes).returning(_SAMPLES)
        missing = NotFoundError("the samples were deleted", code="samples-not-found", samples_id=samples_id)
        return self._required(SampleFile, statement, missing)


def _kept(keep_sec: float) -> dict[str, Any]:
    """Return a later time to expire; a file that a job uses never does."""
    return {"expires_at": case((SampleFileRow.expires_at.is_(None), None), else_=db_now() + keep_sec)}
