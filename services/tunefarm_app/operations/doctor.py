"""Which checks a whole farm gets, and which one that does not run now."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tunefarm_app.operations import checks, device_checks
from tunefarm_app.operations.checks import run_checks
from tunefarm_app.operations.findings import Finding
from tunefarm_app.operations.webhook_checks import check_webhooks
from tunefarm_app.runtime.composition import Services

_OF_A_FARM: Mapping[str, Callable[[Services], Finding]] = {
    "database": checks.check_database,
    "database space": checks.check_database_space,
    "store": checks.check_store,
    "broker": checks.check_broker,
    "tracker": device_checks.check_tracker,
    "devices": device_checks.check_devices,
    "steps": checks.check_steps,
    "webhooks": check_webhooks,
    "clock": checks.check_clock,
    "versions": device_checks.check_versions,
}
_AT_REST = ("database", "database space", "store", "versions")


def examine(services: Services) -> tuple[Finding, ...]:
    """Check everything that a running farm needs, from this process; takes some seconds where things are away."""
    return run_checks(services, _OF_A_FARM)


def examine_at_rest(services: Services) -> tuple[Finding, ...]:
    """Check what there is of a farm that is not running."""
    return run_checks(services, {name: _OF_A_FARM[name] for name in _AT_REST})
