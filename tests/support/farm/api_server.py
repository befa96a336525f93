"""The real API on a free port, with a farm that only moves when a test drives it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import structlog
from app_farm import Farm
from fastapi import FastAPI
from served import served

from tunefarm_api.app import create_app
from tunefarm_tuning.process.listening import listen


@dataclass(frozen=True)
class ApiServer:
    """`faults` is what the server logged of its own faults."""

    app: FastAPI
    url: str
    faults: list[str]


@contextmanager
def api_server(farm: Farm, *, allowed_hosts: Collection[str] | None = None) -> Iterator[ApiServer]:
    """Serve the farm for the time of the block; `allowed_hosts` as of `create_app`."""
    faults: list[str] = []

    def keep(_logger: object, level: str, event: MutableMapping[str, Any]) -> str:
        if level in ("error", "critical"):
            faults.append(str(event.get("exception", event)))
        raise structlog.DropEvent

    app = create_app(farm.services.settings, allowed_hosts=allowed_hosts, reconcile=False)
    before = structlog.get_config()
    structlog.configure(processors=[structlog.processors.format_exc_info, keep])
    try:
        with (
            listen("127.0.0.1", 0) as listener,
            served(app, listener, max_connections=farm.services.settings.max_connections) as url,
        ):
            app.state.services = farm.services
            yield ApiServer(app, url, faults)
    finally:
        structlog.configure(**before)
