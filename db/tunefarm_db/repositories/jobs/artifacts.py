"""Artifacts: one per job that succeeded."""

from __future__ import annotations

from sqlalchemy import select

from tunefarm_db.ids import new_id
from tunefarm_db.repositories.base import Repository
from tunefarm_db.tables import ArtifactRow, table_of
from tunefarm_db.values import Artifact, Json
from tunefarm_tuning.core.errors import NotFoundError

_ARTIFACTS = table_of(ArtifactRow)


class Artifacts(Repository):
    def add(
        self, *, job_id: str, sha256: str, size_bytes: int, name: str, manifest: Json, report: Json
    ) -> Artifact:
        """Add the job's artifact; its blob must be noted in `Blobs` already.

        Raises:
            ConflictError: If the job has one.
        """
        values = {
            "id": new_id("art"),
            "job_id": job_id,
            "sha256": sha256,
            "size_bytes": size_bytes,
            "name": name,
            "manifest": manifest,
            "report": report,
        }
        return self._add(Artifact, _ARTIFACTS, values)

    def get(self, artifact_id: str) -> Artifact:
        """Return an artifact. Raises `NotFoundError` if there is no such one."""
        artifact = self._first(Artifact, select(_ARTIFACTS).where(ArtifactRow.id == artifact_id))
        if artifact is None:
            raise NotFoundError(
                "there is no such artifact", code="artifact-not-found", artifact_id=artifact_id
            )
        return artifact

    def for_job(self, job_id: str) -> Artifact | None:
        """Return the job's artifact, None before there is one."""
        return self._first(Artifact, select(_ARTIFACTS).where(ArtifactRow.job_id == job_id))
