"""Middleware of all pages: security headers, and errors as pages."""

from __future__ import annotations

import json
from urllib.parse import quote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tunefarm_api.errors.problems import MEDIA_TYPE
from tunefarm_api.paths import SIGN_IN, is_page, is_unknown_page
from tunefarm_api.web.rendering import render_text

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; worker-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}


class PageFront:
    """ASGI middleware, the outermost: it also shows errors of the layers below. Answers of the API pass untouched."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not (is_page(scope["path"]) or is_unknown_page(scope)):
            await self._app(scope, receive, send)
            return
        request = Headers(scope=scope)
        start: Message | None = None
        body = b""

        async def send_shown(message: Message) -> None:
            nonlocal start, body
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                if headers.get("content-type") == MEDIA_TYPE:
                    start = message
                    return
            if start is None:
                await send(message)
                return
            body += message.get("body", b"")
            if not message.get("more_body", False):
                shown = _shown(scope, request, json.loads(body)) if body else None  # HEAD has none
                if shown is None:
                    await send(start)
                    await send({"type": "http.response.body", "body": body})
                else:
                    for name, value in Headers(raw=start["headers"]).items():
                        if name not in ("content-type", "content-length", "www-authenticate"):
                            shown.headers[name] = value
                    await shown(scope, receive, send)

        await self._app(scope, receive, send_shown)


def _shown(scope: Scope, request: Headers, problem: dict[str, str]) -> Response | None:
    """Return the problem as a browser should see it; None where a script of ours asked."""
    status = int(problem["status"])
    if status == 401 and scope["path"] != SIGN_IN:
        query = scope["query_string"].decode("latin-1")
        here = scope["path"] + (f"?{query}" if query else "") if scope["method"] == "GET" else "/"
        sign_in = SIGN_IN if here == "/" else f"{SIGN_IN}?next={quote(here, safe='/')}"
        if "hx-request" in request:
            return Response(status_code=401, headers={"HX-Redirect": SIGN_IN})
        return RedirectResponse(sign_in, 303) if _wants_page(request) else None
    if not _wants_page(request) or "hx-request" in request:
        return None
    return Response(
        render_text(
            "error.html", key=scope.get("tunefarm.api_key"), problem=problem, back=_form_of(scope, request)
        ),
        status,
        media_type="text/html",
    )


def _form_of(scope: Scope, request: Headers) -> str:
    """Return the path of the page whose form was sent; empty if none was."""
    if scope["method"] != "POST":
        return ""
    page = urlsplit(request.get("referer", ""))
    return page.path if page.netloc == request.get("host") and page.path.startswith("/") else ""


def _wants_page(request: Headers) -> bool:
    return "text/html" in request.get("accept", "")
