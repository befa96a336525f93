"""``tunefarm device``: its group of commands, and the argument that names a device."""

from __future__ import annotations

from typing import Annotated

import typer

from tunefarm.cli.base.commands import group
from tunefarm.cli.base.completion import complete_device

app = group(
    "device", "Lend this machine to a farm, and manage a farm's devices. `tunefarm devices` is the same."
)

DeviceName = Annotated[
    str,
    typer.Argument(
        metavar="DEVICE",
        help="The device: its name, its id (dev_…), or the first or last characters of it.",
        autocompletion=complete_device,
    ),
]
