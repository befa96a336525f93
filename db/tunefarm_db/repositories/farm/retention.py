"""Queries for rows that have not been used for some time."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import exists, func, or_, select, update

from tunefarm_db.repositories.base import Repository
from tunefarm_db.tables import ArtifactRow, DraftRow, JobRow, ModelRow, RecordRow, TrialRow, table_of
from tunefarm_db.tables.columns import db_now
from tunefarm_db.values import Model, ModelState
from tunefarm_tuning.core.outcome import Outcome

_MODELS = table_of(ModelRow)


class Retention(Repository):
    """Queries by age, which is measured by the database's clock."""

    def unused_models(self, age_sec: float, *, after: str = "", limit: int) -> tuple[Model, ...]:
        """Return ready and failed models without a running job within `age_sec`, by id; only ids after `after`."""
        since = db_now() - age_sec
        used = exists().where(
            JobRow.model_id == ModelRow.id, or_(JobRow.finished_at.is_(None), JobRow.finished_at >= since)
        )
        query = (
            select(_MODELS)
            .where(
                ModelRow.state.in_([ModelState.READY, ModelState.FAILED]), ModelRow.updated_at < since, ~used
            )
            .where(ModelRow.id > after)
        )
        return self._all(Model, query.order_by(ModelRow.id).limit(limit))

    def old_artifacts(self, age_sec: float) -> tuple[str, ...]:
        """Return the hashes whose artifacts are all older than `age_sec`."""
        query = (
            select(ArtifactRow.sha256)
            .group_by(ArtifactRow.sha256)
            .having(func.max(ArtifactRow.created_at) < db_now() - age_sec)
        )
        return tuple(self._run(query).scalars())

    def is_needed(self, sha256: str, age_sec: float) -> bool:
        """Return whether a younger artifact, a draft or a usable model has these bytes."""
        useless = (ModelState.FAILED, ModelState.DELETED)
        models = exists().where(ModelRow.sha256 == sha256, ModelRow.state.not_in(useless))
        artifacts = exists().where(ArtifactRow.sha256 == sha256, ArtifactRow.created_at >= db_now() - age_sec)
        drafts = exists().where(DraftRow.sha256 == sha256)
        return bool(self._run(select(or_(models, artifacts, drafts))).scalar_one())

    def failures_with_messages(
        self, age_sec: float, *, trials_after: str = "", records_after: str = "", limit: int
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the ids of the next failed trials and records with a message.

        Trials are of jobs that ended `age_sec` ago, and records are of that age.
        """
        since = db_now() - age_sec
        trials = (
            select(TrialRow.id)
            .join(JobRow, JobRow.id == TrialRow.job_id)
            .where(JobRow.finished_at < since, TrialRow.outcome != Outcome.OK, TrialRow.message != "")
            .where(TrialRow.id > trials_after)
            .order_by(TrialRow.id)
            .limit(limit)
        )
        records = (
            select(RecordRow.id)
            .where(RecordRow.created_at < since, RecordRow.outcome != Outcome.OK, RecordRow.message != "")
            .where(RecordRow.id > records_after)
            .order_by(RecordRow.id)
            .limit(limit)
        )
        return tuple(self._run(trials).scalars()), tuple(self._run(records).scalars())

    def forget_messages(self, trial_ids: Sequence[str], record_ids: Sequence[str]) -> None:
        """Delete the messages of these failures; their outcomes stay."""
        self._run(update(table_of(TrialRow)).where(TrialRow.id.in_(trial_ids)).values(message=""))
        self._run(update(table_of(RecordRow)).where(RecordRow.id.in_(record_ids)).values(message=""))
