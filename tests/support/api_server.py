"""The real API on a free port, with a farm behind it that a test drives: nothing moves by itself."""

from __future__ import annotations

import threading
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import structlog
import uvicorn
from app_farm import Farm
from fastapi import FastAPI

from tunefarm_api.app import create_app
from tunefarm_api.server import listen, url_of


@dataclass(frozen=True)
class ApiServer:
    """`faults` is what the server logged of its own faults."""

    app: FastAPI
    url: str
    faults: list[str]


@contextmanager
def api_server(farm: Farm) -> Iterator[ApiServer]:
    """Serve the farm for the time of the block."""
    faults: list[str] = []

    def keep(_logger: object, level: str, event: MutableMapping[str, Any]) -> str:
        if level in ("error", "critical"):
            faults.append(str(event.get("exception", event)))
        raise structlog.DropEvent

    app = create_app(farm.services.settings, reconcile=False)
    before = structlog.get_config()
    structlog.configure(processors=[structlog.processors.format_exc_info, keep])
    try:
        with listen("127.0.0.1", 0) as listener:
            server = uvicorn.Server(uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=5))
            serving = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
            serving.start()
            try:
                while not server.started:
                    if not serving.is_alive():
                        raise RuntimeError("the server did not start")
                    serving.join(0.01)
                app.state.services = farm.services
                yield ApiServer(app, url_of(listener, "127.0.0.1"), faults)
            finally:
                app.state.live.close()  # as the API process does
                server.should_exit = True
                serving.join()
    finally:
        structlog.configure(**before)
