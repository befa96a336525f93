"""``tunefarm worker`` and ``tunefarm device``: become a part of a farm.

Both replace this process by the part's own, so that signals, exit code and supervision are the part's.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from tunefarm.cli.commands import command
from tunefarm.cli.extras import require
from tunefarm.cli.output import Output


def register(app: typer.Typer) -> None:
    command(app, "worker", json=False)(run_worker)
    command(app, "device", json=False)(run_device)


def run_worker(
    out: Output,  # noqa: ARG001  (it speaks for itself)
    queues: Annotated[
        str | None,
        typer.Option("--queues", metavar="LIST", help="Of import, tune and compile; all by default."),
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option("--concurrency", "-c", min=1, metavar="N", help="Steps at once; 2 by default."),
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="What the node's name begins with.")] = None,
) -> None:
    """Run a worker of a farm: it imports, searches and compiles.

    It reads TUNEFARM_DATABASE_URL, TUNEFARM_BROKER_URL, TUNEFARM_STORE_DIR and the other settings of the farm from the
    environment. SIGTERM ends it after the steps in hand.
    """
    arguments = [*option("queues", queues), *option("concurrency", concurrency), *option("name", name)]
    become("tunefarm_workers.worker", arguments, extra="worker")


def run_device(
    out: Output,  # noqa: ARG001  (it speaks for itself)
    url: Annotated[
        str | None,
        typer.Option(
            "--url", metavar="URL", help="The farm's API; $TUNEFARM_URL by default.", show_envvar=False
        ),
    ] = None,
    api_key_file: Annotated[
        Path | None,
        typer.Option(
            "--api-key-file",
            metavar="FILE",
            help="File with the API key; $TUNEFARM_API_KEY_FILE, or the key in $TUNEFARM_API_KEY, by default.",
        ),
    ] = None,
    device_key: Annotated[
        str | None,
        typer.Option(
            "--device-key",
            metavar="KEY",
            help="The pool of alike devices that this one joins; `local` by default.",
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", help="Name of this device; the host's by default.")
    ] = None,
    target: Annotated[
        str | None,
        typer.Option("--target", help="What it runs, as for `tunefarm tune`; found out by default."),
    ] = None,
    device_model: Annotated[
        str | None,
        typer.Option(
            "--device-model",
            metavar="MODEL",
            help="Devices of one model give comparable timings; found out by default.",
        ),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(
            "--host", help="Address to be measured through, never a public one; 127.0.0.1 by default."
        ),
    ] = None,
    port: Annotated[int | None, typer.Option("--port", help="Its port; any free one by default.")] = None,
    advertise: Annotated[
        str | None,
        typer.Option(
            "--advertise",
            metavar="HOST",
            help="Host that workers connect to; by default, what the tracker sees.",
        ),
    ] = None,
    tracker: Annotated[
        str | None,
        typer.Option(
            "--tracker", metavar="HOST:PORT", help="The tracker as seen from here; by default, the API's."
        ),
    ] = None,
    work_dir: Annotated[
        Path | None,
        typer.Option(
            "--work-dir",
            metavar="DIR",
            help="Folder for the sessions' files; in the user's cache by default.",
        ),
    ] = None,
    max_session_sec: Annotated[
        float | None,
        typer.Option("--max-session-sec", metavar="SEC", help="Longest session; 900 by default."),
    ] = None,
) -> None:
    """Lend this machine to a farm: its workers measure the code that they generate here.

    Whoever reaches the port that it measures through can run code on this machine: keep it on loopback or a private
    network. SIGTERM ends it; a measurement at hand fails, and is done again elsewhere.
    """
    given = {
        "url": url,
        "api-key-file": api_key_file,
        "device-key": device_key,
        "name": name,
        "target": target,
        "device-model": device_model,
        "host": host,
        "port": port,
        "advertise": advertise,
        "tracker": tracker,
        "work-dir": work_dir,
        "max-session-sec": max_session_sec,
    }
    arguments = [part for key, value in given.items() for part in option(key, value)]
    become("tunefarm_workers.device", arguments, extra="device")


def become(module: str, arguments: list[str], *, extra: str) -> None:
    """Replace this process by ``python -m MODULE ARGUMENTS``.

    Args:
        module: What to run.
        arguments: Its command line.
        extra: The extra of the distribution that it needs.

    Raises:
        InvalidInputError: If that is not installed.
    """
    require(extra)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, "-m", module, *arguments])  # noqa: S606  (no shell on purpose)


def option(name: str, value: object | None) -> list[str]:
    """Return an option for the command line; nothing where it was not given."""
    return [] if value is None else [f"--{name}={value}"]
