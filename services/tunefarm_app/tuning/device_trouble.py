"""What becomes of a device on which measurements failed for no fault of the candidates."""

from __future__ import annotations

from collections.abc import Sequence

from tunefarm_app.leases.step_context import StepContext
from tunefarm_db.states.device import DeviceEvent
from tunefarm_db.values import DeviceLease
from tunefarm_tuning.core.errors import DeviceLostError, TransientError
from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.measure.builder.worker import FULL_DISK
from tunefarm_tuning.measure.gpu.state import BUSY, says_busy
from tunefarm_tuning.search.trial_outcome import TrialOutcome

_LOST_STEPS_BEFORE_QUARANTINE = 2
_LOSSES_IN_A_ROW = 9
"""Three candidates that each took a device down three times, and nothing measured in between: it is not the candidates."""


def check_measured(context: StepContext, device: DeviceLease, outcomes: Sequence[TrialOutcome]) -> None:
    """Note what the device itself got wrong: it is calibrated before its next round.

    A round in which it measured nothing is noted in its job. Where a candidate was at work when the device was lost, the
    round counts: what it was at is among the job's trials, and is set aside after three times. Otherwise the step is to be
    tried again, and the device is quarantined if that goes on; not where it is a GPU that somebody else computes on.

    Raises:
        TransientError: ``disk-full`` if candidates could not be built for want of room, which is not the device's fault.
        DeviceLostError: If there was something to measure, none of it was, and no candidate was at work;
            ``device-busy`` where somebody else was.
    """
    if any(one.outcome is Outcome.INFRASTRUCTURE_ERROR and one.message == FULL_DISK for one in outcomes):
        raise TransientError(FULL_DISK, code="disk-full")
    # A refused candidate never came to the device, whatever its message is.
    lost = [one for one in outcomes if one.outcome is Outcome.INFRASTRUCTURE_ERROR]
    if lost:
        context.lease.doubt_device(lost[0].message)
    if not outcomes or any(outcome.is_trial for outcome in outcomes):
        return
    message = lost[0].message if lost else outcomes[0].message
    name = device.device.name
    busy = bool(lost) and says_busy(message)
    with context.note() as repos:
        repos.events.add(context.job_id, "device-trouble", {"device": name, "message": message})
        at_work = any(one.run_sec > 0.0 for one in lost)
        if at_work and repos.trials.losses_in_a_row(context.job_id) < _LOSSES_IN_A_ROW:
            return
        if not busy and context.step.attempts >= _LOST_STEPS_BEFORE_QUARANTINE:
            repos.devices.apply(
                device.device.id, DeviceEvent.FAIL, f"measured nothing, twice in a row: {message}"
            )
    raise DeviceLostError(
        f"device {name} measured nothing: {message}",
        code=BUSY if busy else None,
        device_id=device.device.id,
    )
