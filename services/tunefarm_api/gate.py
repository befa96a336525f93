"""The gate refuses requests without a known host name or a valid API key, and those whose body is too large.

For a page, a browser's session stands in for the key. The gate stands before the router, so that a path that nobody
thought of is closed as well.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tunefarm_api.auth import PUBLIC_PATHS, UnauthenticatedError, bearer_token
from tunefarm_api.paths import is_page, is_samples_path, is_upload_path
from tunefarm_api.web.session import authenticate_page
from tunefarm_app.access.api_keys import verify_api_key
from tunefarm_app.runtime.composition import Services
from tunefarm_tuning.core.errors import TunefarmError

LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]"})

MAX_BODY_BYTES = 1 << 20
"""Limit of every body except uploads, which have their own."""


_HOST = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]+)?")


class Gate:
    """ASGI middleware.

    Args:
        app: The application behind the gate.
        allowed_hosts: Names that requests may use for this server, None for any. A server on loopback must insist:
            else a web page whose name was re-bound to 127.0.0.1 could talk to it from its user's browser.
    """

    def __init__(self, app: ASGIApp, *, allowed_hosts: Collection[str] | None) -> None:
        self._app = app
        self._allowed_hosts = None if allowed_hosts is None else frozenset(allowed_hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":  # there are none
            await receive()
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        try:
            self._check_host(headers)
            if is_page(scope["path"]):
                await authenticate_page(scope, headers)
            elif scope["path"] not in PUBLIC_PATHS:
                await _authenticate(scope, headers)
        except TunefarmError:
            # The body was not read, so the connection cannot be used again.
            scope["tunefarm.close"] = True
            raise
        await self._app(scope, receive if _is_upload(scope) else _limited(scope, receive, headers), send)

    def _check_host(self, headers: Headers) -> None:
        if self._allowed_hosts is None:
            return
        host = _HOST.fullmatch(headers.get("host", ""))
        if host is None or host[1].lower() not in self._allowed_hosts:
            raise TunefarmError(
                "this server does not accept that host name: use the URL that it printed",
                code="host-not-allowed",
            )


def _is_upload(scope: Scope) -> bool:
    if scope["method"] == "PATCH":
        return is_upload_path(scope["path"])
    is_file = scope["path"] in ("/v1/models", "/v1/records") or is_samples_path(scope["path"])
    return scope["method"] == "POST" and is_file


async def _authenticate(scope: Scope, headers: Headers) -> None:
    token = bearer_token(headers.get("authorization", ""))
    if token is None:
        raise UnauthenticatedError("this needs an API key: send `Authorization: Bearer tfk_…`")
    services: Services = scope["app"].state.services
    key = await run_in_threadpool(verify_api_key, services, token)
    if key is None:
        raise UnauthenticatedError("this API key is not valid")
    scope["tunefarm.api_key"] = key


def _limited(scope: Scope, receive: Receive, headers: Headers) -> Receive:
    length = headers.get("content-length", "")
    received_bytes = 0

    async def receive_limited() -> Message:
        nonlocal received_bytes
        if length.isdecimal() and int(length) > MAX_BODY_BYTES:
            raise too_large()
        message = await receive()
        received_bytes += len(message.get("body", b""))
        if received_bytes > MAX_BODY_BYTES:
            raise too_large()
        return message

    def too_large() -> HTTPException:
        scope["tunefarm.close"] = True  # the rest of the body is not read
        # An exception of the framework: its body parser lets those pass.
        return HTTPException(413, f"the request's body is larger than {MAX_BODY_BYTES} bytes")

    return receive_limited
