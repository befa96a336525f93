"""The source step: stores a kernel's scheduled TensorIR and generated code as a blob."""

from __future__ import annotations

import structlog

from tunefarm_app.leases.step_context import StepContext
from tunefarm_app.records.kernel_sources import MEDIA_TYPE, pack_source
from tunefarm_app.storage.rows import engine_record, engine_task
from tunefarm_tuning.core.errors import InvalidInputError, NotFoundError
from tunefarm_tuning.target.target import Target

log = structlog.stdlib.get_logger(__name__)


def run_source(context: StepContext) -> None:
    """Generate the source that a user requested. It needs a compiler but no device.

    Raises:
        InvalidInputError: ``other-toolchain`` if the record is of another compiler than this worker's; or if the config
            cannot be applied any more. The source fails with the error.
    """
    key = context.step.subject_id
    with context.services.uow.read() as repos:
        row = repos.sources.find(key)
        record = None if row is None else repos.searches.record(row.record_id)
        if row is None or record is None:
            raise NotFoundError("the source is not requested any more", code="source-not-wanted")
        workload = repos.workloads.get(record.workload_key, record.toolchain)
    if record.toolchain != context.engine.toolchain:
        raise InvalidInputError(
            f"it was measured with {record.toolchain}, but the workers have {context.engine.toolchain} now: "
            "only the same versions can show its source",
            code="other-toolchain",
        )
    task = engine_task(workload, Target.from_json(row.target), 1)
    source = context.engine.kernel_source(task, engine_record(record), cancellation=context.cancellation)
    context.lease.check()
    blob = context.services.blobs.put([pack_source(source)])
    with context.commit() as repos:
        repos.blobs.add(blob.sha256, size_bytes=blob.size_bytes, media_type=MEDIA_TYPE)
        context.services.blobs.path(blob.sha256)  # raises if a sweep has removed it meanwhile
        repos.sources.set_ready(key, sha256=blob.sha256, size_bytes=blob.size_bytes)
    log.info("kernel source stored", kinds=source.kinds, size_bytes=blob.size_bytes)
