"""``tunefarm serve``: a whole farm on this machine."""

from __future__ import annotations

import typer

from tunefarm.cli.commands import command
from tunefarm.cli.output import Output


def register(app: typer.Typer) -> None:
    command(app, "serve")(serve)


def serve(out: Output) -> None:
    """Run a farm on this machine until Ctrl-C."""
    raise NotImplementedError
