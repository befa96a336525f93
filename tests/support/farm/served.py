"""Serve an API app from a thread of the test's process."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI

from tunefarm_api.server import server_config, url_of


@contextmanager
def served(app: FastAPI, listener: socket.socket, *, max_connections: int = 0) -> Iterator[str]:
    """Serve the app on a listening socket for the time of the block; yield its URL."""
    config = server_config(app, max_connections=max_connections)
    config.timeout_graceful_shutdown = 5
    server = uvicorn.Server(config)
    serving = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    serving.start()
    try:
        while not server.started:
            if not serving.is_alive():
                raise RuntimeError("the server did not start")
            serving.join(0.01)
        yield url_of(listener, "127.0.0.1")
    finally:
        app.state.live.close()  # as the API process does
        server.should_exit = True
        serving.join()
