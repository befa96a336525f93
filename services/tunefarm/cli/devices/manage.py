"""``tunefarm device token|list|drain|quarantine|release|remove``: manage the machines of a farm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tunefarm.cli.base.commands import command
from tunefarm.cli.base.completion import complete_pool
from tunefarm.cli.base.connect import Server
from tunefarm.cli.base.output import Output
from tunefarm.cli.base.references import find_device
from tunefarm.cli.devices.group import DeviceName, app
from tunefarm_text import quantities

if TYPE_CHECKING:
    from tunefarm.client import Device

Reason = Annotated[str, typer.Option("--reason", help="Reason, shown with the device.")]


@command(app, "token")
def make_token(
    out: Output,
    server: Server,
    device_key: Annotated[
        str | None,
        typer.Option("--device-key", metavar="KEY", help="Pool that the machine may join; any by default."),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            "--name",
            help="Device that may use the token (and its GPUs: NAME-gpu0, …); any new one by default. A known "
            "device must be named.",
        ),
    ] = None,
    minutes: Annotated[
        float, typer.Option("--minutes", min=0.1, max=10_080, help="Validity in minutes; 7 days at most.")
    ] = 15.0,
    *,
    guest: Annotated[
        bool,
        typer.Option(
            "--guest",
            help="The machine belongs to somebody else: its records count only in its pool. Needs --device-key.",
        ),
    ] = False,
) -> None:
    """Create an enrolment token, with which one machine can become a device, once. Needs a key with the scope admin."""
    with server.connect() as client:
        token = client.devices.create_token(
            device_key=device_key, name=name, valid_sec=60.0 * minutes, guest=guest
        )
    if out.json:
        out.data(token.raw)
        return
    out.note(f"valid for one device until {quantities.local_time(token.expires_at)}")
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
    """List the devices, oldest first, and below them the reasons for their states.

    Peak: float32 operations per second on all cores. Memory: bandwidth on all cores. In a narrow terminal, `tunefarm device show`
    shows what is left out.
    """
    with server.connect() as client:
        devices = client.devices.list(device_key=device_key, state=state)
    out.items(
        devices,
        {
            "name": lambda device: device.name,
            "pool": lambda device: device.device_key,
            "state": lambda device: device.state,
            ">calibration": lambda device: quantities.latency(device.calibration_sec),
            ">peak": lambda device: quantities.rate(_float32(device), "FLOP/s"),
            ">memory": lambda device: quantities.rate(_memory(device), "B/s"),
            ">temperature": lambda device: quantities.temperature(device.temperature_celsius),
            "last seen": lambda device: quantities.local_time(device.last_seen_at),
            "model": lambda device: device.device_model,
            "sandbox": lambda device: device.sandbox.partition(" (")[0],
            "credential until": lambda device: quantities.local_time(device.credential_until),
            "device": lambda device: device.id,
        },
        optional=("credential until", "sandbox", "model", "device", ">temperature", ">calibration"),
    )
    if not out.json:
        for device in devices:
            if device.reason:
                out.text(f"{device.name}  {device.state}: {device.reason}")


@command(app, "drain")
def drain(out: Output, server: Server, name: DeviceName, reason: Reason = "") -> None:
    """Drain a device: it finishes its current round and gets no more work until it is released."""
    with server.connect() as client:
        _show(out, client.devices.drain(find_device(client, name).id, reason=reason))


@command(app, "quarantine")
def quarantine(out: Output, server: Server, name: DeviceName, reason: Reason = "") -> None:
    """Quarantine a device: it gets no work until it is released."""
    with server.connect() as client:
        _show(out, client.devices.quarantine(find_device(client, name).id, reason=reason))


@command(app, "release")
def release(out: Output, server: Server, name: DeviceName, reason: Reason = "") -> None:
    """End a device's draining or quarantine. It gets work after a new calibration."""
    with server.connect() as client:
        _show(out, client.devices.release(find_device(client, name).id, reason=reason))


@command(app, "remove")
def remove(out: Output, server: Server, name: DeviceName) -> None:
    """Remove a device and revoke its credential. Its records stay."""
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
