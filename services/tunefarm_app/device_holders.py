"""For which job each device is at work."""

from __future__ import annotations

from collections.abc import Sequence

from tunefarm_app.composition import Services
from tunefarm_db.values import Device, DeviceState

_STEP = "step:"
"""How the owner of a lease begins where that is a step (`StepLease.take_device`)."""


def jobs_of_devices(services: Services, devices: Sequence[Device]) -> dict[str, str]:
    """Return, by device, the job whose step holds it; a device that is free or being calibrated is left out."""
    steps = {
        device.id: device.lease_owner.removeprefix(_STEP)
        for device in devices
        if device.state is DeviceState.LEASED and device.lease_owner and device.lease_owner.startswith(_STEP)
    }
    if not steps:
        return {}
    with services.uow.read() as repos:
        jobs = repos.steps.jobs_of(steps.values())
    return {device: jobs[step] for device, step in steps.items() if step in jobs}
