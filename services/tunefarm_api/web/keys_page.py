"""The page of API keys: create, show once, revoke. It needs the scope ``admin``."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from starlette.concurrency import run_in_threadpool

from tunefarm_api.auth import key_of, needs
from tunefarm_api.dependencies import ServicesDep
from tunefarm_api.web.forms import FormDep
from tunefarm_api.web.rendering import page
from tunefarm_app.access.api_keys import SCOPES, create_api_key, list_api_keys, revoke_api_key
from tunefarm_db.values import ApiKey
from tunefarm_text import quantities
from tunefarm_tuning.core.errors import InvalidInputError

router = APIRouter(include_in_schema=False)

_MAY = {
    "read": "look",
    "write": "upload, tune, cancel, webhooks",
    "device": "register devices, and report for them",
    "admin": "all of these, and manage devices and keys",
}
_MOST_NAME = 100
_MOST_OLD = 50
"""Of keys that are worthless, the newest are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyLine:
    """One key.

    Attributes:
        state: `good`, `revoked` (or used up), or `expired`.
        may: What it may do, in words.
        limits: What it may use, in words; empty if it has no limits.
    """

    key: ApiKey
    state: str
    may: str
    limits: str


@router.get("/keys", dependencies=[needs("admin")])
def keys_page(request: Request, services: ServicesDep) -> HTMLResponse:
    """The list of API keys."""
    with services.uow.read() as repos:
        now = repos.now()
    lines = [_line(key, now) for key in reversed(list_api_keys(services))]
    good = [line for line in lines if line.state == "good"]
    old = [line for line in lines if line.state != "good"]
    return page(
        "keys.html",
        request,
        good=good,
        old=old[:_MOST_OLD],
        scopes=[(scope, _MAY[scope]) for scope in SCOPES],
    )


@router.post("/keys", dependencies=[needs("admin")])
async def make_key(request: Request, form: FormDep, services: ServicesDep) -> Response:
    """Shows the key, this once."""
    name = form.get("name", "").strip()
    if not 0 < len(name) <= _MOST_NAME:
        raise InvalidInputError(
            f"a key needs a name, of at most {_MOST_NAME} characters", code="invalid-request"
        )

    def make() -> tuple[ApiKey, str]:
        scopes = [scope for scope in SCOPES if f"scope-{scope}" in form]
        return create_api_key(services, name=name, scopes=scopes, by_key_id=key_of(request).id)

    key, text = await run_in_threadpool(make)
    return page("key_created.html", request, new_key=key, text=text)


@router.post("/keys/{key_id}/revoke", dependencies=[needs("admin")])
def revoke(key_id: str, request: Request, services: ServicesDep) -> Response:
    """Revoke an API key."""
    revoke_api_key(services, key_id, by_key_id=key_of(request).id)
    return RedirectResponse("/keys", 303)


def _line(key: ApiKey, now: float) -> KeyLine:
    over = key.expires_at is not None and key.expires_at <= now
    state = "revoked" if key.revoked_at is not None else "expired" if over else "good"
    kind, _, of = key.scopes[0].partition(":") if key.scopes else ("", "", "")
    may = f"the rights of the key {of}, in a browser" if of else ", ".join(key.scopes)
    if kind == "enrol":
        may = "enrol one machine as a device"
    if key.device_name is not None and kind != "enrol":
        may = f"{may}, for the device {key.device_name}"
    limits = ", ".join(
        f"{name.replace('_', ' ')} {quantities.size(limit) if name == 'bytes' else f'{limit:g}'}"
        for name, limit in key.limits.items()
    )
    return KeyLine(key=key, state=state, may=may, limits=f"at most: {limits}" if limits else "")
