"""The `tunefarm` command: all its parts, ``tunefarm version`` and ``tunefarm --version``."""

from __future__ import annotations

import platform
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import typer

from tunefarm.cli import devices, jobs, models, records, sweeps
from tunefarm.cli.artifact_run import run_artifact
from tunefarm.cli.base.commands import command, group
from tunefarm.cli.base.output import Output
from tunefarm.cli.farm import audit, database, keys, signing, webhooks
from tunefarm.cli.farm.backup import back_up, restore
from tunefarm.cli.farm.doctor import examine
from tunefarm.cli.farm.roles import run_worker
from tunefarm.cli.farm.serve import dashboard, serve
from tunefarm.cli.top import top
from tunefarm.cli.tune import compile_model, tune_model
from tunefarm.cli.verify import verify_artifact

_DISTRIBUTIONS = ("tunefarm", "apache-tvm", "apache-tvm-ffi", "onnx", "onnxruntime", "xgboost", "numpy")


def show_version(out: Output) -> None:
    """Show the versions of tunefarm and of the packages that affect its results."""
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


def _print_version(wanted: bool) -> None:
    if wanted:
        Output().text(f"tunefarm {version('tunefarm')}")
        raise typer.Exit


def _whole_command(
    _version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Show the version of tunefarm; `tunefarm version` shows those of its packages as well.",
        ),
    ] = False,
) -> None:
    """Take the options of the whole command, which stand before the name of a part."""


def make_app() -> typer.Typer:
    """Return the command line as a typer application."""
    app = group(
        "tunefarm",
        "Tune neural networks on your own devices: a model goes in, a tuned artifact comes "
        "out.\n\n`tunefarm tune model.onnx` does the whole job. `tunefarm serve` runs a farm on this "
        "machine; `tunefarm worker` and `tunefarm device join` add machines to a farm.",
        completion=True,
    )
    app.callback(help=app.info.help)(_whole_command)
    command(app, "tune")(tune_model)
    command(app, "compile")(compile_model)
    command(app, "top")(top)
    command(app, "run")(run_artifact)
    command(app, "verify")(verify_artifact)
    command(app, "serve")(serve)
    command(app, "dashboard")(dashboard)
    command(app, "worker", json=False)(run_worker)
    command(app, "doctor")(examine)
    command(app, "backup")(back_up)
    command(app, "restore")(restore)
    command(app, "version")(show_version)
    for part in (models, jobs, sweeps, devices, records, keys, signing, audit, webhooks, database):
        app.add_typer(part.app)
    app.add_typer(devices.app, name="devices", hidden=True)  # its neighbours are in the plural
    return app


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command; ends the process with its exit code."""
    make_app()(args=list(sys.argv[1:] if argv is None else argv), prog_name="tunefarm")


if __name__ == "__main__":
    main()
