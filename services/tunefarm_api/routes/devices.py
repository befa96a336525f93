"""``/v1/devices``: the machines that measure."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from tunefarm_api.auth import needs
from tunefarm_api.dependencies import ServicesDep
from tunefarm_api.problems import problems
from tunefarm_api.schemas.base import Limit, Page, cursor_of
from tunefarm_api.schemas.device import Device, DeviceRegister, Heartbeat
from tunefarm_app.register_device import DeviceRegistration, heartbeat, register_device
from tunefarm_db.values import DeviceState

router = APIRouter(prefix="/v1/devices", tags=["devices"])


@router.post("", dependencies=[needs("device")], summary="Register a device", responses=problems(409))
def add_device(body: DeviceRegister, services: ServicesDep) -> Device:
    """Adds the device, or renews what is known of the device of this name. Its agent calls this at start."""
    device = register_device(services, DeviceRegistration(**body.model_dump()))
    return Device.model_validate(device)


@router.post(
    "/{device_id}/heartbeat",
    dependencies=[needs("device")],
    summary="Say that a device is alive",
    responses=problems(404),
)
def device_heartbeat(device_id: str, body: Heartbeat, services: ServicesDep) -> Device:
    """A device that is silent for too long goes offline. `device-not-found` means: register again."""
    device = heartbeat(services, device_id, ready=body.ready, reason=body.reason, info=body.info)
    return Device.model_validate(device)


@router.get("", dependencies=[needs("read")], summary="List devices", responses=problems())
def list_devices(
    services: ServicesDep,
    device_key: Annotated[str | None, Query(max_length=200, description="Only devices of this pool.")] = None,
    state: Annotated[DeviceState | None, Query(description="Only devices in this state.")] = None,
    limit: Limit = 50,
    cursor: Annotated[str | None, cursor_of("dev")] = None,
) -> Page[Device]:
    """In the order they were first registered."""
    with services.uow.read() as repos:
        page = repos.devices.list(device_key=device_key, state=state, cursor=cursor, limit=limit)
    return Page[Device].model_validate(page)


@router.get("/{device_id}", dependencies=[needs("read")], summary="Look at a device", responses=problems(404))
def get_device(device_id: str, services: ServicesDep) -> Device:
    with services.uow.read() as repos:
        return Device.model_validate(repos.devices.get(device_id))
