"""``tunefarm device``: its group of commands, and the argument that names a device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tunefarm.cli.base.commands import group
from tunefarm.cli.base.completion import complete_device
from tunefarm_tuning.core.errors import NotFoundError

if TYPE_CHECKING:
    from tunefarm.client import Client, Device

app = group("device", "Lend this machine to a farm, and manage a farm's devices.")

DeviceName = Annotated[
    str,
    typer.Argument(
        metavar="DEVICE", help="The device: its name, or its id, dev_…", autocompletion=complete_device
    ),
]


def find_device(client: Client, name: str) -> Device:
    """Return the device of that name or id.

    Raises:
        NotFoundError: ``device-not-found``.
    """
    for device in client.devices.list():
        if name in (device.name, device.id):
            return device
    raise NotFoundError(
        f"there is no device {name}: `tunefarm device list` shows them", code="device-not-found"
    )
