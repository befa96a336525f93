"""``tunefarm device token|list|drain|quarantine|release|remove``: manage the machines of a farm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tunefarm.cli.base.commands import command
from tunefarm.cli.base.completion import complete_pool
from tunefarm.cli.base.connect import Server
from tunefarm.cli.base.output import Output
from tunefarm.cli.devices.group import DeviceName, app, find_device
from tunefarm_text import quantities

if TYPE_CHECKING:
    from tunefarm.client import Device

Reason = Annotated[str, typer.Option("--reason", help="Why, for whoever wonders later.")]


@command(app, "token")
def make_token(
    out: Output,
    server: Server,
    device_key: Annotated[
        str | None,
        typer.Option("--device-key", metavar="KEY", help="The pool that it may join; any by default."),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            "--name",
            help="The device that may use it (its GPUs too: NAME-gpu0, …); any new one by default. A known device needs "
            "its name here.",
        ),
    ] = None,
    minutes: Annotated[float, typer.Option("--minutes", min=0.1, help="How long it is good.")] = 15.0,
) -> None:
    """Make an enrolment token: it lets one machine become a device, once. Needs a key with the scope admin."""
    with server.connect() as client:
        token = client.devices.create_token(device_key=device_key, name=name, valid_sec=60.0 * minutes)
    if out.json:
        out.data(token.raw)
        return
    out.note(f"good for one device until {quantities.local_time(token.expires_at)}")
    out.text(token.token)


@command(app, "list")
def list_devices(
    out: Output,
    server: Server,
    device_key: Annotated[
        str | None,
        typer.Option(
            "--device-key", metavar="KEY", help="Only devices of this pool.", autocompletion=complete_pool
        ),
    ] = None,
    state: Annotated[str | None, typer.Option("--state", help="Only devices in this state.")] = None,
) -> None:
    """List the devices, the oldest first.

    Peak: float32 operations per second on all cores; memory: its bandwidth on all cores.
    """
    with server.connect() as client:
        devices = client.devices.list(device_key=device_key, state=state)
    out.items(
        devices,
        {
            "device": lambda device: device.id,
            "name": lambda device: device.name,
            "pool": lambda device: device.device_key,
            "model": lambda device: device.device_model,
            "state": lambda device: device.state,
            ">calibration": lambda device: quantities.latency(device.calibration_sec),
            ">peak": lambda device: quantities.rate(_float32(device), "FLOP/s"),
            ">memory": lambda device: quantities.rate(_memory(device), "B/s"),
            ">temperature": lambda device: quantities.temperature(device.temperature_celsius),
            "last seen": lambda device: quantities.local_time(device.last_seen_at),
            "reason": lambda device: device.reason,
        },
    )


@command(app, "drain")
def drain(out: Output, server: Server, name: DeviceName, reason: Reason = "") -> None:
    """Let a device finish its round, and give it no further one until it is released."""
    with server.connect() as client:
        _show(out, client.devices.drain(find_device(client, name).id, reason=reason))


@command(app, "quarantine")
def quarantine(out: Output, server: Server, name: DeviceName, reason: Reason = "") -> None:
    """Give a device no work until it is released."""
    with server.connect() as client:
        _show(out, client.devices.quarantine(find_device(client, name).id, reason=reason))


@command(app, "release")
def release(out: Output, server: Server, name: DeviceName, reason: Reason = "") -> None:
    """End draining or quarantine: the device is calibrated as if it had just come, and then gets work."""
    with server.connect() as client:
        _show(out, client.devices.release(find_device(client, name).id, reason=reason))


@command(app, "remove")
def remove(out: Output, server: Server, name: DeviceName) -> None:
    """Forget a device and revoke its credential. What it measured stays on record."""
    with server.connect() as client:
        device = find_device(client, name)
        client.devices.remove(device.id)
    out.result({"id": device.id, "name": device.name, "state": "removed"}, f"{device.name}  removed")


def _float32(device: Device) -> float | None:
    rates = None if device.peak is None else device.peak.flops_per_sec.get("float32")
    return None if rates is None else rates[1]


def _memory(device: Device) -> float | None:
    rates = None if device.peak is None else device.peak.memory_bytes_per_sec
    return None if rates is None else rates[1]


def _show(out: Output, device: Device) -> None:
    out.result(device.raw, f"{device.name}  {device.state}{f': {device.reason}' if device.reason else ''}")
