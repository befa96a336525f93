"""Artifacts: one per job that succeeded. Drafts: what a job offers until then."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NotRequired, TypedDict, Unpack

from sqlalchemy import delete, func, select, update

from tunefarm_db.ids import new_id
from tunefarm_db.repositories.base import Repository
from tunefarm_db.tables import ArtifactRow, DraftRow, table_of
from tunefarm_db.tables.columns import db_now
from tunefarm_db.values import Artifact, Draft, Json

_ARTIFACTS = table_of(ArtifactRow)
_DRAFTS = table_of(DraftRow)


class NewArtifact(TypedDict):
    """The columns of a new artifact."""

    job_id: str
    sha256: str
    size_bytes: int
    name: str
    manifest: Json
    report: Json
    envelope: NotRequired[str | None]


class Artifacts(Repository):
    """Artifacts of jobs; their files are blobs."""

    def add(self, **columns: Unpack[NewArtifact]) -> Artifact:
        """Add the job's artifact; its blob must be in `Blobs` already.

        Raises:
            ConflictError: If the job has one.
        """
        return self._add(Artifact, _ARTIFACTS, {"id": new_id("art"), **columns})

    def for_job(self, job_id: str) -> Artifact | None:
        """Return the job's artifact, None before there is one."""
        return self._first(Artifact, select(_ARTIFACTS).where(ArtifactRow.job_id == job_id))

    def unsigned(self) -> int:
        """Return how many artifacts have no signed statement."""
        query = select(func.count()).select_from(_ARTIFACTS).where(ArtifactRow.envelope.is_(None))
        return int(self._run(query).scalar_one())

    def set_report(self, job_id: str, report: Json) -> None:
        """Replace the report of the job's artifact; use `tunefarm_app.report.numbers.set_report`, which tells lists of it."""
        self._run(update(_ARTIFACTS).where(ArtifactRow.job_id == job_id).values(report=report))


class NewDraft(TypedDict):
    """The columns of a draft."""

    sha256: str
    size_bytes: int
    name: str
    tasks: int
    covered: int
    envelope: NotRequired[str | None]


class Drafts(Repository):
    """At most one draft a job; their files are blobs."""

    def of(self, job_ids: Sequence[str]) -> dict[str, Draft]:
        """Return the drafts of these jobs, by the job."""
        if not job_ids:
            return {}
        query = select(_DRAFTS).where(DraftRow.job_id.in_(list(job_ids)))
        return {draft.job_id: draft for draft in self._all(Draft, query)}

    def put(self, job_id: str, **columns: Unpack[NewDraft]) -> bool:
        """Store the job's draft, in place of one that has no more tuned kernels; return whether it was stored.

        Its blob must be in `Blobs` already. Storing the same again changes nothing.
        """
        values = {"envelope": None, **columns, "created_at": db_now()}
        statement = self._insert(_DRAFTS).values(job_id=job_id, **values)
        statement = statement.on_conflict_do_update(
            index_elements=["job_id"], set_=values, where=DraftRow.covered <= columns["covered"]
        )
        return self._run(statement.returning(DraftRow.job_id)).first() is not None

    def make_room(self, job_id: str, *, limit_bytes: int) -> None:
        """Delete the oldest drafts of other jobs until all are below the limit together; this job's stays."""
        oldest_first = select(DraftRow.job_id, DraftRow.size_bytes).order_by(
            DraftRow.created_at, DraftRow.job_id
        )
        rows = self._run(oldest_first).all()
        used_bytes = sum(row.size_bytes for row in rows)
        for row in rows:
            if used_bytes <= limit_bytes:
                break
            if row.job_id != job_id:
                self.delete(row.job_id)
                used_bytes -= row.size_bytes

    def delete(self, job_id: str) -> None:
        """Delete the job's draft, if it has one; its file goes at the next sweep."""
        self._run(delete(_DRAFTS).where(DraftRow.job_id == job_id))

    def forget(self, age_sec: float, *, limit: int) -> int:
        """Delete the oldest drafts that are older than `age_sec`, at most `limit` of them; return how many."""
        old = (
            select(DraftRow.job_id)
            .where(DraftRow.created_at < db_now() - age_sec)
            .order_by(DraftRow.created_at)
            .limit(limit)
        )
        return self._run(delete(_DRAFTS).where(DraftRow.job_id.in_(old))).rowcount
