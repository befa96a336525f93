"""Calibration of devices: requested by the reconciler, run by workers under the device's lease.

A device gets work only after the calibration kernel ran clean on it: after it joins, after trouble, and every
`Settings.calibrate_every_sec`. `drift` decides what a run means.
"""

from __future__ import annotations

import logging
import time

import structlog

from tunefarm_app.devices.drift import (
    Reference,
    calibration_result,
    calibration_row,
    excess,
    judge,
    reference_of,
)
from tunefarm_app.devices.peak import measure_device_peak
from tunefarm_app.leases.device_lease_keeper import DeviceLeaseKeeper
from tunefarm_app.leases.device_turns import wake_next
from tunefarm_app.runtime.composition import Services
from tunefarm_db.states.device import DeviceEvent
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import UP_STATES, CalibrationOutcome, Device, DeviceLease, Json, NewCalibration, Step
from tunefarm_tuning.core.cancellation import Cancellation
from tunefarm_tuning.core.errors import BROKE_PROTOCOL, DeviceLostError, InvalidInputError, TunefarmError
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.measure.calibration import CalibrationRun
from tunefarm_tuning.measure.gpu.state import BUSY

log = structlog.stdlib.get_logger(__name__)

_ASK_AGAIN_SEC = 20.0
"""A request that no worker takes within this time is sent again."""

NO_LINKER = "no worker that looked can link for it: "
"""Begins the reason of a device that cannot be calibrated since the workers lack a linker; the package to install follows."""

_TRIES = 3
_LOST, _MOST_LOSSES = "lost in its calibration: ", 3
_PAUSE_SEC = 0.5
"""A device that seems to drift is measured again: a disturbance may have ended."""


def ask_for_calibrations(services: Services) -> None:
    """Ask the workers for the calibrations that are due."""
    if services.settings.calibrate_every_sec == 0:
        return
    with services.uow.write() as repos:
        overdue = repos.calibrations.mark_overdue()
        due = repos.calibrations.take_due(again_after_sec=_ASK_AGAIN_SEC)
    for device in overdue:
        log.debug("calibration due", device_id=device.id, name=device.name)
    for device in due:
        services.dispatcher.send_calibration(device.id, device.fence)


def calibrate_device(device_id: str, fence: int, services: Services) -> Device | None:
    """Calibrate the device, and set it online or quarantine it. `fence`: its newest lease at the time of the request.

    Returns:
        The device afterwards; None if the request was void, or the lease was lost.
    """
    owner = f"calibration:{services.owner}"
    with services.uow.write() as repos:
        lease = repos.calibrations.lease(device_id, fence, owner, services.settings.lease_sec)
        if lease is None:
            return None
        mates = [
            mate.calibration
            for mate in repos.devices.in_pool(lease.device.device_key)
            if mate.id != device_id and mate.state in UP_STATES and mate.calibration is not None
        ]
    event: DeviceEvent | None
    calibration: Json | None = None
    result: NewCalibration
    keeper = DeviceLeaseKeeper(services, lease)
    try:
        with keeper:
            run, reference = _run(services, lease, mates, keeper.cancellation)
            event, reason = judge(run, reference, services.settings)
            if event is DeviceEvent.CLEAN:
                measure_device_peak(services, lease, keeper.cancellation)
    except Exception as error:  # noqa: BLE001  (`_blame` decides about each kind)
        if keeper.cancellation.cancelled:  # it failed because its child was closed
            return _note(services, lease, None, "", None, next_sec=0.0)
        event, reason = _blame(lease, error)
        if event is DeviceEvent.SILENT and _was_lost_before(services, device_id):
            event = DeviceEvent.FAIL
        result = NewCalibration(outcome=CalibrationOutcome.BROKEN, reason=reason)
    else:
        result = calibration_result(run, reference, event, reason)
        if event is DeviceEvent.CLEAN:
            calibration = calibration_row(run, reference)
    settings = services.settings
    next_sec = settings.calibrate_retry_sec if calibration is None else settings.calibrate_every_sec
    return _note(services, lease, event, reason, calibration, result=result, next_sec=next_sec)


