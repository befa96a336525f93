"""HTTP methods of a path: HEAD for every GET, and the methods that a 405 response lists."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_METHODS = ("DELETE", "GET", "OPTIONS", "PATCH", "POST", "PUT")


class HeadAsGet:
    """ASGI middleware: routes a HEAD as a GET, and answers with the headers only.

    FastAPI's routes have no HEAD, and an added one would appear in OpenAPI.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        async def send_headers(message: Message) -> None:
            if message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        await self._app({**scope, "method": "GET", "tunefarm.method": "HEAD"}, receive, send_headers)


def method_of(scope: Scope) -> str:
    """Return the method that the client sent."""
    return str(scope.get("tunefarm.method", scope["method"]))


def allowed_methods(routes: Sequence[BaseRoute], scope: Scope) -> list[str]:
    """Return all methods of the request's path; the framework would list those of one route only."""
    methods = [
        method
        for method in _METHODS
        if any(route.matches({**scope, "method": method})[0] is Match.FULL for route in routes)
    ]
    return sorted([*methods, "HEAD"] if "GET" in methods else methods)
