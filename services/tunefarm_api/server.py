"""Run the API: bind a port, announce the address, serve until stopped."""

from __future__ import annotations

import json
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType

import uvicorn
from fastapi import FastAPI

from tunefarm_api.connections import MAX_HEAD_BYTES, Connections, allow_open_files, limited_protocol

SHUTDOWN_SEC = 20


def url_of(listener: socket.socket, host: str) -> str:
    """Return the URL of the listener for clients on this machine."""
    port = listener.getsockname()[1]
    name = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104  (read, not bound)
    return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"


def server_config(app: FastAPI, *, trusted_proxies: str = "", max_connections: int = 0) -> uvicorn.Config:
    """Return how the app is served.

    Args:
        app: The API.
        trusted_proxies: Whose ``X-Forwarded-For`` and ``X-Forwarded-Proto`` are believed.
        max_connections: How many one address may have; 0 for any number.
    """
    connections = Connections(max_connections, trusted_proxies, open_files=allow_open_files())
    return uvicorn.Config(
        app,
        http=limited_protocol(connections),
        ws="none",
        log_config=None,  # the process has configured logging
        access_log=False,  # `request_scope` writes a better one
        server_header=False,
        proxy_headers=bool(trusted_proxies),
        forwarded_allow_ips=trusted_proxies,
        timeout_graceful_shutdown=SHUTDOWN_SEC,
        timeout_keep_alive=30,
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
    )


def serve(
    app: FastAPI,
    listener: socket.socket,
    *,
    url: str,
    trusted_proxies: str = "",
    max_connections: int = 0,
) -> None:
    """Serve until SIGTERM or SIGINT; running requests get `SHUTDOWN_SEC` to end.

    One JSON line, ``{"url": …}``, is printed when requests are answered: not a moment earlier. `X-Forwarded-For` and
    `X-Forwarded-Proto` of these proxies are believed, of nobody else: they would name any address in the audit log.
    """
    config = server_config(app, trusted_proxies=trusted_proxies, max_connections=max_connections)
    # At its end uvicorn raises the signal again that stopped it: that is a normal end.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _exit)
    with suppress(_Ended):
        _AnnouncingServer(config, app, url).run(sockets=[listener])


class _Ended(SystemExit):
    """SIGTERM or SIGINT; the exit code is 0."""


def _exit(_number: int, _frame: FrameType | None) -> None:
    raise _Ended(0)


class _AnnouncingServer(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, app: FastAPI, url: str) -> None:
        super().__init__(config)
        self._app = app
        self._url = url

    async def startup(self, sockets: Sequence[socket.socket] | None = None) -> None:
        await super().startup(list(sockets) if sockets is not None else None)
        if self.started and not self.should_exit:
            sys.stdout.write(json.dumps({"url": self._url}) + "\n")
            sys.stdout.flush()

    async def shutdown(self, sockets: Sequence[socket.socket] | None = None) -> None:
        self._app.state.live.close()  # else the server would wait for the streams of open pages
        await super().shutdown(list(sockets) if sockets is not None else None)
