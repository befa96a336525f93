"""``/v1/devices``: the machines that measure, and how a machine is enrolled as one."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request

from tunefarm_api.auth import ForbiddenError, key_of
from tunefarm_api.dependencies import DeviceId, ServicesDep, operation
from tunefarm_api.schemas.base import Limit, Page, cursor_of
from tunefarm_api.schemas.device import (
    BeatingDevice,
    CertificateRequest,
    Device,
    DeviceCredential,
    DeviceOrder,
    DeviceRegister,
    Enrol,
    EnrolmentToken,
    EnrolmentTokenCreate,
    GatewayAccess,
    Heartbeat,
    MachineCredentials,
    ShownCredential,
)
from tunefarm_api.schemas.peak import DevicePeak
from tunefarm_app.devices.certificates import certify_device
from tunefarm_app.devices.commands import command_device, remove_device
from tunefarm_app.devices.credentials import Credential, credentials_of, is_due, renew_credential
from tunefarm_app.devices.enrolment import ENROL_SCOPE, create_enrolment_token, enrol_devices
from tunefarm_app.devices.holders import NOBODY, Holder, holders_of
from tunefarm_app.devices.peak import peaks_of
from tunefarm_app.devices.register import GUEST, DeviceRegistration, heartbeat, register_device
from tunefarm_app.runtime.composition import Services
from tunefarm_db.states.device import DeviceEvent
from tunefarm_db.values import Device as StoredDevice
from tunefarm_db.values import DeviceState
from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.measure.peak import Peak

router = APIRouter(prefix="/v1/devices", tags=["devices"])


@router.post("/tokens", status_code=201, **operation("admin", "Create an enrolment token"))
def create_token(body: EnrolmentTokenCreate, request: Request, services: ServicesDep) -> EnrolmentToken:
    """With the token, one machine can become a device, once. Revoke it like an API key."""
    key, text = create_enrolment_token(
        services,
        device_key=body.device_key,
        device_name=body.name,
        valid_sec=body.valid_sec,
        guest=body.guest,
        by_key_id=key_of(request).id,
    )
    return EnrolmentToken(
        id=key.id,
        token=text,
        expires_at=key.expires_at or 0.0,
        name=key.device_name,
        device_key=key.device_key,
    )


@router.post("/enrol", status_code=201, **operation(ENROL_SCOPE, "Enrol a device", 409))
def enrol(body: Enrol, request: Request, services: ServicesDep) -> MachineCredentials:
    """Takes an enrolment token in place of an API key, and returns the device's own API key. The token is then used up.

    A token is valid for one machine. A machine whose GPUs are devices names all of them in this request. If the answer was lost, the same
    request can be sent again within a minute: it returns other keys in place of those that nobody has used.
    """
    enrolled = enrol_devices(
        services, key_of(request), names=[body.name, *body.also], device_key=body.device_key
    )
    first, *others = (
        DeviceCredential(
            api_key=text,
            name=key.device_name or body.name,
            device_key=key.device_key or body.device_key,
            expires_at=key.expires_at,
        )
        for key, text in enrolled
    )
    return MachineCredentials(**first.model_dump(), also=others)


@router.post("/credential", status_code=201, **operation("device", "Replace a device's credential", 409))
def renew(request: Request, services: ServicesDep) -> DeviceCredential:
    """Takes a device's credential that ends soon, and returns the next one. The former one ends a day after the first use of the next one.

    Agents call it when a heartbeat's `renew_credential` says so; other keys get `credential-not-due`.
    """
    key, text = renew_credential(services, key_of(request))
    return DeviceCredential(
        api_key=text, name=str(key.device_name), device_key=str(key.device_key), expires_at=key.expires_at
    )


@router.post("", **operation("device", "Register a device", 409))
def add_device(body: DeviceRegister, request: Request, services: ServicesDep) -> Device:
    """Adds a device, or updates the device of this name. Its agent calls this at its start.

    The credential of an enrolled device can register only that device, in its pool. Workers reach it over the farm's gateway alone.
    """
    key = key_of(request)
    if key.device_name not in (None, body.name) or key.device_key not in (None, body.device_key):
        raise ForbiddenError(
            f"this key is the device {key.device_name}'s, in the pool {key.device_key}. For another name or pool, enrol with a "
            f"token of its own: `tunefarm device token --device-key {body.device_key}`",
            scope="device",
        )
    if body.tracker_host is not None or body.tracker_port is not None:
        raise InvalidInputError(
            "no device waits at a tracker any more: update its agent, which then dials the farm's gateway",
            code="tracker-removed",
            field="tracker_host",
        )
    _count_life(request)
    registration = DeviceRegistration(**body.model_dump(exclude={"tracker_host", "tracker_port"}))
    device = register_device(services, registration, guest=GUEST in key.scopes)
    return _read_with_lease(services, device)


@router.post("/{device_id}/heartbeat", **operation("device", "Send a device's heartbeat", 404, 409))
def device_heartbeat(
    device_id: str, body: Heartbeat, request: Request, services: ServicesDep
) -> BeatingDevice:
    """A device without heartbeats goes offline. After `device-not-found` it has to register again."""
    key = key_of(request)
    device = heartbeat(services, device_id, device_name=key.device_name, **body.model_dump())
    beating = BeatingDevice.model_validate(_read_with_lease(services, device), from_attributes=True)
    return beating.model_copy(update={"renew_credential": is_due(key, device.last_seen_at)})


@router.post("/{device_id}/certificate", **operation("device", "Get a certificate for the gateway", 404, 409))
def certify(
    device_id: str, body: CertificateRequest, request: Request, services: ServicesDep
) -> GatewayAccess:
    """The farm's gateway knows a device by it. The agent asks for the next one long before it ends."""
    _count_life(request)
    access = certify_device(
        services,
        device_id,
        rpc_key=body.rpc_key,
        request=body.certificate_request,
        device_name=key_of(request).device_name,
    )
    return GatewayAccess.model_validate(access)


