"""The samples step: checks that a user's samples fit their model, and that the model runs on them."""

from __future__ import annotations

import structlog

from tunefarm_app.leases.step_context import StepContext
from tunefarm_app.storage.rows import engine_model
from tunefarm_db.values import SampleState

log = structlog.stdlib.get_logger(__name__)


def run_samples(context: StepContext) -> None:
    """Check a file of samples in child processes, and make it ready. It needs no device.

    Raises:
        InvalidInputError: If the samples do not fit; they fail with the error.
        NotFoundError: If they, or their model, were deleted.
    """
    services, step = context.services, context.step
    with services.uow.read() as repos:
        row = repos.models.get(step.model_id)
        samples = repos.samples.get(step.model_id, step.subject_id)
    if samples.state is SampleState.CHECKING:
        summary = context.engine.check_samples(
            engine_model(services.blobs, row),
            services.blobs.path(samples.sha256),
            cancellation=context.cancellation,
        )
    with context.commit() as repos:
        if samples.state is SampleState.CHECKING:
            repos.samples.set_ready(samples.id, sets=summary.sets, used=summary.used)
            log.info("samples checked", samples_id=samples.id, sets=summary.sets)
