"""The check of workloads that the farm has not seen before: their keys are how the models of others find them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tunefarm_app.leases.step_context import StepContext
from tunefarm_app.storage.json_text import check_length
from tunefarm_tuning.workload.task import TuningTask

_MOST_BYTES = 16 << 20


def check_new_workloads(context: StepContext, tasks: Sequence[TuningTask]) -> None:
    """Check extracted workloads, before they are stored; of those that are on record already, nothing that was extracted is stored.

    Raises:
        InvalidModelError: ``other-workload``, if a computation is not the one that its key is of; ``too-large``.
    """
    # All but the computations, of which a page never reads more than one.
    facts = [replace(task, workload=replace(task.workload, ir="")).to_json() for task in tasks]
    check_length(facts, "the description of the model's kernels", most_bytes=_MOST_BYTES)
    with context.services.uow.read() as repos:
        known = repos.workloads.known({task.workload.key for task in tasks}, context.engine.toolchain)
    new = [task for task in tasks if task.workload.key not in known]
    if new:
        context.engine.check_workloads(new, cancellation=context.cancellation)
