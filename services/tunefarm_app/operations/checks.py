"""Is the farm well? Each check uses what it judges, says in words what it found, and what to do about it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from tunefarm_app.operations.findings import Finding, failed, judge_clock, ok, warning
from tunefarm_app.runtime.composition import Services
from tunefarm_app.runtime.dispatch import queue_of
from tunefarm_db import schema
from tunefarm_db.engine import parse_url
from tunefarm_db.repositories.farm.statistics import OpenSteps
from tunefarm_db.values import StepState
from tunefarm_tuning.core.errors import ConflictError, TransientError

FREE_LITTLE_BYTES = 5 << 30
FREE_LITTLE_SHARE = 0.1
"""Of a small disk, less is little: a tenth."""
FREE_NOTHING_BYTES = 256 << 20
OVERDUE_SEC = 60.0
_MAKE_ROOM = (
    "Make room: `tunefarm models delete` for models that are not needed, TUNEFARM_KEEP_MODELS_DAYS, "
    "TUNEFARM_KEEP_ARTIFACTS_DAYS and TUNEFARM_KEEP_FAILURES_DAYS for what is old, or a larger disk. Where nothing at all "
    "is free, something that is not the farm's has to go first: a deletion is noted in the database. Nothing is lost "
    "meanwhile: work goes on when there is room."
)
_NOT_LOOKED_AT = "not looked at: the database does not answer"


def run_checks(
    services: Services, checks: Mapping[str, Callable[[Services], Finding]]
) -> tuple[Finding, ...]:
    """Run the checks in order; one that needs a database which is away says so."""
    findings = []
    for name, check in checks.items():
        try:
            findings.append(check(services))
        except TransientError:
            findings.append(failed(name, _NOT_LOOKED_AT, "See the check `database`."))
    return tuple(findings)


def check_database(services: Services) -> Finding:
    """Reachable, writable, and of this version's schema."""
    kind = "SQLite" if services.uow.engine.dialect.name == "sqlite" else "PostgreSQL"
    try:
        schema.check_schema(services.uow.engine)
        with services.uow.write() as repos:
            repos.probe_write()
    except ConflictError as error:
        return failed("database", error.message, "Run `tunefarm db upgrade` with this version of tunefarm.")
    except TransientError as error:
        return failed(
            "database",
            error.message,
            "Start it, or put TUNEFARM_DATABASE_URL right. Nothing is lost meanwhile: work goes on when it is back.",
        )
    return ok("database", f"{kind} answers, and has the schema {schema.head()}")


def check_clock(services: Services) -> Finding:
    """This machine's clock against the database's, by which all leases go."""
    before = time.time()
    with services.uow.read() as repos:
        theirs = repos.now()
    return judge_clock("clock", theirs - (before + time.time()) / 2, "the database's")


def check_broker(services: Services) -> Finding:
    """Whether the broker takes messages."""
    if services.dispatcher.ping():
        return ok("broker", "answers")
    return failed(
        "broker",
        "does not answer",
        "Start Valkey (or Redis), or put TUNEFARM_BROKER_URL right: host, port and password. Jobs are taken without "
        "it, and start when it is back.",
    )


def check_steps(services: Services) -> Finding:
    """Whether workers take what is due, and somebody takes back what dead ones held."""
    with services.uow.read() as repos:
        steps = repos.statistics.open_steps()
    abandoned = [one for one in steps if (one.lease_left_sec or 0.0) < -OVERDUE_SEC]
    if abandoned:
        return failed(
            "steps",
            f"a {abandoned[0].kind} step's worker is gone for over a minute, and nobody took the step back",
            "Start an API process: it runs the reconciler. If one runs, its log says what keeps it from that.",
        )
    late = [one for one in steps if one.state is StepState.READY and one.overdue_sec > OVERDUE_SEC]
    if late:
        return _overdue(max(late, key=lambda one: one.overdue_sec), steps)
    running = sum(one.count for one in steps if one.state is StepState.LEASED)
    waiting = sum(one.count for one in steps if one.state is StepState.READY)
    return ok("steps", f"{running} running, {waiting} waiting, none for long")


def _overdue(late: OpenSteps, steps: tuple[OpenSteps, ...]) -> Finding:
    queue = queue_of(late.kind)
    said = f"a step of the queue {queue} has been due for {late.overdue_sec:.0f} s"
    busy = any(one.state is StepState.LEASED and queue_of(one.kind) == queue for one in steps)
    if busy:
        return warning(
            "steps", f"{said}: all workers are busy", f"Start more: `tunefarm worker --queues {queue}`."
        )
    return failed(
        "steps",
        f"{said}, and no worker works on that queue",
        f"Start one: `tunefarm worker --queues {queue}`. If one runs, it talks to another broker or database.",
    )


def check_store(services: Services) -> Finding:
    """Whether models and artifacts can be written, and for how long."""
    folder = services.settings.store_dir
    try:
        services.blobs.check()
    except TransientError as error:
        if error.code == "store-full":
            return failed("store", f"{folder}: {error.message}", _MAKE_ROOM)
        return failed(
            "store",
            error.message,
            f"Make {folder} writable for this process's user; all API and worker processes share this folder.",
        )
    return _judge_space("store", folder)


def check_database_space(services: Services) -> Finding:
    """Room for SQLite's file to grow; a PostgreSQL server looks after its own."""
    url = parse_url(services.settings.database_url.get_secret_value())
    if url.get_backend_name() != "sqlite" or url.database is None:
        said = "is the PostgreSQL server's affair"
        with suppress(TransientError), services.uow.read() as repos:
            said += f"; the database takes up {repos.statistics.database_bytes() / 1e9:.1f} GB there"
        return ok("database space", said)
    return _judge_space("database space", Path(url.database).parent)


def _judge_space(check: str, folder: Path) -> Finding:
    try:
        usage = shutil.disk_usage(folder)
    except OSError as error:
        return failed(check, str(error), f"Make {folder} readable for this process's user.")
    said = f"{folder} has {usage.free / 1e9:.1f} GB free"
    if usage.free < FREE_NOTHING_BYTES:
        return failed(check, said, _MAKE_ROOM)
    if usage.free < min(FREE_LITTLE_BYTES, FREE_LITTLE_SHARE * usage.total):
        return warning(check, said, _MAKE_ROOM)
    return ok(check, said)
