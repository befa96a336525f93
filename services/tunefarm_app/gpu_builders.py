"""Kernels for GPUs are built by workers that have CUDA's compiler: one without passes such work on, if the farm has one with.

Whoever sends a step does not know what it needs, and any worker may get it. The broker remembers for a minute that a worker with
the compiler is there; that decides between passing on and a clear error, and nothing else leans on it.
"""

from __future__ import annotations

from contextlib import suppress

import structlog

from tunefarm_app.composition import Services
from tunefarm_db.values import Device, Job, Step
from tunefarm_tuning.cuda_toolkit import NO_COMPILER
from tunefarm_tuning.errors import InvalidInputError, LeaseLostError, TransientError
from tunefarm_tuning.target import Target

log = structlog.stdlib.get_logger(__name__)

_MOST_WAITING = 100
"""A step that waits is sent again every few seconds: no more messages than these for workers that are busy."""


def passed_on(services: Services, step: Step, job: Job) -> bool:
    """Hand a step back, and send it to a worker that can build for its job's target, if this one cannot.

    Returns:
        Whether that was done; False where this worker can.

    Raises:
        InvalidInputError: If neither this worker can nor one of the farm is known that might.
    """
    try:
        services.require_engine().check_can_build(Target.from_json(job.target))
    except InvalidInputError as error:
        if error.code != NO_COMPILER:
            raise
        if not services.dispatcher.has_gpu_builder():
            raise InvalidInputError(
                f"no worker of this farm has CUDA's compiler. Of the worker that was asked: {error.message}",
                code=NO_COMPILER,
            ) from error
    else:
        return False
    # What fails here leaves the step to its lease, which runs out.
    with suppress(LeaseLostError, TransientError):
        with services.uow.write() as repos:
            repos.steps.release(step.id, step.fence)
            # The reconciler need not send it at once: that may be to this worker again.
            repos.steps.mark_sent([step.id])
        waiting = services.dispatcher.queue_length(step.kind, builds_for_gpus=True) or 0
        if waiting < _MOST_WAITING:
            services.dispatcher.send(step.id, step.kind, builds_for_gpus=True)
        log.info("step passed on: there is no CUDA compiler here")
    return True


def calibration_passed_on(services: Services, device: Device, fence: int) -> bool:
    """Have a worker that can build for a device calibrate it, if this one cannot; return whether that was done."""
    try:
        services.require_engine().check_can_build(Target.from_json(device.target))
    except InvalidInputError as error:
        if error.code != NO_COMPILER or not services.dispatcher.has_gpu_builder():
            return False  # the calibration says what is wrong
    else:
        return False
    services.dispatcher.send_calibration(device.id, fence, builds_for_gpus=True)
    log.info("calibration passed on: there is no CUDA compiler here", device_id=device.id)
    return True
