"""``tunefarm device``: lend a machine to a farm, and look after the machines of one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tunefarm.cli.base.commands import command, group
from tunefarm.cli.base.completion import complete_device, complete_pool
from tunefarm.cli.base.connect import Server
from tunefarm.cli.base.output import Output
from tunefarm.cli.device_past import DevicePast
from tunefarm.cli.farm.roles import become, option
from tunefarm_text import quantities
from tunefarm_tuning.core.errors import NotFoundError

if TYPE_CHECKING:
    from tunefarm.client import Client, Device

app = group("device", "Lend this machine to a farm, and look after the machines of one.")

DeviceName = Annotated[
    str,
    typer.Argument(
        metavar="DEVICE", help="The device: its name, or its id, dev_…", autocompletion=complete_device
    ),
]
Reason = Annotated[str, typer.Option("--reason", help="Why, for whoever wonders later.")]


@command(app, "join", json=False)
def join(
    out: Output,  # noqa: ARG001  (it speaks for itself)
    url: Annotated[
        str | None,
        typer.Option(
            "--url", metavar="URL", help="The farm's API; $TUNEFARM_URL by default.", show_envvar=False
        ),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(
            "--token",
            metavar="TOKEN",
            help="The enrolment token that `tunefarm device token` printed; $TUNEFARM_ENROLMENT_TOKEN by default. "
            "Needed the first time, and worthless then.",
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            help="File with the enrolment token.",
        ),
    ] = None,
    api_key_file: Annotated[
        Path | None,
        typer.Option(
            "--api-key-file",
            metavar="FILE",
            help="Instead of enrolling: file with an API key; $TUNEFARM_API_KEY_FILE, or the key in "
            "$TUNEFARM_API_KEY, by default.",
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
        str | None,
        typer.Option(
            "--name",
            help="Name of this device; the host's by default. Of several GPUs each has -gpu and its number after it.",
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            help="What it runs, as for `tunefarm tune`; the CPU that it is by default. `cuda`: its GPUs, whatever they "
            "are.",
        ),
    ] = None,
    gpu: Annotated[
        str | None,
        typer.Option(
            "--gpu",
            metavar="LIST",
            help="Lend these GPUs in place of the CPU, each as a device of its own: `all`, or the driver's numbers, as "
            "0,2. All by default where the target is cuda.",
        ),
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

    The first time it shows an enrolment token, and is given a credential of its own, which it keeps in its folder
    (--work-dir). It gets work once the calibration kernel ran clean on it.

    With --gpu each GPU is a device: it has a name, an RPC server, a lease and a calibration of its own, and one token
    enrols them all. GPUs of different kinds need a call each, with a --device-key of their own.

    Whoever reaches the port that it measures through can run code on this machine: keep it on loopback or a private
    network. SIGTERM ends it; a measurement at hand fails, and is done again elsewhere.
    """
    given = {
        "url": url,
        "token": token,
        "token-file": token_file,
        "api-key-file": api_key_file,
        "device-key": device_key,
        "name": name,
        "target": target,
        "gpu": gpu,
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
        made = client.devices.create_token(device_key=device_key, name=name, valid_sec=60.0 * minutes)
    if out.json:
        out.data(made.raw)
        return
    out.note(f"good for one device until {quantities.local_time(made.expires_at)}")
    out.text(made.token)


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
    if out.json:
        out.data([device.raw for device in devices])
        return
    out.table(
        (
            "device",
            "name",
            "pool",
            "model",
            "state",
            ">calibration",
            ">peak",
            ">memory",
            ">temperature",
            "last seen",
            "reason",
        ),
        (
            (
                device.id,
                device.name,
                device.device_key,
                device.device_model,
                device.state,
                quantities.latency(device.calibration_sec),
                quantities.rate(_float32(device), "FLOP/s"),
                quantities.rate(_memory(device), "B/s"),
                quantities.temperature(device.temperature_celsius),
                quantities.local_time(device.last_seen_at),
                device.reason,
            )
            for device in devices
        ),
    )


@command(app, "show")
def show_device(
    out: Output,
    server: Server,
    name: DeviceName,
    span: Annotated[
        str, typer.Option("--span", help="How far back its use is told: hour, day, week or month.")
    ] = "day",
) -> None:
    """Show a device: its state and lease, its use, calibrations and temperature, and what it measured."""
    with server.connect() as client:
        device = _find(client, name)
        past = DevicePast(
            device=device,
            intervals=client.devices.intervals(device.id, span=span),
            totals=client.devices.totals(device.id),
            calibrations=client.devices.calibrations(device.id, limit=10),
            changes=client.devices.changes(device.id, limit=10),
            records=client.devices.records(device.id, limit=10),
        )
    if out.json:
        out.data(past.to_json())
    else:
        past.show(out, span)


@command(app, "drain")
def drain(out: Output, server: Server, name: DeviceName, reason: Reason = "") -> None:
    """Let a device finish its round, and give it no further one until it is released."""
    with server.connect() as client:
        _show(out, client.devices.drain(_find(client, name).id, reason=reason))


@command(app, "quarantine")
def quarantine(out: Output, server: Server, name: DeviceName, reason: Reason = "") -> None:
    """Give a device no work until it is released."""
    with server.connect() as client:
        _show(out, client.devices.quarantine(_find(client, name).id, reason=reason))


@command(app, "release")
def release(out: Output, server: Server, name: DeviceName, reason: Reason = "") -> None:
    """End draining or quarantine: the device is calibrated as if it had just come, and then gets work."""
    with server.connect() as client:
        _show(out, client.devices.release(_find(client, name).id, reason=reason))


@command(app, "remove")
def remove(out: Output, server: Server, name: DeviceName) -> None:
    """Forget a device and revoke its credential. What it measured stays on record."""
    with server.connect() as client:
        device = _find(client, name)
        client.devices.remove(device.id)
    if out.json:
        out.data({"id": device.id, "name": device.name, "state": "removed"})
    else:
        out.text(f"{device.name}  removed")


def _float32(device: Device) -> float | None:
    found = None if device.peak is None else device.peak.flops_per_sec.get("float32")
    return None if found is None else found[1]


def _memory(device: Device) -> float | None:
    found = None if device.peak is None else device.peak.memory_bytes_per_sec
    return None if found is None else found[1]


def _find(client: Client, name: str) -> Device:
    for device in client.devices.list():
        if name in (device.name, device.id):
            return device
    raise NotFoundError(
        f"there is no device {name}: `tunefarm device list` shows them", code="device-not-found"
    )


def _show(out: Output, device: Device) -> None:
    if out.json:
        out.data(device.raw)
    else:
        out.text(f"{device.name}  {device.state}{f': {device.reason}' if device.reason else ''}")