def _was_lost_before(services: Services, device_id: str) -> bool:
    """Return whether a device was lost in each of its last calibrations: then these may be what brings it down."""
    with services.uow.read() as repos:
        last = repos.device_history.calibrations(device_id, limit=_MOST_LOSSES).items
    return len(last) == _MOST_LOSSES and all(each.reason.startswith(_LOST) for each in last)


def _blame(lease: DeviceLease, error: Exception) -> tuple[DeviceEvent | None, str]:
    """Return the event and the reason for a calibration that did not finish."""
    if isinstance(error, DeviceLostError) and error.code == BROKE_PROTOCOL:
        return DeviceEvent.QUARANTINE, error.message
    if isinstance(error, DeviceLostError) and error.code == BUSY:
        # Its agent will report this too. Until the GPU is free, nothing is known about the device.
        log.warning("device busy", device_id=lease.device.id, error=error.message)
        return None, f"busy: {error.message}"
    if isinstance(error, DeviceLostError) and error.fields.get("away"):
        # Nothing is known to be wrong with it. Its agent's next heartbeat has it calibrated anew.
        return DeviceEvent.SILENT, f"{_LOST}{error.message}"
    if isinstance(error, DeviceLostError):
        return DeviceEvent.FAIL, f"the calibration failed: {error.message}"
    # Not the device's fault.
    if isinstance(error, InvalidInputError) and error.code == "no-linker":
        log.warning("no linker", device_id=lease.device.id, error=error.message)
        return None, f"{NO_LINKER}{error.message}"
    unknown = None if isinstance(error, TunefarmError) else error
    log.warning("calibration broke", device_id=lease.device.id, error=str(error), exc_info=unknown)
    return None, f"the calibration failed in the worker: {clean(str(error), 300)}"


def _run(
    services: Services, lease: DeviceLease, mates: list[Json], cancellation: Cancellation
) -> tuple[CalibrationRun, Reference]:
    """Run the kernel, up to `_TRIES` times if it seems to drift; return the best run and its reference."""
    engine = services.require_engine()
    best: CalibrationRun | None = None
    for number in range(_TRIES):
        if number:
            time.sleep(_PAUSE_SEC)
        run = engine.calibrate(lease.device, cancellation=cancellation)
        reference = reference_of(run, lease.device.calibration, mates)
        settings = services.settings
        if best is None or run.wrong or excess(run, reference, settings) < excess(best, reference, settings):
            best = run
        if run.wrong or excess(run, reference, settings) <= 1.0:
            break
    assert best is not None
    return best, reference


def _note(
    services: Services,
    lease: DeviceLease,
    event: DeviceEvent | None,
    reason: str,
    calibration: Json | None,
    *,
    result: NewCalibration | None = None,
    next_sec: float,
) -> Device | None:
    with services.uow.write() as repos:
        device = repos.calibrations.finish(
            lease.device.id,
            lease.fence,
            event=event,
            reason=reason,
            calibration=calibration,
            result=result,
            next_sec=next_sec,
        )
        woken = _wake(repos, device)
    if device is None:
        log.warning("calibration came too late", device_id=lease.device.id)
        return None
    log.log(
        logging.INFO if event is DeviceEvent.CLEAN else logging.WARNING,
        "device calibrated",
        device_id=device.id,
        name=device.name,
        state=device.state.value,
        reason=device.reason,
        time_sec=None if calibration is None else calibration["time_sec"],
    )
    if woken is not None:
        services.dispatcher.send(woken.id, woken.kind)
    return device


def _wake(repos: Repositories, device: Device | None) -> Step | None:
    if device is None or device.state not in UP_STATES:
        return None
    return wake_next(repos, device.device_key)
