"""The session cookie of a browser, and the check that a change was sent from a page of ours."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.requests import Request, cookie_parser
from starlette.responses import Response
from starlette.types import Scope

from tunefarm_api.auth import ForbiddenError, UnauthenticatedError
from tunefarm_api.paths import is_public
from tunefarm_app.access.browser_sessions import session_key, valid_sec
from tunefarm_app.runtime.composition import Services

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


async def authenticate_page(scope: Scope, headers: Headers) -> None:
    """Note the API key that the request's session stands in for.

    Raises:
        ForbiddenError: If another site's page sent it.
        UnauthenticatedError: If it has no session that is good.
    """
    if scope["method"] not in _SAFE_METHODS:
        _check_origin(headers)
    if is_public(scope["path"]):
        return
    text = session_text(scope, headers)
    services: Services = scope["app"].state.services
    key = None
    if text is not None:
        key = await run_in_threadpool(session_key, services, text, is_use=not _renews_itself(scope, headers))
    if key is None:
        raise UnauthenticatedError("sign in first")
    scope["tunefarm.api_key"] = key


def _renews_itself(scope: Scope, headers: Headers) -> bool:
    """Return whether an open page asks, and no person: its stream, and its parts that change."""
    return scope["method"] in _SAFE_METHODS and (scope["path"] == "/live" or "hx-request" in headers)


def session_text(scope: Scope, headers: Headers) -> str | None:
    """Return the text of the session that the cookie holds: over HTTPS, of one that no other host of the domain can have set."""
    cookies = cookie_parser(headers.get("cookie", ""))
    own = cookies.get(_cookie_name(headers, secure=True))
    # A proxy may keep the scheme to itself.
    return own or (None if scope["scheme"] == "https" else cookies.get(_cookie_name(headers, secure=False)))


def set_session(request: Request, response: Response, text: str) -> None:
    """Let the browser keep the session; scripts cannot read it, and other sites' pages cannot send it."""
    response.set_cookie(
        _cookie_name(request.headers, secure=_is_secure(request)),
        text,
        max_age=max(1, int(valid_sec(request.app.state.services.settings))),
        httponly=True,
        samesite="strict",
        secure=_is_secure(request),
    )


def session_texts(headers: Headers) -> list[str]:
    """Return the texts of all sessions that the browser has here: it may have signed in over HTTP and over HTTPS, or by a proxy."""
    cookies = cookie_parser(headers.get("cookie", ""))
    texts = (cookies.get(_cookie_name(headers, secure=secure)) for secure in (True, False))
    return [text for text in texts if text]


def drop_session(request: Request, response: Response) -> None:
    """Let the browser forget its sessions."""
    for secure in (True, False):
        name = _cookie_name(request.headers, secure=secure)
        response.delete_cookie(name, httponly=True, samesite="strict", secure=secure)


def _is_secure(request: Request) -> bool:
    # The browser's Origin shows https when the proxy does not forward the scheme.
    return request.url.scheme == "https" or request.headers.get("origin", "").startswith("https:")


def _cookie_name(headers: Headers, *, secure: bool) -> str:
    # Cookies know no ports: two farms on one host would overwrite each other's.
    port = headers.get("host", "").rpartition(":")[2]
    name = f"tunefarm_session_{port}" if port.isdecimal() else "tunefarm_session"
    return f"__Host-{name}" if secure else name


def _check_origin(headers: Headers) -> None:
    site = headers.get("sec-fetch-site")
    if site is not None:
        fine = site == "same-origin"
    else:  # browsers send it over https and to this machine only; `Origin` always
        fine = headers.get("origin", "").partition("://")[2] == headers.get("host", "-")
    if not fine:
        raise ForbiddenError("the request was not sent by a page of this server")
