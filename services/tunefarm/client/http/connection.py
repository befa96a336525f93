"""Settings of a connection: the server's address, the API key, time limits."""

from __future__ import annotations

import os
import re
from typing import Any

import httpx

from tunefarm.client.errors import AuthenticationError, InvalidRequestError
from tunefarm.endpoint import default_home, running_endpoint

_PRINTABLE = re.compile(r"[!-~]+")
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


def find_server(url: str | None, api_key: str | None) -> tuple[str, str | None]:
    """Return URL and API key: as given, else the environment's, else those of this user's farm on this machine.

    Args:
        url: URL of the server; None to look for one.
        api_key: API key; None to look for one.

    Raises:
        InvalidRequestError: ``no-server``.
    """
    url = url or os.environ.get("TUNEFARM_URL")
    api_key = api_key or os.environ.get("TUNEFARM_API_KEY")
    if url:
        return url, api_key
    endpoint = running_endpoint(default_home().expanduser())
    if endpoint is None:
        raise InvalidRequestError(
            "no server is configured and no farm runs on this machine: pass the server's URL, set "
            "TUNEFARM_URL, or start a farm with `tunefarm serve`",
            code="no-server",
        )
    return endpoint.url, api_key or endpoint.api_key


def base_url(url: str) -> str:
    """Return a server's URL without a trailing slash.

    Raises:
        InvalidRequestError: ``bad-url`` if it is no HTTP URL.
    """
    try:
        base = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise InvalidRequestError(f"{url!r} is not a URL: {error}", code="bad-url") from error
    if base.scheme not in ("http", "https") or not base.host:
        raise InvalidRequestError(
            f"{url!r} is not the URL of a server: it must begin with http:// or https://", code="bad-url"
        )
    return str(base).rstrip("/")


def link_options(url: str, api_key: str | None, timeout_sec: float) -> dict[str, Any]:
    """Return the keyword arguments of httpx's clients for a server.

    Args:
        url: As `base_url` returns it.
        api_key: Bearer token; None sends none.
        timeout_sec: Longest silence of the server, per read; connecting may take 10 seconds at most.

    Raises:
        AuthenticationError: ``bad-api-key`` if the key has characters that no header can have.
    """
    headers = {"User-Agent": "tunefarm-client", "Accept": "application/json"}
    if api_key:
        if not _PRINTABLE.fullmatch(api_key):
            raise AuthenticationError("the API key has invalid characters", code="bad-api-key")
        headers["Authorization"] = f"Bearer {api_key}"
    return {
        "base_url": f"{url}/v1/",
        "headers": headers,
        "timeout": httpx.Timeout(timeout_sec, connect=min(10.0, timeout_sec)),
        # Two processes of one machine need no proxy from the environment.
        "trust_env": httpx.URL(url).host not in _LOOPBACK,
    }
