"""The Celery tasks: run a step, by its id; calibrate a device."""

from __future__ import annotations

import structlog
from celery import shared_task
from celery.signals import setup_logging, worker_process_init, worker_process_shutdown

from tunefarm_app.devices.calibration import calibrate_device
from tunefarm_app.runtime.composition import Services, compose_worker
from tunefarm_app.runtime.dispatch import CALIBRATE, RUN_STEP
from tunefarm_app.runtime.logs import configure_logging
from tunefarm_app.settings import load_settings
from tunefarm_app.steps.run import run_steps
from tunefarm_tuning.process.lifeline import forbid_inspection
from tunefarm_workers.drain import draining

log = structlog.stdlib.get_logger(__name__)

_services: Services | None = None
"""The services of this pool child. They keep compiler and measuring processes from step to step."""


def run_step(step_id: str) -> None:
    """Run the step and, for a while, the steps that follow it; see `tunefarm_app.steps.run`."""
    run_steps(step_id, _this_process())


def calibrate(device_id: str, fence: int) -> None:
    """Calibrate the device; see `tunefarm_app.devices.calibration`."""
    with structlog.contextvars.bound_contextvars(device_id=device_id):
        calibrate_device(device_id, fence, _this_process())


def _this_process() -> Services:
    global _services
    if _services is None:
        _services = compose_worker(load_settings(), draining=draining)
    return _services


def _close(**_: object) -> None:
    global _services
    services, _services = _services, None
    if services is not None:
        services.close()


def _hide(**_: object) -> None:
    forbid_inspection()


def _configure_logging(**_: object) -> None:
    # This also keeps Celery from configuring the log.
    configure_logging(load_settings().log_level, role="worker")


shared_task(name=RUN_STEP, ignore_result=True)(run_step)
shared_task(name=CALIBRATE, ignore_result=True)(calibrate)
worker_process_init.connect(_hide)
worker_process_shutdown.connect(_close)
setup_logging.connect(_configure_logging)
