"""The `tunefarm` command: all its parts, put together."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import typer

from tunefarm.cli import artifact_run, devices, job_files, models, records, top, tune, version
from tunefarm.cli.base.commands import group
from tunefarm.cli.farm import backup, dashboard, database, doctor, keys, roles, serve, webhooks


def make_app() -> typer.Typer:
    """Return the command line as a typer application."""
    app = group(
        "tunefarm",
        "Tune neural networks on your own devices: a model goes in, a tuned artifact comes out.\n\n"
        "`tunefarm tune model.onnx` is the whole job in one line. `tunefarm serve` runs a farm on this machine; "
        "`tunefarm worker` and `tunefarm device join` add machines to one.",
        completion=True,
    )
    for part in (tune, top, artifact_run, serve, dashboard, roles, doctor, backup, version):
        part.register(app)
    for part in (models, job_files, devices, records, keys, webhooks, database):
        app.add_typer(part.app)
    return app


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command; ends the process with its exit code."""
    make_app()(args=list(sys.argv[1:] if argv is None else argv), prog_name="tunefarm")


if __name__ == "__main__":
    main()
