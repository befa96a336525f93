"""The `tunefarm` command: all its parts, and ``tunefarm version``."""

from __future__ import annotations

import platform
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

import typer

from tunefarm.cli import artifact_run, devices, jobs, models, records, top, tune
from tunefarm.cli.base.commands import command, group
from tunefarm.cli.base.output import Output
from tunefarm.cli.farm import backup, dashboard, database, doctor, keys, roles, serve, webhooks

_DISTRIBUTIONS = ("tunefarm", "apache-tvm", "apache-tvm-ffi", "onnx", "onnxruntime", "xgboost", "numpy")


def show_version(out: Output) -> None:
    """Show the versions of tunefarm and of what decides its results."""
    versions: dict[str, str | None] = {"python": platform.python_version()}
    for distribution in _DISTRIBUTIONS:
        try:
            versions[distribution] = version(distribution)
        except PackageNotFoundError:
            versions[distribution] = None
    if out.json:
        out.data(versions)
        return
    for name, value in versions.items():
        out.text(f"{name:<15} {value or 'not installed'}")


def make_app() -> typer.Typer:
    """Return the command line as a typer application."""
    app = group(
        "tunefarm",
        "Tune neural networks on your own devices: a model goes in, a tuned artifact comes out.\n\n"
        "`tunefarm tune model.onnx` is the whole job in one line. `tunefarm serve` runs a farm on this machine; "
        "`tunefarm worker` and `tunefarm device join` add machines to one.",
        completion=True,
    )
    for part in (tune, top, artifact_run, serve, dashboard, roles, doctor, backup):
        part.register(app)
    command(app, "version")(show_version)
    for part in (models, jobs, devices, records, keys, webhooks, database):
        app.add_typer(part.app)
    return app


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command; ends the process with its exit code."""
    make_app()(args=list(sys.argv[1:] if argv is None else argv), prog_name="tunefarm")


if __name__ == "__main__":
    main()
