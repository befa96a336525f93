"""Holders of devices: which step or calibration has the lease, and for which job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tunefarm_db.repositories.devices.devices import is_calibration
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import Device

_STEP = "step:"
"""Prefix of the owner of a step's lease (`StepLease.take_device`)."""

CALIBRATE = "calibrate"
"""The work of a holder that calibrates the device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """The holder of a device's lease.

    Attributes:
        work: A `StepKind`, or `CALIBRATE`; None if unknown.
        step_id: The step.
        job_id: The step's job.
    """

    work: str | None = None
    step_id: str | None = None
    job_id: str | None = None


NOBODY = Holder()


def holders_of(repos: Repositories, devices: Sequence[Device]) -> dict[str, Holder]:
    """Return the holders of the leased devices, by device, with at most one query."""
    now = repos.now()
    held = {
        device.id: device.lease_owner
        for device in devices
        if device.lease_owner is not None and (device.lease_until or 0.0) >= now
    }
    steps = {
        device_id: owner.removeprefix(_STEP) for device_id, owner in held.items() if owner.startswith(_STEP)
    }
    kinds_and_jobs = repos.steps.kinds_and_jobs(steps.values()) if steps else {}
    holders = {}
    for device_id, owner in held.items():
        step_id = steps.get(device_id)
        kind, job_id = kinds_and_jobs.get(step_id or "", (None, None))
        work = CALIBRATE if is_calibration(owner) else kind
        holders[device_id] = Holder(work=work, step_id=step_id, job_id=job_id)
    return holders
