"""``tunefarm worker``: run a worker of a farm.

Like ``tunefarm device join``, it replaces this process by the part's own, so that signals, exit code and supervision are
the part's.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from tunefarm.cli.base.extras import require
from tunefarm.cli.base.output import Output


def run_worker(
    out: Output,  # noqa: ARG001  (it speaks for itself)
    queues: Annotated[
        str | None,
        typer.Option(
            "--queues", metavar="LIST", help="Queues to serve: import, tune, compile, draft; all by default."
        ),
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option(
            "--concurrency", "-c", min=1, metavar="N", help="Number of steps at once; 2 by default."
        ),
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="Prefix of the node's name.")] = None,
) -> None:
    """Run a worker of a farm: it imports, searches and compiles.

    It reads the farm's settings (TUNEFARM_DATABASE_URL, TUNEFARM_BROKER_URL, TUNEFARM_STORE_DIR and others) from the
    environment. SIGTERM ends it after its current steps.
    """
    arguments = [*option("queues", queues), *option("concurrency", concurrency), *option("name", name)]
    become("tunefarm_workers.worker", arguments, extra="worker")


def become(module: str, arguments: list[str], *, extra: str) -> None:
    """Replace this process by ``python -m MODULE ARGUMENTS``, which needs an extra of the distribution.

    Raises:
        InvalidInputError: If that is not installed.
    """
    require(extra)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, "-m", module, *arguments])  # noqa: S606  (no shell on purpose)


def option(name: str, value: object | None) -> list[str]:
    """Return an option for the command line; nothing if it was not given."""
    return [] if value is None else [f"--{name}={value}"]
