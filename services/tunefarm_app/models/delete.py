"""Deleting a model: nobody can use it any more; what was learned from it stays."""

from __future__ import annotations

from tunefarm_app.runtime.composition import Services
from tunefarm_db.values import Model
from tunefarm_tuning.core.errors import ConflictError


def delete_model(services: Services, model_id: str) -> Model:
    """Mark the model as deleted. Its file goes at the reconciler's next sweep; jobs, records and artifacts stay.

    Raises:
        NotFoundError: ``model-not-found`` or ``model-deleted``.
        ConflictError: ``model-in-use`` while a job of it runs.
    """
    with services.uow.write() as repos:
        model = repos.models.get(model_id)
        jobs = repos.jobs.open(model_id=model.id)
        if jobs:
            raise ConflictError(
                f"{len(jobs)} job(s) of this model are not finished: cancel them first, or wait",
                code="model-in-use",
                job_ids=[job.id for job in jobs[:20]],
            )
        repos.steps.cancel_open(subject_id=model.id)
        return repos.models.delete(model.id)
