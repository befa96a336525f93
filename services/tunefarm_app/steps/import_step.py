"""The import step: parses a model and extracts its tasks for CPUs."""

from __future__ import annotations

from typing import Any

import structlog

from tunefarm_app.leases.step_context import StepContext
from tunefarm_app.steps.new_workloads import check_new_workloads
from tunefarm_app.storage.json_text import check_length
from tunefarm_app.storage.pipelines import CPU
from tunefarm_app.storage.rows import store_tasks
from tunefarm_db.values import ModelState
from tunefarm_tuning.workload.model import Model

_MOST_BYTES = 8 << 20

log = structlog.stdlib.get_logger(__name__)


def run_import(context: StepContext) -> None:
    """Parse the model in a child process, extract its tasks for CPUs, and make it ready.

    Raises:
        InvalidModelError: If the model cannot be used; it fails with the error.
    """
    with context.services.uow.read() as repos:
        row = repos.models.get(context.step.model_id)
    if row.state is ModelState.IMPORTING:
        path = context.services.blobs.path(row.sha256)
        imported = context.engine.import_model(
            path, row.shapes, row.values, cancellation=context.cancellation
        )
        check_new_workloads(context, imported.tasks)
        facts = _facts_of(imported.model)
    with context.commit() as repos:
        if row.state is ModelState.IMPORTING:
            store_tasks(repos, row.id, CPU, context.engine.toolchain, imported.tasks)
            repos.models.set_ready(row.id, **facts)
            log.info("model imported", tasks=len(imported.tasks), operators=len(imported.model.operators))


def _facts_of(model: Model) -> dict[str, Any]:
    """Return what is stored of an imported model.

    Raises:
        InvalidModelError: ``too-large``.
    """
    facts = {
        "inputs": [spec.to_json() for spec in model.inputs],
        "outputs": [spec.to_json() for spec in model.outputs],
        "operators": [list(pair) for pair in model.operators],
        "opset": model.opset,
        "num_params": model.num_params,
        "specialisations": [item.to_json() for item in model.specialisations],
        "parts": [part.to_json() for part in model.parts],
    }
    check_length(facts, "the description of the model", most_bytes=_MOST_BYTES)
    return facts
