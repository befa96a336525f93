"""The outermost layer: gives every request an id, a log line and, after an error, an answer."""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from ipaddress import ip_address

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tunefarm_api.errors.problems import response_to_error
from tunefarm_api.paths import is_page
from tunefarm_db.acting import Acting, act_as
from tunefarm_db.ids import Prefix, is_id
from tunefarm_tuning.core.errors import InvariantError, TunefarmError
from tunefarm_tuning.core.untrusted_text import clean

log = structlog.stdlib.get_logger(__name__)

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_QUIET = frozenset({"/healthz", "/readyz", "/metrics"})

_ID_FIELDS: Mapping[Prefix, str] = {
    "mdl": "model_id",
    "job": "job_id",
    "dev": "device_id",
    "art": "artifact_id",
    "upl": "upload_id",
}

_REFUSALS = frozenset({401, 403, 421, 429})
"""Statuses that the audit log counts: who does not belong, may not, or asks too much."""

LINGER_SEC = 2.0
LINGER_BYTES = 256 << 20
"""How long, and for how much, a refused body is read on: closing a connection that holds unread bytes resets it, and
a client that is still sending would lose the answer that says why."""


class RequestScope:
    """ASGI middleware. Nothing of a request but its method, path and outcome is logged: no header, query or body."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        sent_id = Headers(scope=scope).get("x-request-id", "")
        request_id = sent_id if _REQUEST_ID.fullmatch(sent_id) else secrets.token_hex(8)
        scope["tunefarm.request_id"] = request_id
        status = 0
        body_ended = False
        start = time.monotonic()

        async def receive_watched() -> Message:
            nonlocal body_ended
            message = await receive()
            body_ended = message["type"] != "http.request" or not message.get("more_body", False)
            return message

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["X-Request-ID"] = request_id
                headers["X-Content-Type-Options"] = "nosniff"
                headers.setdefault("Cache-Control", "no-store")
                if scope.get("tunefarm.close"):
                    headers["Connection"] = "close"
            elif scope.get("tunefarm.close") and not body_ended and not message.get("more_body", False):
                await send({**message, "more_body": True})
                await _linger(receive)
                message = {"type": "http.response.body", "body": b"", "more_body": False}
            await send(message)

        who = Acting(via="browser" if is_page(scope["path"]) else "api", address=_address(scope))
        with (
            structlog.contextvars.bound_contextvars(request_id=request_id, **_ids_in(scope["path"])),
            act_as(who),
        ):
            aborted = False
            try:
                await self._app(scope, receive_watched, send_with_id)
            except ClientDisconnect:
                aborted = True  # the client is gone
            except Exception as error:
                if not isinstance(error, TunefarmError):
                    log.exception("request failed")
                    error = InvariantError("")
                if status:
                    raise  # a part of the answer is sent: the server must cut the connection
                await response_to_error(scope["path"], request_id, error)(
                    scope, receive_watched, send_with_id
                )
            if status in _REFUSALS and (auditor := getattr(scope["app"].state, "auditor", None)) is not None:
                auditor.count_refusal(who, who.problem or f"http-{status}")
            _log(scope, status=status, aborted=aborted, sec=time.monotonic() - start)


def _log(scope: Scope, *, status: int, aborted: bool, sec: float) -> None:
    write = log.debug if scope["path"] in _QUIET else log.info
    key = scope.get("tunefarm.api_key")
    write(
        "request",
        method=scope["method"],
        path=clean(scope["path"], 200),
        status=status,
        aborted=aborted,
        duration_ms=round(sec * 1000, 1),
        key_id=None if key is None else key.id,
    )


def _address(scope: Scope) -> str:
    """Return where the request came from; empty if that is no IP address (a socket file, a bad header of a proxy)."""
    client = scope.get("client")
    try:
        return str(ip_address(str(client[0]).partition("%")[0])) if client else ""
    except ValueError:
        return ""


def _ids_in(path: str) -> dict[str, str]:
    """Return the resources that the path names, as fields of the log."""
    parts = path.split("/")
    return {name: part for prefix, name in _ID_FIELDS.items() for part in parts if is_id(part, prefix)}


async def _linger(receive: Receive) -> None:
    """Read and drop the rest of the request's body, until it ends, the client disconnects or a limit is reached."""
    read_bytes = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(LINGER_SEC):
            while read_bytes < LINGER_BYTES:
                message = await receive()
                read_bytes += len(message.get("body", b""))
                if message["type"] != "http.request" or not message.get("more_body", False):
                    return