def _count_life(request: Request) -> None:
    """Count what a device's credential writes for good; an administrator's key may have many devices."""
    key = key_of(request)
    if key.device_name is not None:
        request.app.state.rates.count_life(key.id)


@router.get("", **operation("read", "List devices"))
def list_devices(
    services: ServicesDep,
    device_key: Annotated[str | None, Query(max_length=200, description="Only devices of this pool.")] = None,
    state: Annotated[DeviceState | None, Query(description="Only devices in this state.")] = None,
    limit: Limit = 50,
    cursor: Annotated[str | None, cursor_of("dev")] = None,
) -> Page[Device]:
    """In the order of their first registration."""
    with services.uow.read() as repos:
        page = repos.devices.list(device_key=device_key, state=state, cursor=cursor, limit=limit)
        holders = holders_of(repos, page.items)
        peaks = peaks_of(repos, page.items)
        credentials = credentials_of(repos, [device.name for device in page.items])
    items = [
        _device_out(
            device,
            holders.get(device.id, NOBODY),
            peaks.get(device.id),
            credentials.get(device.name),
        )
        for device in page.items
    ]
    return Page(items=items, next_cursor=page.next_cursor)


@router.get("/{device_id}", **operation("read", "Get a device", 404))
def get_device(device_id: DeviceId, services: ServicesDep) -> Device:
    """Includes the step that holds the device, if one does."""
    with services.uow.read() as repos:
        device = repos.devices.get(device_id)
    return _read_with_lease(services, device)


@router.post("/{device_id}/drain", **operation("admin", "Drain a device", 404, 409))
def drain_device(device_id: DeviceId, services: ServicesDep, body: DeviceOrder | None = None) -> Device:
    """The device finishes its current round and gets no other until it is released."""
    return _read_with_lease(services, command_device(services, device_id, DeviceEvent.DRAIN, _reason(body)))


@router.post("/{device_id}/quarantine", **operation("admin", "Quarantine a device", 404, 409))
def quarantine_device(device_id: DeviceId, services: ServicesDep, body: DeviceOrder | None = None) -> Device:
    """The device gets no work and no calibration until a person releases it."""
    return _read_with_lease(
        services, command_device(services, device_id, DeviceEvent.QUARANTINE, _reason(body))
    )


@router.post("/{device_id}/release", **operation("admin", "Release a device", 404, 409))
def release_device(device_id: DeviceId, services: ServicesDep, body: DeviceOrder | None = None) -> Device:
    """Ends draining or quarantine. The device is calibrated like a new one, without a reference from before."""
    return _read_with_lease(services, command_device(services, device_id, DeviceEvent.RELEASE, _reason(body)))


@router.delete("/{device_id}", status_code=204, **operation("admin", "Remove a device", 404))
def delete_device(device_id: DeviceId, services: ServicesDep) -> None:
    """Revokes the device's credential. Its current measurements are repeated on other devices. Its records stay."""
    remove_device(services, device_id)


def _reason(body: DeviceOrder | None) -> str:
    return body.reason if body else ""


def _read_with_lease(services: Services, device: StoredDevice) -> Device:
    with services.uow.read() as repos:
        holders = holders_of(repos, [device])
        peaks = peaks_of(repos, [device])
        credential = credentials_of(repos, [device.name]).get(device.name)
    return _device_out(device, holders.get(device.id, NOBODY), peaks.get(device.id), credential)


def _device_out(
    device: StoredDevice, holder: Holder, peak: Peak | None, credential: Credential | None
) -> Device:
    update = {
        "job_id": holder.job_id,
        "work": holder.work,
        "step_id": holder.step_id,
        "peak": None if peak is None else DevicePeak.model_validate(peak),
        "credential": None if credential is None else ShownCredential.model_validate(credential),
    }
    return Device.model_validate(device).model_copy(update=update)
