"""Artifacts: one per job that succeeded."""

from __future__ import annotations

from typing import TypedDict, Unpack

from sqlalchemy import select, update

from tunefarm_db.ids import new_id
from tunefarm_db.repositories.base import Repository
from tunefarm_db.tables import ArtifactRow, table_of
from tunefarm_db.values import Artifact, Json

_ARTIFACTS = table_of(ArtifactRow)


class NewArtifact(TypedDict):
    """The columns of a new artifact."""

    job_id: str
    sha256: str
    size_bytes: int
    name: str
    manifest: Json
    report: Json


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

    def set_report(self, job_id: str, report: Json) -> None:
        """Replace the report of the job's artifact; use `tunefarm_app.report.numbers.set_report`, which tells lists of it."""
        self._run(update(_ARTIFACTS).where(ArtifactRow.job_id == job_id).values(report=report))
