"""The dashboard's styles, scripts and icon. All are read at start, so that no request's path reaches the disk."""

from __future__ import annotations

import hashlib
import mimetypes
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from fastapi import APIRouter, Request, Response

from tunefarm_tuning.core.errors import NotFoundError

router = APIRouter(include_in_schema=False)

_YEAR_SEC = 365 * 86400


@dataclass(frozen=True, slots=True, kw_only=True)
class Asset:
    """One file, and the hash that its URL carries: browsers keep it until that changes."""

    content: bytes
    media_type: str
    version: str


def asset_url(name: str) -> str:
    """Return the URL of a file, for templates."""
    return f"/static/{name}?v={_assets()[name].version}"


@router.get("/static/{name:path}")
async def static_file(name: str, request: Request) -> Response:
    """Send a script, a style sheet or a picture. A browser keeps it for a year if it asked for the present version."""
    asset = _assets().get(name)
    if asset is None:
        raise NotFoundError("there is no such file", code="no-such-route")
    current = request.query_params.get("v") == asset.version
    age = f"max-age={_YEAR_SEC}, immutable" if current else "no-cache"
    headers = {"ETag": f'"{asset.version}"', "Cache-Control": f"public, {age}"}
    if request.headers.get("if-none-match") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    return Response(asset.content, media_type=asset.media_type, headers=headers)


@cache
def _assets() -> dict[str, Asset]:
    return {name: _read(file) for name, file in _walk(files("tunefarm_api.web") / "static", "")}


def _walk(folder: Traversable, prefix: str) -> list[tuple[str, Traversable]]:
    files = []
    for entry in sorted(folder.iterdir(), key=lambda path: path.name):
        if entry.is_dir():
            files += _walk(entry, f"{prefix}{entry.name}/")
        else:
            files.append((prefix + entry.name, entry))
    return files


def _read(file: Traversable) -> Asset:
    content = file.read_bytes()
    media_type = {"js": "text/javascript"}.get(file.name.rpartition(".")[2])
    return Asset(
        content=content,
        media_type=media_type or mimetypes.guess_type(file.name)[0] or "text/plain",
        version=hashlib.sha256(content).hexdigest()[:12],
    )
