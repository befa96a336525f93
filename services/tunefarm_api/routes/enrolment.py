"""``/v1/devices/tokens`` and ``/v1/devices/enrol``: enrol a machine as a device."""

from __future__ import annotations

from fastapi import APIRouter, Request

from tunefarm_api.auth import key_of
from tunefarm_api.dependencies import ServicesDep, operation
from tunefarm_api.schemas.device import (
    DeviceCredential,
    Enrol,
    EnrolmentToken,
    EnrolmentTokenCreate,
    MachineCredentials,
)
from tunefarm_app.devices.enrolment import ENROL_SCOPE, create_enrolment_token, enrol_devices

router = APIRouter(prefix="/v1/devices", tags=["devices"])


@router.post("/tokens", status_code=201, **operation("admin", "Make an enrolment token"))
def create_token(body: EnrolmentTokenCreate, request: Request, services: ServicesDep) -> EnrolmentToken:
    """It lets one machine become a device, once. Revoke it like an API key."""
    key, text = create_enrolment_token(
        services,
        device_key=body.device_key,
        device_name=body.name,
        valid_sec=body.valid_sec,
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
    """Uses up the enrolment token that the request shows in place of an API key, and answers with the device's own.

    One token is good for one machine: one whose GPUs are devices each names them all at once.
    """
    enrolled = enrol_devices(
        services, key_of(request), names=[body.name, *body.also], device_key=body.device_key
    )
    first, *others = (
        DeviceCredential(
            api_key=text, name=key.device_name or body.name, device_key=key.device_key or body.device_key
        )
        for key, text in enrolled
    )
    return MachineCredentials(**first.model_dump(), also=others)
