"""Whether requests can be served. Anybody may ask, so nothing is written for the answer."""

from __future__ import annotations

from tunefarm_api.schemas.health import Readiness
from tunefarm_app.runtime.composition import Services
from tunefarm_db import schema
from tunefarm_tuning.core.errors import ConflictError, TransientError


def look_at_readiness(services: Services) -> Readiness:
    """Return the state of what requests need."""
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
