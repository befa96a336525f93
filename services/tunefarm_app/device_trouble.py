"""What becomes of a step in which the device measured nothing."""

from __future__ import annotations

from collections.abc import Sequence

from tunefarm_app.step_context import StepContext
from tunefarm_db.values import DeviceLease
from tunefarm_tuning.errors import DeviceLostError
from tunefarm_tuning.measure import Outcome
from tunefarm_tuning.round import TrialOutcome

_LOST_STEPS_BEFORE_QUARANTINE = 2


def check_measured(context: StepContext, device: DeviceLease, outcomes: Sequence[TrialOutcome]) -> None:
    """Note a step in which the device measured nothing, and give up on the device if that goes on.

    Raises:
        DeviceLostError: If there was something to measure and none of it was: the step is to be tried again.
    """
    if not outcomes or any(outcome.is_trial for outcome in outcomes):
        return
    # A refused candidate never came to the device, whatever its message is.
    lost = [one.message for one in outcomes if one.outcome is Outcome.INFRASTRUCTURE_ERROR]
    message = lost[0] if lost else outcomes[0].message
    name = device.device.name
    with context.note() as repos:
        repos.events.add(context.job_id, "device-trouble", {"device": name, "message": message})
        if context.step.attempts >= _LOST_STEPS_BEFORE_QUARANTINE:
            repos.devices.quarantine(device.device.id, f"measured nothing, twice in a row: {message}")
    raise DeviceLostError(f"device {name} measured nothing: {message}", device_id=device.device.id)
