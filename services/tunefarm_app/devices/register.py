"""Registration and heartbeats of devices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import structlog

from tunefarm_app.devices.agent_info import check_info
from tunefarm_app.devices.history import vitals_of
from tunefarm_app.leases.device_turns import wake_next
from tunefarm_app.runtime.composition import Services
from tunefarm_db.states.device import DeviceEvent
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import AuditAction, Device, DeviceState, Step
from tunefarm_tuning.core.errors import ConflictError, InvalidInputError, NotFoundError
from tunefarm_tuning.core.untrusted_text import NAME_RULE, clean, is_name
from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.target.target import Target

log = structlog.stdlib.get_logger(__name__)

GUEST = "guest"
"""Scope of the credential of a device that is somebody else's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRegistration:
    """A device as its agent describes it.

    Attributes:
        name: The device's name; registering it again updates the device.
        device_key: The pool that it belongs to. Devices of a pool are interchangeable: one target, one device model.
        target: Its target, as `Target.to_json`.
        info: More about it (CPU, cores, memory, versions), for people.
        device_model: Groups devices whose timings can be compared.
        rpc_key: Its agent's key, of this device alone.
        by_gateway: Whether its agent can dial the farm's gateway.
        ready: Whether it can be measured on already; otherwise a later heartbeat says so.
    """

    name: str
    device_key: str
    target: Mapping[str, Any]
    info: Mapping[str, Any]
    device_model: str
    rpc_key: str
    by_gateway: bool = False
    ready: bool = True


def register_device(services: Services, registration: DeviceRegistration, *, guest: bool = False) -> Device:
    """Add the device, or update it.

    Args:
        services: The process's services.
        registration: What its agent says.
        guest: Whether the device is somebody else's. Its model is then one of its pool's own, which no device can claim: its
            records are found for this pool alone.

    Raises:
        InvalidInputError: ``invalid-device`` if a field is not usable; an error of `parse_target`.
        ConflictError: ``device-pool-mismatch`` if other devices of the pool have another target or device model.
    """
    by_gateway = registration.by_gateway and bool(services.settings.gateway)
    for field in ("name", "device_key", "device_model", "rpc_key"):
        check_name(field, getattr(registration, field))
    check_info(registration.info)
    if guest:
        model = f"{GUEST}:{registration.device_key}:{registration.device_model}"
        registration = replace(registration, device_model=model)
    target = parse_target(registration.target)
    with services.uow.write() as repos:
        for other in repos.devices.in_pool(registration.device_key):
            if other.name != registration.name and other.state is not DeviceState.OFFLINE:
                _check_alike(other, registration, target)
        device = repos.devices.register(
            name=registration.name,
            device_key=registration.device_key,
            target=target.to_json(),
            info=dict(registration.info),
            device_model=registration.device_model,
            rpc_key=registration.rpc_key,
            by_gateway=by_gateway,
            ready=registration.ready,
            reason="it is starting",
        )
        repos.audit.note(
            AuditAction.DEVICE_REGISTERED, device.id, device=device.name, device_key=device.device_key
        )
        device, woken = _let_in(services, repos, device)
    log.info("device registered", device_id=device.id, name=device.name, device_key=device.device_key)
    _send(services, woken)
    return device


def _check_alike(other: Device, registration: DeviceRegistration, target: Target) -> None:
    """Raise if a device and another one of its pool differ; the message names what differs and both values."""
    theirs = Target.from_json(other.target)
    if other.device_model != registration.device_model:
        differing, pool_value, own_value = "model", other.device_model, registration.device_model
    elif theirs != target:
        differing, pool_value, own_value = "target", theirs.key, target.key
    else:
        return
    raise ConflictError(
        f"devices of a pool must be identical: {registration.device_key} has {clean(other.name, 60)}, whose {differing} is "
        f"{clean(pool_value, 200)}; the {differing} of {clean(registration.name, 60)} is {clean(own_value, 200)}. Choose another pool, "
        "for which `tunefarm device token --device-key KEY` creates a token",
        code="device-pool-mismatch",
        device_key=registration.device_key,
    )


def heartbeat(
    services: Services,
    device_id: str,
    *,
    device_name: str | None = None,
    ready: bool = True,
    reason: str = "",
    rpc_key: str | None = None,
    info: Mapping[str, Any] | None = None,
) -> Device:
    """Store a heartbeat.

    Args:
        services: The process's services.
        device_id: The device.
        device_name: The one device that the caller may speak for; None for any.
        ready: Whether it can be measured on now; if not, it is offline.
        reason: Why it is not ready.
        rpc_key: Its agent's key; None if the agent does not say.
        info: The changed members of its `info`.

    Raises:
        NotFoundError: ``device-not-found``: the agent must register again.
        ConflictError: ``device-taken`` if another agent registered the device since, and is alive.
        InvalidInputError: ``invalid-device``, as `check_info`.
    """
    if info is not None:
        check_info(info)
    with services.uow.write() as repos:
        before = repos.devices.get(device_id)
        if device_name not in (None, before.name):
            # The caller must not even learn whether other devices exist.
            raise NotFoundError("there is no such device", code="device-not-found", device_id=device_id)
        if services.settings.gateway and not before.by_gateway:  # it joined when farms had trackers
            raise NotFoundError(
                "devices dial the farm's gateway: register again",
                code="device-not-found",
                device_id=device_id,
            )
        if rpc_key not in (None, before.rpc_key):
            _refuse_other_life(before, silent_sec=repos.now() - before.last_seen_at, services=services)
        device = repos.devices.heartbeat(
            device_id, ready=ready, reason=clean(reason, 300), info=None if info is None else dict(info)
        )
        repos.device_slots.beat(device_id, asdict(vitals_of(device.info)))
        device, woken = _let_in(services, repos, device)
    if before.state is not device.state:
        log.info("device changed", device_id=device.id, state=device.state.value, reason=device.reason)
    _send(services, woken)
    return device


def _refuse_other_life(device: Device, *, silent_sec: float, services: Services) -> None:
    """Refuse the heartbeat of an agent with another key than the stored one: workers would not find it."""
    if silent_sec < services.settings.device_stale_sec:
        # Two agents with one name that both register again would take the device from each other for ever.
        raise ConflictError(
            f"another live agent has registered as {device.name}: give one of the two another name",
            code="device-taken",
            device_id=device.id,
        )
    # The database was restored from a backup, or the other agent is gone.
    raise NotFoundError(
        "the device is registered under another key", code="device-not-found", device_id=device.id
    )


def _let_in(services: Services, repos: Repositories, device: Device) -> tuple[Device, Step | None]:
    """Set a ready device online if the farm does not calibrate; return the device and the step to wake."""
    if device.state is not DeviceState.CHECKING or services.settings.calibrate_every_sec > 0:
        return device, None
    device = repos.devices.apply(device.id, DeviceEvent.CLEAN)
    return device, wake_next(repos, device.device_key)


def _send(services: Services, step: Step | None) -> None:
    if step is not None:
        services.dispatcher.send(step.id, step.kind)


def check_name(field: str, value: str) -> None:
    """Refuse a name that breaks `NAME_RULE`.

    Raises:
        InvalidInputError: ``invalid-device``.
    """
    if not is_name(value):
        raise InvalidInputError(f"{field} must be {NAME_RULE}", code="invalid-device", field=field)
