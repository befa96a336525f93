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
    """The options of the device agent. Each field is an option of the agent with the same name."""

    url: Annotated[
        str | None,
        typer.Option(
            "--url", metavar="URL", help="URL of the farm's API; $TUNEFARM_URL by default.", show_envvar=False
        ),
    ] = None
    token: Annotated[
        str | None,
        typer.Option(
            "--token",
            metavar="TOKEN",
            help="Enrolment token from `tunefarm device token`; $TUNEFARM_ENROLMENT_TOKEN by default. Needed "
            "only the first time, and valid once.",
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
            help="File with an API key, instead of enrolment; by default $TUNEFARM_API_KEY_FILE, or the key in "
            "$TUNEFARM_API_KEY.",
        ),
    ] = None
    device_key: Annotated[
        str | None,
        typer.Option(
            "--device-key",
            metavar="KEY",
            help="Pool of identical devices to join; `local` by default.",
        ),
    ] = None
    name: Annotated[
        str | None,
        typer.Option(
            "--name",
            help="Name of this device; the host's name by default. GPUs get the suffix -gpu and their number.",
        ),
    ] = None
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            help="Target of this device, as for `tunefarm tune`; its CPU by default. `cuda`: its GPUs of any "
            "kind.",
        ),
    ] = None
    gpu: Annotated[
        str | None,
        typer.Option(
            "--gpu",
            metavar="LIST",
            help="Lend these GPUs instead of the CPU, each as a device: `all`, or the driver's numbers, like "
            "0,2. All by default if the target is cuda.",
        ),
    ] = None
    device_model: Annotated[
        str | None,
        typer.Option(
            "--device-model",
            metavar="MODEL",
            help="Hardware model; timings of one model are comparable. Detected by default.",
        ),
    ] = None
    gateway: Annotated[
        str | None,
        typer.Option(
            "--gateway",
            metavar="HOST:PORT",
            help="Gateway's host:port as seen from here; by default, the API's setting.",
        ),
    ] = None
    work_dir: Annotated[
        Path | None,
        typer.Option(
            "--work-dir",
            metavar="DIR",
            help="Folder for credential and session files; in the user's cache by default.",
        ),
    ] = None
    max_session_sec: Annotated[
        float | None,
        typer.Option("--max-session-sec", metavar="SEC", help="Longest session in seconds; 900 by default."),
    ] = None
    session_user: Annotated[
        str | None,
        typer.Option(
            "--session-user",
            metavar="USER",
            help="User whose process runs sessions; needs root. By default $TUNEFARM_SESSION_USER, or `tunefarm-session` if that can be "
            "used, else the agent's own.",
        ),
    ] = None

    # The agent refuses them by name, and says what to use.
    tracker: Annotated[str | None, typer.Option("--tracker", hidden=True)] = None
    host: Annotated[str | None, typer.Option("--host", hidden=True)] = None
    port: Annotated[str | None, typer.Option("--port", hidden=True)] = None
    advertise: Annotated[str | None, typer.Option("--advertise", hidden=True)] = None

    def command_line(self) -> list[str]:
        """Return the given options as arguments of the agent."""
        values = {field.name.replace("_", "-"): getattr(self, field.name) for field in fields(self)}
        return [part for name, value in values.items() for part in option(name, value)]


@command(app, "join", json=False)
def join(out: Output, options: JoinOptions) -> None:  # noqa: ARG001  (the agent itself prints)
    """Lend this machine to a farm, whose workers then measure kernels on it.

    The first time, it sends an enrolment token and gets its own credential, which it keeps in --work-dir. It gets work
    after its first clean calibration.

    With --gpu each GPU is a device with its own name, RPC server, lease and calibration; one token enrols all of them.
    Different kinds of GPU need separate calls, each with its own --device-key.

    It dials the farm's gateway, and needs no open port. SIGTERM ends it; the current measurement fails and is repeated on
    another device.
    """
    become("tunefarm_workers.device", options.command_line(), extra="device")


@command(app, "trim", json=False)
def trim(out: Output) -> None:  # noqa: ARG001  (the module itself prints)
    """Remove TVM's compiler from this environment: a device that lends its CPU needs the runtime alone.

    It is most of what was installed. The target that the compiler found stays known, for this machine only. Installing
    apache-tvm again brings the compiler back. Not for devices that lend a GPU.
    """
    become("tunefarm_workers.device.trim", [], extra="device")
