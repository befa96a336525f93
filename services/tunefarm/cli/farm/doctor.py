"""``tunefarm doctor``: show what is wrong with the farm, and how to repair it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from tunefarm.cli.base import edge, exit_codes
from tunefarm.cli.base.connect import Server
from tunefarm.cli.base.output import Output, without_log
from tunefarm_tuning.core.errors import TunefarmError

if TYPE_CHECKING:
    from tunefarm.client import ClientError, FarmCheck
    from tunefarm.embedded.home import FarmHome
    from tunefarm_app.operations.check_results import CheckResult
    from tunefarm_app.settings import Settings

_STYLES = {"ok": "green", "warning": "yellow", "failed": "red"}
_TIMEOUT_SEC = 60.0


@dataclass(frozen=True, slots=True)
class _Row:
    """A result of a check, and which side saw it: the ``server`` (an API process) or this machine (``here``)."""

    where: str
    result: CheckResult | FarmCheck

    def to_json(self) -> dict[str, str]:
        names = ("check", "verdict", "message", "advice")
        return {"where": self.where, **{name: str(getattr(self.result, name)) for name in names}}


def examine(out: Output, server: Server) -> None:
    """Check a farm (database, store, broker, gateway, devices, waiting steps, clocks, versions) and give advice.

    Asks the configured server, else the farm on this machine. If the environment has the settings of an API or a worker
    (TUNEFARM_DATABASE_URL and so on), it also tries them from here. It checks a stopped farm by its files. The exit
    code is 1 if a check failed; warnings do not count.
    """
    rows = []
    for row in _rows(server):
        rows.append(row)
        result = row.result
        if not out.json:
            out.text(
                f"{result.verdict:<8} {row.where:<7} {result.check:<15} {result.message}",
                style=_STYLES[result.verdict],
            )
            if result.advice:
                out.text(f"{'':<33}{result.advice}")
    fine = all(row.result.verdict != "failed" for row in rows)
    if out.json:
        out.data({"ok": fine, "checks": [row.to_json() for row in rows]})
    if not fine:
        raise edge.Exit(exit_codes.FAILED)


def _rows(server: Server) -> Iterator[_Row]:
    configured = "TUNEFARM_DATABASE_URL" in os.environ
    if configured:
        yield from _with_settings_here()
    else:
        from tunefarm_app.operations.check_results import judge_versions
        from tunefarm_tuning.target.toolchain import versions

        yield _Row("here", judge_versions({"this machine": versions()}))
    address = server.find()
    if address is not None:
        yield from _ask(*address)
    elif not configured:
        yield from _at_rest(server)


def _ask(url: str, api_key: str | None) -> Iterator[_Row]:
    from tunefarm.client import NO_RETRY, Client, ClientError
    from tunefarm_app.operations.check_results import judge_clock, ok

    before = time.time()
    try:
        with Client(url, api_key, timeout_sec=_TIMEOUT_SEC, retry=NO_RETRY) as client:
            checks = client.checks()
    except ClientError as error:
        yield _no_answer(url, error)
        return
    after = time.time()
    yield _Row("here", ok("api", f"{url} answers"))
    # The server read its clock between request and answer: only a difference beyond that is skew.
    nearest = min(max(checks.time, before), after)
    yield _Row("here", judge_clock("clock", checks.time - nearest, "the server's"))
    for check in checks.checks:
        yield _Row("server", check)


def _no_answer(url: str, error: ClientError) -> _Row:
    from tunefarm.client import AuthenticationError, ForbiddenError, NotFoundError
    from tunefarm_app.operations.check_results import failed

    if isinstance(error, AuthenticationError | ForbiddenError):
        advice = "Give a key with the scope read: --api-key-file, or TUNEFARM_API_KEY_FILE."
    elif error.code in ("database-unavailable", "database-full"):
        advice = (
            "The API runs, but its database does not answer: repair it. Run on the API's machine with its "
            "settings in the environment, this command checks the database too."
        )
    elif isinstance(error, NotFoundError):
        advice = "Upgrade the server: its version has no checks."
    else:
        advice = (
            "Start the API (`tunefarm serve`, or `python -m tunefarm_api`), or correct --url. If it runs, "
            "its log says why it does not answer."
        )
    return _Row("here", failed("api", f"{url}: {error.detail}", advice))


def _with_settings_here() -> Iterator[_Row]:
    from tunefarm_app.operations.check_results import failed
    from tunefarm_app.operations.doctor import examine as examine_farm
    from tunefarm_app.runtime.composition import compose
    from tunefarm_app.settings import load_settings

    try:
        settings = load_settings()
    except TunefarmError as error:
        advice = "Correct these variables; docs/reference/settings.md explains them."
        yield _Row("here", failed("settings", error.message, advice))
        return
    with without_log(), closing(compose(settings)) as services:
        for finding in examine_farm(services):
            yield _Row("here", finding)


def _at_rest(server: Server) -> Iterator[_Row]:
    from tunefarm.embedded.home import FarmHome
    from tunefarm_app.operations.check_results import failed, warning

    home = FarmHome(server.home)
    if not home.database_path.is_file() or find_spec("sqlalchemy") is None:
        advice = "Start one with `tunefarm serve`, or configure a server with --url or TUNEFARM_URL."
        yield _Row(
            "here", failed("farm", "no farm runs on this machine, and no server is configured", advice)
        )
        return
    yield _Row(
        "here", warning("farm", f"the farm in {home.path} is not running", "Start it: `tunefarm serve`.")
    )
    from tunefarm_app.operations.doctor import examine_at_rest
    from tunefarm_app.runtime.composition import compose

    with without_log(), closing(compose(_settings_of(home))) as services:
        for finding in examine_at_rest(services):
            yield _Row("here", finding)


def _settings_of(home: FarmHome) -> Settings:
    from tunefarm_app.settings import load_settings

    return load_settings(
        database_url=home.database_url, broker_url="redis://127.0.0.1:1/0", store_dir=home.store_dir
    )
