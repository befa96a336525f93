"""``tunefarm device join``: add this machine to a farm as a device."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

import typer

from tunefarm.cli.base.commands import command
from tunefarm.cli.base.option_group import OptionGroup
from tunefarm.cli.base.output import Output
from tunefarm.cli.devices.group import app
from tunefarm.cli.farm.roles import become, option


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinOptions(OptionGroup):
    """What the device agent is started with. Each field is an option of the agent, with the same name."""

    url: Annotated[
        str | None,
        typer.Option(
            "--url", metavar="URL", help="The farm's API; $TUNEFARM_URL by default.", show_envvar=False
        ),
    ] = None
    token: Annotated[
        str | None,
        typer.Option(
            "--token",
            metavar="TOKEN",
            help="The enrolment token that `tunefarm device token` printed; $TUNEFARM_ENROLMENT_TOKEN by default. "
            "Needed the first time, and worthless then.",
        ),
    ] = None
    token_file: Annotated[
        Path | None, typer.Option("--token-file", metavar="FILE", help="File with the enrolment token.")
    ] = None
    api_key_file: Annotated[
        Path | None,
        typer.Option(
            "--api-key-file",
            metavar="FILE",
            help="Instead of enrolling: file with an API key; $TUNEFARM_API_KEY_FILE, or the key in "
            "$TUNEFARM_API_KEY, by default.",
        ),
    ] = None
    device_key: Annotated[
        str | None,
        typer.Option(
            "--device-key",
            metavar="KEY",
            help="The pool of alike devices that this one joins; `local` by default.",
        ),
    ] = None
    name: Annotated[
        str | None,
        typer.Option(
            "--name",
            help="Name of this device; the host's by default. Of several GPUs each has -gpu and its number after it.",
        ),
    ] = None
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            help="What it runs, as for `tunefarm tune`; the CPU that it is by default. `cuda`: its GPUs, whatever they "
            "are.",
        ),
    ] = None
    gpu: Annotated[
        str | None,
        typer.Option(
            "--gpu",
            metavar="LIST",
            help="Lend these GPUs in place of the CPU, each as a device of its own: `all`, or the driver's numbers, as "
            "0,2. All by default where the target is cuda.",
        ),
    ] = None
    device_model: Annotated[
        str | None,
        typer.Option(
            "--device-model",
            metavar="MODEL",
            help="Devices of one model give comparable timings; found out by default.",
        ),
    ] = None
    host: Annotated[
        str | None,
        typer.Option(
            "--host", help="Address to be measured through, never a public one; 127.0.0.1 by default."
        ),
    ] = None
    port: Annotated[int | None, typer.Option("--port", help="Its port; any free one by default.")] = None
    advertise: Annotated[
        str | None,
        typer.Option(
            "--advertise",
            metavar="HOST",
            help="Host that workers connect to; by default, what the tracker sees.",
        ),
    ] = None
    tracker: Annotated[
        str | None,
        typer.Option(
            "--tracker", metavar="HOST:PORT", help="The tracker as seen from here; by default, the API's."
        ),
    ] = None
    work_dir: Annotated[
        Path | None,
        typer.Option(
            "--work-dir",
            metavar="DIR",
            help="Folder for the sessions' files; in the user's cache by default.",
        ),
    ] = None
    max_session_sec: Annotated[
        float | None,
        typer.Option("--max-session-sec", metavar="SEC", help="Longest session; 900 by default."),
    ] = None

    def command_line(self) -> list[str]:
        """Return the options that were given, as the agent takes them."""
        values = {field.name.replace("_", "-"): getattr(self, field.name) for field in fields(self)}
        return [part for name, value in values.items() for part in option(name, value)]


@command(app, "join", json=False)
def join(out: Output, options: JoinOptions) -> None:  # noqa: ARG001  (the agent itself prints)
    """Lend this machine to a farm: its workers measure the code that they generate here.

    The first time it shows an enrolment token, and is given a credential of its own, which it keeps in its folder
    (--work-dir). It gets work once the calibration kernel ran clean on it.

    With --gpu each GPU is a device: it has a name, an RPC server, a lease and a calibration of its own, and one token
    enrols them all. GPUs of different kinds need a call each, with a --device-key of their own.

    Whoever reaches the port that it measures through can run code on this machine: keep it on loopback or a private
    network. SIGTERM ends it; a measurement at hand fails, and is done again elsewhere.
    """
    become("tunefarm_workers.device", options.command_line(), extra="device")
