"""The gate refuses requests without a known host name or a valid API key, and those whose body is too large.

For a page, a browser's session stands in for the key. The gate stands before the router, so that a path that nobody
thought of is closed as well.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from contextlib import ExitStack, suppress

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, QueryParams, State
from starlette.types import ASGIApp, Receive, Scope, Send

from tunefarm_api.auth import PUBLIC_PATHS, UnauthenticatedError, bearer_token
from tunefarm_api.concurrency import RequestsUnderWay
from tunefarm_api.connections import MAX_HEADERS
from tunefarm_api.paths import (
    SIGN_IN,
    is_page,
    is_public,
    is_samples_path,
    is_unknown_page,
    is_upload_path,
    no_such_page,
)
from tunefarm_api.small_bodies import limited
from tunefarm_api.web.session import authenticate_page
from tunefarm_app.access.api_keys import verify_api_key, why_not_valid
from tunefarm_app.access.rates import KeyRates, StrangerRates, address_group
from tunefarm_app.runtime.composition import Services
from tunefarm_db.acting import acting
from tunefarm_db.values import ApiKey
from tunefarm_tuning.core.errors import TunefarmError

LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]"})

_HEARTBEAT = re.compile(r"/v1/devices/[^/]+/heartbeat")
_BESIDE = {"/live": "streams", "/metrics": "metrics"}
"""Kinds of requests by path that are counted for their key alone, as heartbeats: the stream that an open page holds, and how the farm is.

A farm that has much to do refuses none of them for what others ask: a device whose heartbeats are refused goes offline, and its work is
repeated elsewhere.
"""

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
        under_way: RequestsUnderWay = scope["app"].state.under_way
        address = address_group(acting().address)
        beside = "heartbeats" if _HEARTBEAT.fullmatch(scope["path"]) else _BESIDE.get(scope["path"])
        with ExitStack() as counted:
            try:
                _check_headers(headers)
                self._check_host(headers)
                if beside is not None:
                    await _know(scope, headers)
                    counted.enter_context(under_way.counted_for(scope["tunefarm.api_key"].owner, beside))
                elif scope["path"] in PUBLIC_PATHS:
                    await _know(scope, headers)
                else:
                    with under_way.counted_unknown(address):
                        await _know(scope, headers)
                    key = scope.get("tunefarm.api_key")
                    if key is None:
                        counted.enter_context(under_way.counted_stranger(address))
                    else:
                        counted.enter_context(under_way.counted())
                        counted.enter_context(under_way.counted_for(key.owner))
            except TunefarmError:
                # The body was not read, so the connection cannot be used again.
                scope["tunefarm.close"] = True
                raise
            await self._app(scope, receive if _is_upload(scope) else limited(scope, receive), send)

    def _check_host(self, headers: Headers) -> None:
        if self._allowed_hosts is None:
            return
        host = _HOST.fullmatch(headers.get("host", ""))
        if host is None or host[1].lower() not in self._allowed_hosts:
            raise TunefarmError(
                "this server does not accept that host name: use the URL that it printed",
                code="host-not-allowed",
            )


def _check_headers(headers: Headers) -> None:
    if len(headers.raw) > MAX_HEADERS:
        raise TunefarmError(
            f"the request has {len(headers.raw)} headers; {MAX_HEADERS} are enough for every client of a farm",
            code="too-many-headers",
            limit=MAX_HEADERS,
        )


def _is_upload(scope: Scope) -> bool:
    if scope["method"] == "PATCH":
        return is_upload_path(scope["path"])
    is_file = scope["path"] in ("/v1/models", "/v1/records") or is_samples_path(scope["path"])
    return scope["method"] == "POST" and is_file


async def _know(scope: Scope, headers: Headers) -> None:
    """Note the request's key. Pages without one are those that are shown to everybody.

    Whoever has no valid key is counted by address: requests of each kind, and attempts to be let in, which cost a look into the
    database. A valid key is let in whatever others at its address do.
    """
    path, strangers, address = scope["path"], scope["app"].state.stranger_rates, acting().address
    if is_page(path):
        await _know_page(scope, headers, strangers, address)
    elif path in PUBLIC_PATHS:
        strangers.count_request(address, "health")
    elif is_unknown_page(scope):
        with suppress(UnauthenticatedError):  # there is nothing to be let in to
            await _know_page(scope, headers, strangers, address)
        raise no_such_page(path)
    else:
        await _authenticate(scope, headers, strangers, address)


async def _know_page(scope: Scope, headers: Headers, strangers: StrangerRates, address: str) -> None:
    path = scope["path"]
    if is_public(path):
        strangers.count_request(address, "sign-in" if path == SIGN_IN else "files")
        if path == SIGN_IN and (scope["method"] == "POST" or QueryParams(scope["query_string"]).get("link")):
            strangers.count_attempt(address, "sign-in")
    try:
        await authenticate_page(scope, headers)
    except UnauthenticatedError:
        strangers.count_request(address, "pages")
        raise
    if (key := scope.get("tunefarm.api_key")) is not None:
        _acts(key)
        await run_in_threadpool(scope["app"].state.rates.count, key.id)


async def _authenticate(scope: Scope, headers: Headers, strangers: StrangerRates, address: str) -> None:
    token = bearer_token(headers.get("authorization", ""))
    if token is None:
        strangers.count_request(address, "api")
        raise UnauthenticatedError("this needs an API key: send `Authorization: Bearer tfk_…`")
    key = await run_in_threadpool(_counted, scope["app"].state, token)
    if key is None:
        strangers.count_attempt(address, "key")
        raise UnauthenticatedError(await run_in_threadpool(why_not_valid, scope["app"].state.services, token))
    scope["tunefarm.api_key"] = key


def _counted(state: State, token: str) -> ApiKey | None:
    services: Services = state.services
    rates: KeyRates = state.rates
    key = verify_api_key(services, token)
    if key is not None:
        _acts(key)
        rates.count(key.id)
    return key


def _acts(key: ApiKey) -> None:
    who = acting()
    who.key_id, who.owner = key.id, key.owner
