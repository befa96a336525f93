"""The page of API keys: create, show once, limit, revoke. It needs the scope ``admin``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from urllib.parse import quote

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from starlette.concurrency import run_in_threadpool

from tunefarm_api.auth import key_of, needs
from tunefarm_api.dependencies import ServicesDep
from tunefarm_api.errors.problems import status_of
from tunefarm_api.web.forms import Form, FormDep
from tunefarm_api.web.rendering import page
from tunefarm_app.access.api_keys import (
    SCOPES,
    create_api_key,
    limit_api_key,
    list_api_keys,
    revoke_api_key,
)
from tunefarm_app.access.quotas import NO_LIMITS, KeyLimits, KeyUsage, usage_of
from tunefarm_app.runtime.composition import Services
from tunefarm_db.values import ApiKey
from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.core.untrusted_text import clean

router = APIRouter(include_in_schema=False)

_MAY = {
    "read": "see jobs, models, devices and records",
    "write": "upload, tune, cancel, webhooks",
    "device": "register devices and report their state",
    "admin": "all of these, and manage devices and keys",
}
_LABELS = {
    "bytes": "megabytes",
    "open_jobs": "open jobs",
    "device_minutes": "minutes of search in 30 days",
    "priority": "priority",
}
_MEGABYTE = 1_000_000
_MOST_PRIORITY = 100
_MOST_NAME = 100
_SHOWN = 40  # characters of a wrong number
_MOST_OLD = 50
"""Of keys that are worthless, the newest are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyLine:
    """One key.

    Attributes:
        state: `valid`, `revoked` (or used up), or `expired`.
        may: What it may do, in words.
        limits: What it may use, and uses, in words.
        fields: The form of its limits: name, label, value and hint of each; empty for what has no limits of its own.
    """

    key: ApiKey
    state: str
    may: str
    limits: tuple[str, ...] = ()
    fields: tuple[LimitField, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitField:
    """A limit in a form.

    Attributes:
        name: The field of `KeyLimits`.
        label: What it limits, with its unit.
        value: The limit as text; empty for none.
        used: What is used of it, in words; empty if there is nothing to count.
    """

    name: str
    label: str
    value: str = ""
    used: str = ""


@router.get("/keys", dependencies=[needs("admin")])
def keys_page(request: Request, services: ServicesDep) -> HTMLResponse:
    """The list of API keys."""
    return _keys_page(request, services)


@router.get("/keys/{key_id}/limits", dependencies=[needs("admin")])
def where_the_form_is(key_id: str) -> Response:
    """Lead to the page with the form, whose address this is after the form was refused."""
    return RedirectResponse(f"/keys#key-{quote(key_id, safe='')}", 303)


def _keys_page(
    request: Request,
    services: Services,
    *,
    given: Form | None = None,
    refused: InvalidInputError | None = None,
    limited: str = "",
) -> HTMLResponse:
    """Return the page; with a form that was refused, and why: that of the limits of the key `limited`, else that of a new key."""
    keys = list_api_keys(services)
    with services.uow.read() as repos:
        now = repos.now()
        lines = [_line(key, now) for key in reversed(keys)]
        owners = {line.key.owner for line in lines if line.state == "valid" and _is_persons(line.key)}
        usage = {owner: usage_of(repos, owner) for owner in owners}
    valid = [_with_limits(line, usage) for line in lines if line.state == "valid"]
    if refused is not None and limited and all(line.key.id != limited for line in valid):
        raise refused  # the key was revoked meanwhile: its form is gone
    valid = [_as_given(line, given) if line.key.id == limited else line for line in valid]
    new = {} if given is None or limited else given
    old = [line for line in lines if line.state != "valid"]
    shown = page(
        "keys.html",
        request,
        valid=valid,
        old=old[:_MOST_OLD],
        scopes=[(scope, _MAY[scope]) for scope in SCOPES],
        fields=_filled(_fields(NO_LIMITS, None), new),
        given=new or {"scope-read": "on"},
        refused=refused,
        limited=limited,
    )
    if refused is not None:
        shown.status_code = status_of(refused)
    return shown


@router.post("/keys", dependencies=[needs("admin")])
async def make_key(request: Request, form: FormDep, services: ServicesDep) -> Response:
    """Shows the key, this once; what is refused is shown again, as it was filled in."""

    def make() -> tuple[ApiKey, str]:
        name = form.get("name", "").strip()
        if not 0 < len(name) <= _MOST_NAME:
            raise InvalidInputError(
                f"a key needs a name, of at most {_MOST_NAME} characters", code="invalid-request"
            )
        scopes = [scope for scope in SCOPES if f"scope-{scope}" in form]
        limits = _limits_in(form)
        return create_api_key(services, name=name, scopes=scopes, limits=limits, by_key_id=key_of(request).id)

    try:
        key, text = await run_in_threadpool(make)
    except InvalidInputError as error:
        return await run_in_threadpool(_keys_page, request, services, given=form, refused=error)
    return page("key_created.html", request, new_key=key, text=text)


@router.post("/keys/{key_id}/limits", dependencies=[needs("admin")])
async def limit(key_id: str, request: Request, form: FormDep, services: ServicesDep) -> Response:
    """Give an API key the limits of the form; an empty field is no limit, and what is refused is shown again."""
    try:
        await run_in_threadpool(limit_api_key, services, key_id, _limits_in(form))
    except InvalidInputError as error:
        return await run_in_threadpool(
            _keys_page, request, services, given=form, refused=error, limited=key_id
        )
    return RedirectResponse("/keys", 303)


@router.post("/keys/{key_id}/revoke", dependencies=[needs("admin")])
def revoke(key_id: str, request: Request, services: ServicesDep) -> Response:
    """Revoke an API key."""
    revoke_api_key(services, key_id, by_key_id=key_of(request).id)
    return RedirectResponse("/keys", 303)


def _line(key: ApiKey, now: float) -> KeyLine:
    over = key.expires_at is not None and key.expires_at <= now
    state = "revoked" if key.revoked_at is not None else "expired" if over else "valid"
    kind, _, of = key.scopes[0].partition(":") if key.scopes else ("", "", "")
    may = f"the rights of the key {of}, in a browser" if of else ", ".join(key.scopes)
    if kind == "enrol":
        may = "enrol one machine as a device"
    if key.device_name is not None and kind != "enrol":
        may = f"{may}, for the device {key.device_name}"
    return KeyLine(key=key, state=state, may=may)


def _is_persons(key: ApiKey) -> bool:
    """Return whether a person made the key, so that it has limits of its own: no session, link, token or credential."""
    return key.device_name is None and set(key.scopes) <= set(SCOPES)


def _with_limits(line: KeyLine, usage: Mapping[str, KeyUsage]) -> KeyLine:
    used = usage.get(line.key.owner)
    if used is None or not _is_persons(line.key):
        return line
    fields = _fields(KeyLimits.from_json(line.key.limits), used)
    return replace(
        line,
        fields=fields,
        limits=tuple(
            f"{field.label}: {f'{field.used} of ' if field.used else ''}at most {field.value}"
            for field in fields
            if field.value
        ),
    )


def _as_given(line: KeyLine, form: Form | None) -> KeyLine:
    return line if form is None else replace(line, fields=_filled(line.fields, form))


def _filled(fields: tuple[LimitField, ...], form: Form) -> tuple[LimitField, ...]:
    return tuple(replace(field, value=form.get(f"limit-{field.name}", field.value)) for field in fields)


def _fields(limits: KeyLimits, used: KeyUsage | None) -> tuple[LimitField, ...]:
    megabytes = "" if limits.bytes is None else f"{limits.bytes / _MEGABYTE:g}"
    return (
        LimitField(
            name="bytes",
            label=_LABELS["bytes"],
            value=megabytes,
            used="" if used is None else f"{used.bytes / _MEGABYTE:.1f}",
        ),
        LimitField(
            name="open_jobs",
            label=_LABELS["open_jobs"],
            value="" if limits.open_jobs is None else str(limits.open_jobs),
            used="" if used is None else str(used.open_jobs),
        ),
        LimitField(
            name="device_minutes",
            label=_LABELS["device_minutes"],
            value="" if limits.device_minutes is None else f"{limits.device_minutes:g}",
            used="" if used is None else f"{used.device_minutes:.1f}",
        ),
        LimitField(
            name="priority",
            label=_LABELS["priority"],
            value="" if limits.priority is None else str(limits.priority),
        ),
    )


def _limits_in(form: Form) -> KeyLimits:
    """Return the limits in a form.

    Raises:
        InvalidInputError: ``invalid-number``, if one is none.
    """
    megabytes = _number_in(form, "bytes", 0, 1e9)
    jobs, minutes = _number_in(form, "open_jobs", 0, 1e9), _number_in(form, "device_minutes", 0, 1e9)
    priority = _number_in(form, "priority", -_MOST_PRIORITY, _MOST_PRIORITY)
    return KeyLimits(
        bytes=None if megabytes is None else round(megabytes * _MEGABYTE),
        open_jobs=None if jobs is None else int(jobs),
        device_minutes=minutes,
        priority=None if priority is None else int(priority),
    )


def _number_in(form: Form, name: str, least: float, most: float) -> float | None:
    """Return the number in a field; None where it is empty."""
    text = form.get(f"limit-{name}", "").strip().replace(",", ".")
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    may_be_broken = name in ("bytes", "device_minutes")
    if not least <= value <= most or not (may_be_broken or value.is_integer()):
        raise InvalidInputError(
            f"maximum {_LABELS[name]} must be a {'number' if may_be_broken else 'whole number'} from {least:,.0f} to {most:,.0f}, "
            f"or empty for no limit, and is {clean(text, _SHOWN)!r}",
            code="invalid-number",
            field=name,
        )
    return value
