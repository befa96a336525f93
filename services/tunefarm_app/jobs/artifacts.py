"""Access to the artifact of a job: its row, its file, its signed statement; or those of a draft."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

from tunefarm_app.runtime.composition import Services
from tunefarm_app.settings import Settings
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import Artifact, Draft, Job
from tunefarm_tuning.core.errors import ConflictError, NotFoundError


def artifact_of(repos: Repositories, job: Job) -> Artifact:
    """Return a job's artifact.

    Raises:
        ConflictError: ``no-artifact``.
    """
    artifact = repos.artifacts.for_job(job.id)
    if artifact is None:
        why = "it ended without one" if job.state.is_finished else "it has not ended yet"
        if job.trials:
            why += "; the best so far can be compiled (`tunefarm jobs artifact --now`)"
        raise ConflictError(
            f"the job {job.state.clause} and has no artifact: {why}",
            code="no-artifact",
            state=job.state.value,
        )
    return artifact


def best_so_far(repos: Repositories, job: Job) -> Artifact | Draft:
    """Return a job's artifact, or else its draft.

    Raises:
        ConflictError: ``no-artifact`` if it has neither.
    """
    try:
        return artifact_of(repos, job)
    except ConflictError:
        draft = repos.drafts.of([job.id]).get(job.id)
        if draft is None:
            raise
        return draft


def signed_statement(
    repos: Repositories, job: Job, *, so_far: bool = False, sha256: str | None = None
) -> tuple[str, str]:
    """Return the name of a job's artifact, and the envelope of the statement about it.

    Args:
        repos: The repositories.
        job: The job.
        so_far: Whether a draft will do.
        sha256: The file that it must be of; None for whichever the job has.

    Raises:
        ConflictError: ``no-artifact``.
        NotFoundError: ``not-signed``; ``artifact-replaced``.
    """
    artifact = best_so_far(repos, job) if so_far else artifact_of(repos, job)
    if sha256 not in (None, artifact.sha256):
        raise NotFoundError("the job's file has changed: download it again", code="artifact-replaced")
    if artifact.envelope is None:
        raise NotFoundError(
            "the artifact has no signed statement: the farm had no signing key when it was compiled. A new job for the model starts from "
            "the same records; it is signed if the farm has a key now (`tunefarm signing list`)",
            code="not-signed",
        )
    return artifact.name, artifact.envelope


def check_signed(settings: Settings, artifact: Artifact | Draft) -> None:
    """Refuse an artifact without a statement, on a farm all of whose artifacts must be signed.

    Raises:
        ConflictError: ``artifact-unsigned``.
    """
    if settings.require_signatures and artifact.envelope is None:
        raise ConflictError(
            "this farm delivers only signed artifacts, and the worker that made this artifact did not sign it: compile it again "
            "(`tunefarm compile`) on workers that have TUNEFARM_SIGNING_KEY",
            code="artifact-unsigned",
        )


def artifact_path(services: Services, artifact: Artifact | Draft) -> Path:
    """Return the path of the file of an artifact or a draft.

    Raises:
        NotFoundError: ``artifact-not-kept``.
    """
    open_artifact(services, artifact).close()
    return services.blobs.path_of(artifact.sha256)


def open_artifact(services: Services, artifact: Artifact | Draft) -> BinaryIO:
    """Open the file of an artifact or a draft.

    Raises:
        NotFoundError: ``artifact-not-kept``.
    """
    try:
        return services.blobs.open(artifact.sha256)
    except NotFoundError:
        raise NotFoundError(
            "the artifact's file was deleted by retention, its report stays: a new job for the model starts "
            "from the same records",
            code="artifact-not-kept",
        ) from None
