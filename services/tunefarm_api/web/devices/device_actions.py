"""What a person can do to a device: its buttons, and the page that adds a machine."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from starlette.concurrency import run_in_threadpool

from tunefarm_api.auth import key_of, needs
from tunefarm_api.dependencies import ServicesDep
from tunefarm_api.web.forms import FormDep
from tunefarm_api.web.rendering import page
from tunefarm_app.devices.commands import command_device, remove_device
from tunefarm_app.devices.enrolment import TOKEN_VALID_SEC, create_enrolment_token
from tunefarm_db.states.device import DeviceEvent
from tunefarm_tuning.core.errors import InvalidInputError

router = APIRouter(include_in_schema=False)

_COMMANDS = {
    "drain": DeviceEvent.DRAIN,
    "quarantine": DeviceEvent.QUARANTINE,
    "release": DeviceEvent.RELEASE,
}
_MOST_REASON = 300


@router.post("/devices/join", dependencies=[needs("admin")])
async def join(request: Request, form: FormDep, services: ServicesDep) -> Response:
    """Shows the command that makes a machine a device, once: it holds an enrolment token."""
    pool = form.get("pool", "").strip() or None

    def make() -> str:
        by = key_of(request).id
        return create_enrolment_token(services, device_key=pool, by_key_id=by)[1]

    token = await run_in_threadpool(make)
    url = str(request.base_url).rstrip("/")
    return page(
        "join.html", request, url=url, token=token, pool=pool or "local", minutes=int(TOKEN_VALID_SEC / 60)
    )


@router.post("/devices/{device_id}/{command}", dependencies=[needs("admin")])
async def command_a_device(device_id: str, command: str, form: FormDep, services: ServicesDep) -> Response:
    """Drain, quarantine, release or remove a device."""
    if command == "remove":
        await run_in_threadpool(remove_device, services, device_id)
    elif command in _COMMANDS:
        reason = form.get("reason", "").strip()[:_MOST_REASON]
        await run_in_threadpool(command_device, services, device_id, _COMMANDS[command], reason)
    else:
        raise InvalidInputError("there is no such command", code="invalid-request")
    stays = form.get("back") == "device" and command != "remove"
    return RedirectResponse(f"/devices/{device_id}" if stays else "/devices", 303)
