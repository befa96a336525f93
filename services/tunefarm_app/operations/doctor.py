"""The farm's self-check (`tunefarm doctor`, `/v1/health/checks`): database, broker, store, steps and webhooks.

Each check uses the part that it judges, and says what it found and what to do about it. `device_checks` has those of
devices. A new check is a function and one line in `_CHECKS`.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from tunefarm_app.operations import device_checks
from tunefarm_app.operations.check_results import CheckResult, failed, judge_clock, ok, warning
from tunefarm_app.runtime.composition import Services
from tunefarm_app.runtime.dispatch import queue_of
from tunefarm_db import schema
from tunefarm_db.engine import parse_url
from tunefarm_db.repositories.farm.statistics import OpenSteps
from tunefarm_db.values import StepKind, StepState, WebhookHealth
from tunefarm_text import quantities
from tunefarm_tuning.core.errors import ConflictError, TransientError
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.measure.baselines.runtimes import KINDS, installed_version
from tunefarm_tuning.process.sandbox import SandboxMode, sandbox_state

FREE_LITTLE_BYTES = 5 << 30
FREE_LITTLE_SHARE = 0.1
"""On a small disk the limit is lower: a tenth of the disk."""
FREE_NOTHING_BYTES = 256 << 20
OVERDUE_SEC = 60.0
FAILING_SEC = 600.0
"""A webhook that fails for longer gets a warning."""
_MAKE_ROOM = (
    "Free space: delete unneeded models (`tunefarm models delete`), set TUNEFARM_KEEP_MODELS_DAYS, "
    "TUNEFARM_KEEP_ARTIFACTS_DAYS and TUNEFARM_KEEP_FAILURES_DAYS, or use a larger disk. If the disk is "
    "completely full, first delete a file that is not the farm's, since a deletion writes to the database. "
    "Nothing is lost: work continues when there is space."
)
_MOST_NAMED = 3
_NOT_LOOKED_AT = "not checked: the database does not answer"


def run_checks(
    services: Services, checks: Mapping[str, Callable[[Services], CheckResult]]
) -> tuple[CheckResult, ...]:
    """Run the checks in order. A check that cannot reach the database fails with that message."""
    results = []
    for name, check in checks.items():
        try:
            results.append(check(services))
        except TransientError:
            results.append(failed(name, _NOT_LOOKED_AT, "See the check `database`."))
    return tuple(results)


def check_database(services: Services) -> CheckResult:
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
            "Start it, or correct TUNEFARM_DATABASE_URL. Nothing is lost: work continues when it is back.",
        )
    return ok("database", f"{kind} answers, and has the schema {schema.head()}")


def check_clock(services: Services) -> CheckResult:
    """This machine's clock against the database's, which decides about all leases."""
    before = time.time()
    with services.uow.read() as repos:
        theirs = repos.now()
    return judge_clock("clock", theirs - (before + time.time()) / 2, "the database's")


def check_broker(services: Services) -> CheckResult:
    """Whether the broker takes messages."""
    if services.dispatcher.ping():
        return ok("broker", "answers")
    return failed(
        "broker",
        "does not answer",
        "Start Valkey (or Redis), or correct host, port and password in TUNEFARM_BROKER_URL. Jobs are "
        "accepted without it and start when it is back.",
    )


def check_steps(services: Services) -> CheckResult:
    """Whether workers take due steps, and the reconciler takes back the steps of dead workers."""
    with services.uow.read() as repos:
        steps = repos.statistics.open_steps()
    abandoned = [summary for summary in steps if (summary.lease_left_sec or 0.0) < -OVERDUE_SEC]
    if abandoned:
        return failed(
            "steps",
            f"the worker of a {abandoned[0].kind} step has been gone for over a minute, and the reconciler "
            "has not taken the step back",
            "Start an API process, which runs the reconciler. If an API process runs, read its log.",
        )
    late = [
        summary
        for summary in steps
        if summary.state is StepState.READY
        and summary.overdue_sec > OVERDUE_SEC
        and summary.kind is not StepKind.DRAFT  # it waits for as long as workers have anything else to do
    ]
    if late:
        return _overdue(max(late, key=lambda summary: summary.overdue_sec), steps)
    running = sum(summary.count for summary in steps if summary.state is StepState.LEASED)
    waiting = sum(summary.count for summary in steps if summary.state is StepState.READY)
    return ok("steps", f"{running} running, {waiting} waiting, no step overdue")


def _overdue(late: OpenSteps, steps: tuple[OpenSteps, ...]) -> CheckResult:
    queue = queue_of(late.kind)
    message = f"a step of the queue {queue} has been due for {late.overdue_sec:.0f} s"
    busy = any(summary.state is StepState.LEASED and queue_of(summary.kind) == queue for summary in steps)
    if busy:
        return warning(
            "steps", f"{message}: all workers are busy", f"Start more: `tunefarm worker --queues {queue}`."
        )
    return failed(
        "steps",
        f"{message}, and no worker serves that queue",
        f"Start a worker: `tunefarm worker --queues {queue}`. If a worker runs, it uses another broker or database.",
    )


def check_store(services: Services) -> CheckResult:
    """Whether the store can be written, and how much space is left."""
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


def check_database_space(services: Services) -> CheckResult:
    """Free space for SQLite's file; PostgreSQL's server looks after its own."""
    url = parse_url(services.settings.database_url.get_secret_value())
    if url.get_backend_name() != "sqlite" or url.database is None:
        message = "depends on the PostgreSQL server"
        with suppress(TransientError), services.uow.read() as repos:
            message += f"; the database uses {quantities.size(repos.statistics.database_bytes())} there"
        return ok("database space", message)
    return _judge_space("database space", Path(url.database).parent)


def _judge_space(check: str, folder: Path) -> CheckResult:
    try:
        usage = shutil.disk_usage(folder)
    except OSError as error:
        return failed(check, str(error), f"Make {folder} readable for this process's user.")
    message = f"{folder} has {quantities.size(usage.free)} free"
    if usage.free < FREE_NOTHING_BYTES:
        return failed(check, message, _MAKE_ROOM)
    if usage.free < min(FREE_LITTLE_BYTES, FREE_LITTLE_SHARE * usage.total):
        return warning(check, message, _MAKE_ROOM)
    return ok(check, message)


def check_webhooks(services: Services) -> CheckResult:
    """Whether due deliveries are sent and accepted. The result names webhooks without their URLs."""
    with services.uow.read() as repos:
        webhooks = repos.deliveries.health()
    overdue = max(webhooks, key=lambda webhook: webhook.overdue_sec, default=None)
    if overdue is not None and overdue.overdue_sec > OVERDUE_SEC:
        return failed(
            "webhooks",
            f"a delivery to {overdue.id} has been due for {overdue.overdue_sec:.0f} s, and no process sends it",
            "Start an API process, which sends them. If an API process runs, read its log.",
        )
    bad = [webhook for webhook in webhooks if _is_bad_webhook(webhook)]
    if bad:
        more = f", and {len(bad) - _MOST_NAMED} more" if len(bad) > _MOST_NAMED else ""
        return warning(
            "webhooks",
            "; ".join(map(_why_bad, bad[:_MOST_NAMED])) + more,
            "`tunefarm webhooks deliveries WEBHOOK_ID` shows its receiver's responses. Correct the "
            "receiver, then use `tunefarm webhooks enable` if the webhook is disabled; or delete it with "
            "`tunefarm webhooks delete`.",
        )
    waiting = sum(webhook.pending for webhook in webhooks)
    return ok(
        "webhooks",
        f"{len(webhooks)} webhooks, {waiting} deliveries waiting" if webhooks else "there are none",
    )


def _is_bad_webhook(webhook: WebhookHealth) -> bool:
    return webhook.state == "disabled" or (
        webhook.state == "failing" and (webhook.failing_sec or 0.0) > FAILING_SEC
    )


def _why_bad(webhook: WebhookHealth) -> str:
    if webhook.state == "disabled":
        return f"{webhook.id} is disabled: {clean(webhook.disabled_reason, 200)}"
    minutes = (webhook.failing_sec or 0.0) / 60
    return f"{webhook.id} has failed for {minutes:.0f} min, {quantities.plural(webhook.failures, 'attempt')} in a row"


def check_sandbox(_services: Services) -> CheckResult:
    """What confines child processes on this machine, by its kernel and the settings."""
    state = sandbox_state()
    message = f"{state.mode}: {state.text}"
    if state.mode is SandboxMode.OFF:
        return warning(
            "sandbox",
            "off: a model's or device's code can do whatever this user can",
            "Remove TUNEFARM_SANDBOX from the environment, or set it to required.",
        )
    if state.is_whole:
        return ok("sandbox", message)
    judge = failed if state.mode is SandboxMode.REQUIRED else warning
    return judge(
        "sandbox",
        message,
        "Run workers on Linux 6.12 or newer (x86-64 or 64-bit Arm), and let their container's own filter pass Landlock and seccomp.",
    )


def check_signatures(services: Services) -> CheckResult:
    """Whether results are signed, and whether all of them must be."""
    settings = services.settings
    if settings.signing_key is None:
        return ok("signatures", "results are not signed (`tunefarm signing create`, TUNEFARM_SIGNING_KEY)")
    with services.uow.read() as repos:
        unsigned = repos.artifacts.unsigned()
    if not settings.require_signatures:
        return ok(
            "signatures",
            f"workers that have the key sign; signatures are not required (TUNEFARM_REQUIRE_SIGNATURES), and "
            f"{quantities.plural(unsigned, 'artifact')} {'has' if unsigned == 1 else 'have'} none",
        )
    if unsigned:
        return warning(
            "signatures",
            f"required: {quantities.plural(unsigned, 'artifact')} without a statement, which the API does not hand out",
            "Compile these jobs again. If their number grows, a worker runs without TUNEFARM_SIGNING_KEY.",
        )
    return ok("signatures", "required, and every artifact has its statement")


def check_baselines(_services: Services) -> CheckResult:
    """Which other runtimes this machine can time artifacts beside, if it is a worker and the device. None is needed."""
    installed = {kind.distribution: installed_version(kind) for kind in KINDS.values()}
    named = [f"{name} {version}" for name, version in installed.items() if version is not None]
    missing = [name for name, version in installed.items() if version is None]
    message = ", ".join(["onnxruntime always", *named])
    if missing:
        message += f"; {' and '.join(missing)} not installed here (to time them, pip install 'tunefarm[baselines]' on the device)"
    return ok("baselines", message)


_CHECKS: Mapping[str, Callable[[Services], CheckResult]] = {
    "database": check_database,
    "database space": check_database_space,
    "store": check_store,
    "broker": check_broker,
    "gateway": device_checks.check_gateway,
    "devices": device_checks.check_devices,
    "linker": device_checks.check_linkers,
    "sessions": device_checks.check_sessions,
    "steps": check_steps,
    "webhooks": check_webhooks,
    "clock": check_clock,
    "sandbox": check_sandbox,
    "signatures": check_signatures,
    "baselines": check_baselines,
    "versions": device_checks.check_versions,
}
_AT_REST = ("database", "database space", "store", "sandbox", "signatures", "baselines", "versions")


def examine(services: Services) -> tuple[CheckResult, ...]:
    """Check everything that a running farm needs, from this process. Takes some seconds if parts are away."""
    return run_checks(services, _CHECKS)


def examine_at_rest(services: Services) -> tuple[CheckResult, ...]:
    """Check the parts of a farm that can be checked while it does not run."""
    return run_checks(services, {name: _CHECKS[name] for name in _AT_REST})
