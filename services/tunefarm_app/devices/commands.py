"""Commands of people to devices: drain, quarantine, release, remove."""

from __future__ import annotations

import structlog

from tunefarm_app.runtime.composition import Services
from tunefarm_db.states.device import TRANSITIONS, DeviceEvent
from tunefarm_db.values import AuditAction, Device, DeviceState
from tunefarm_tuning.core.errors import ConflictError
from tunefarm_tuning.core.untrusted_text import clean

log = structlog.stdlib.get_logger(__name__)

_ACTIONS = {
    DeviceEvent.DRAIN: AuditAction.DEVICE_DRAINED,
    DeviceEvent.QUARANTINE: AuditAction.DEVICE_QUARANTINED,
    DeviceEvent.RELEASE: AuditAction.DEVICE_RELEASED,
}
_WORDS = {
    DeviceEvent.DRAIN: ("drained", "drained by a person"),
    DeviceEvent.QUARANTINE: ("quarantined", "quarantined by a person"),
    DeviceEvent.RELEASE: ("released", "released by a person, is checked again at its agent's next heartbeat"),
}


def command_device(services: Services, device_id: str, event: DeviceEvent, reason: str = "") -> Device:
    """Apply a person's command: drain, quarantine or release the device. `reason` is shown to people.

    Raises:
        NotFoundError: ``device-not-found``.
        ConflictError: ``device-state`` if its state does not allow that.
    """
    verb, words = _WORDS[event]
    text = f"{words}: {clean(reason, 300)}" if reason else words
    held = None if event is DeviceEvent.DRAIN else event is DeviceEvent.QUARANTINE
    with services.uow.write() as repos:
        before = repos.devices.get(device_id)
        stored = DeviceState.ONLINE if before.state is DeviceState.LEASED else before.state
        if stored not in TRANSITIONS[event]:
            raise ConflictError(
                f"device {before.name} is {before.state}: it cannot be {verb}",
                code="device-state",
                state=before.state.value,
            )
        device = repos.devices.apply(device_id, event, text, held=held)
        repos.audit.note(_ACTIONS[event], device.id, device=device.name)
    log.info("device commanded", device_id=device.id, state=device.state.value, reason=device.reason)
    return device


def remove_device(services: Services, device_id: str) -> Device:
    """Remove the device: its credential is revoked, and a step that measures on it loses it. Its records stay.

    Raises:
        NotFoundError: ``device-not-found``.
    """
    with services.uow.write() as repos:
        device = repos.devices.apply(device_id, DeviceEvent.REMOVE, "removed by a person")
        repos.api_keys.revoke_of_device(device.name)
        repos.audit.note(AuditAction.DEVICE_REMOVED, device.id, device=device.name)
    log.info("device removed", device_id=device.id, name=device.name)
    return device
