"""Whether requests can be served. Anybody may ask, so the answer costs little: it is kept for a moment, and nothing is written for it."""

from __future__ import annotations

import threading
import time

from tunefarm_api.schemas.health import Readiness
from tunefarm_app.runtime.composition import Services
from tunefarm_db import schema
from tunefarm_tuning.core.errors import ConflictError, TransientError

_KEPT_SEC = 2.0


class ReadinessCache:
    """Looks at most once in two seconds. Concurrency: one caller looks, the others wait for its answer."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: tuple[float, Readiness] | None = None

    def of(self, services: Services) -> Readiness:
        """Return what was found."""
        with self._lock:
            now = time.monotonic()
            if self._kept is None or now - self._kept[0] >= _KEPT_SEC:
                self._kept = (now, _look(services))
            return self._kept[1]


def _look(services: Services) -> Readiness:
    checks = {"database": _database(services), "schema": _schema(services), "store": _store(services)}
    ready = all(state == "ok" for state in checks.values())
    return Readiness(ready=ready, checks={**checks, "broker": _broker(services)})


def _database(services: Services) -> str:
    try:
        with services.uow.read() as repos:
            return "ok" if repos.could_write() else "cannot be written"
    except TransientError:
        return "cannot be written"


def _schema(services: Services) -> str:
    try:
        schema.check_schema(services.uow.engine)
    except ConflictError:
        return "outdated: run `tunefarm db upgrade`"
    except TransientError:
        return "unknown"
    return "ok"


def _store(services: Services) -> str:
    return "ok" if services.blobs.could_write() else "cannot be written"


def _broker(services: Services) -> str:
    return "ok" if services.dispatcher.ping() else "does not answer: work starts when it answers"
