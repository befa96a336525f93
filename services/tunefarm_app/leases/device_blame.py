"""The policy for devices that fail at a step: a table from errors to events. The first row that matches decides.

=====================================================  ==========  =========================================================
Error                                                  Event       What happens
=====================================================  ==========  =========================================================
the device broke TVM's protocol or told false times    quarantine  it gets no work until a person releases it
it measured nothing at its second try of the step      fail        it gets no work until a clean calibration
any other loss                                         doubt       it is calibrated before its next step, if devices are
=====================================================  ==========  =========================================================

Raised errors are judged in `steps.run`; `tuning.round` has those judged that leave its round valid. Losses in a calibration
are judged in `devices.calibration`.
"""

from __future__ import annotations

from dataclasses import dataclass

from tunefarm_db.states.device import DeviceEvent
from tunefarm_tuning.core.errors import BROKE_PROTOCOL, DeviceLostError
from tunefarm_tuning.core.untrusted_text import clean

_HELD_FOR = frozenset({BROKE_PROTOCOL, "impossible-times"})
"""Codes of errors after which only a person releases the device."""
_MISSES_BEFORE_QUARANTINE = 2
"""Other devices' misses of the step, killed workers, and a GPU that somebody else used do not count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blame:
    """What happens to a device.

    Attributes:
        event: The event to apply to it.
        reason: Shown as the reason of its state.
        held: Only a person releases it.
    """

    event: DeviceEvent
    reason: str
    held: bool = False


def blame_for(error: DeviceLostError) -> Blame:
    """Return what an error of a step means for the step's device; its field ``misses`` counts the tries without a measurement."""
    why = clean(error.message, 300)
    if error.code in _HELD_FOR:
        return Blame(event=DeviceEvent.QUARANTINE, reason=why, held=True)
    misses = error.fields.get("misses", 0)
    if misses >= _MISSES_BEFORE_QUARANTINE:
        return Blame(event=DeviceEvent.FAIL, reason=f"at {misses} tries of one step: {why}")
    return Blame(event=DeviceEvent.DOUBT, reason=f"waits for calibration after: {why}")
