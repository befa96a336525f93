"""``tunefarm version``."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

import typer

from tunefarm.cli.base.commands import command
from tunefarm.cli.base.output import Output

_PARTS = ("tunefarm", "apache-tvm", "apache-tvm-ffi", "onnx", "onnxruntime", "xgboost", "numpy")


def register(app: typer.Typer) -> None:
    command(app, "version")(show_version)


def show_version(out: Output) -> None:
    """Show the versions of tunefarm and of what decides its results."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for part in _PARTS:
        try:
            found[part] = version(part)
        except PackageNotFoundError:
            found[part] = None
    if out.json:
        out.data(found)
        return
    for name, value in found.items():
        out.text(f"{name:<15} {value or 'not installed'}")
