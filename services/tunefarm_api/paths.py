"""Paths of the pages and of their uploads, and models' names in paths."""

from __future__ import annotations

import re
from urllib.parse import unquote

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from tunefarm_tuning.core.errors import InvalidInputError, NotFoundError
from tunefarm_tuning.core.untrusted_text import clean

_FIRST_PARTS = frozenset(
    {
        "",
        "audit",
        "devices",
        "jobs",
        "keys",
        "live",
        "models",
        "records",
        "sign-in",
        "sign-out",
        "static",
        "sweeps",
        "webhooks",
    }
)
_PUBLIC = frozenset({"sign-in", "static"})
_API_PARTS = frozenset({"v1", "healthz", "readyz", "metrics"})

_SAMPLES = re.compile(r"(?:/v1)?/models/[^/]+/samples")

SIGN_IN = "/sign-in"
UPLOADS = "/models/uploads"
"""Where a page's script sends files; the API has a door of its own."""

API_UPLOADS = "/v1/uploads"
TUS_VERSION = "1.0.0"


_NAMED = ("/v1/models/", "/models/", "/v1/jobs/")
_SLASH = "\x00"
"""What a slash in a name is until `name_of` reads it: no name has this character, and no path may have it."""


class SlashesInNames:
    """ASGI middleware: keeps a slash in a model's name (``team%2Fnet``) from being taken for the end of the name.

    A NUL in such a path is refused (``invalid-request``): it would be read as a slash.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw = (scope.get("raw_path") or b"").decode("latin-1") if scope["type"] == "http" else ""
        if raw.startswith(_NAMED) and _SLASH in scope["path"]:
            raise InvalidInputError("a model's name has no NUL character (%00)", code="invalid-request")
        if raw.startswith(_NAMED) and "%2f" in raw.lower():
            scope = {**scope, "path": unquote(re.sub("%2f", _SLASH, raw, flags=re.IGNORECASE))}
        await self._app(scope, receive, send)


def name_of(segment: str) -> str:
    """Return the name that a segment of a path means, with its slashes."""
    return segment.replace(_SLASH, "/")


def is_page(path: str) -> bool:
    """Return whether the path is the dashboard's, whether or not there is anything at it."""
    return _first_part(path) in _FIRST_PARTS


def is_unknown_page(scope: Scope) -> bool:
    """Return whether a browser asks for a page at an address that is neither the dashboard's nor the API's."""
    if scope["method"] not in ("GET", "HEAD") or _first_part(scope["path"]) in _FIRST_PARTS | _API_PARTS:
        return False
    headers = Headers(scope=scope)
    return "text/html" in headers.get("accept", "") and "authorization" not in headers


def no_such_page(path: str) -> NotFoundError:
    """Return the error of an address at which the dashboard has no page."""
    return NotFoundError(f"the dashboard has no page at {clean(path)}", code="no-such-page")


def is_public(path: str) -> bool:
    """Return whether it is shown to people who have not signed in."""
    return _first_part(path) in _PUBLIC


def is_local(path: str) -> bool:
    """Return whether it is safe to send a browser there: a path of a page, and no other host in disguise."""
    return path.startswith("/") and not path.startswith("//") and "\\" not in path and path.isprintable()


def is_upload_path(path: str) -> bool:
    """Return whether it is about uploads that come in parts."""
    return any(path == where or path.startswith(f"{where}/") for where in (UPLOADS, API_UPLOADS))


def is_samples_path(path: str) -> bool:
    """Return whether files of samples are sent there: by the API's clients, or by a page's script."""
    return _SAMPLES.fullmatch(path) is not None


def _first_part(path: str) -> str:
    first = path.removeprefix("/").partition("/")[0]
    return first if path.startswith("/") and (first or path == "/") else "-"
