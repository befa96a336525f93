"""Settings of an agent: options, and secrets from the environment or a file."""

from __future__ import annotations

import argparse
import json
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

import platformdirs

from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.core.untrusted_text import NAME_RULE, is_name
from tunefarm_workers.device.rpc.wire import Address, parse_address

CREDENTIAL_FILE = "credential"
"""File in the agent's folder: the API key that the device got when it enrolled."""


_OF_TRACKERS = ("tracker", "host", "port", "advertise")
"""Options of devices that waited at a tracker, which are refused."""


def farm_url_in(file: Path) -> str | None:
    """Return the URL that a farm on this machine left in a file; None while it has left none."""
    try:
        url = json.loads(file.read_text(encoding="utf-8"))["url"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return url if isinstance(url, str) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """Settings of a device agent.

    Attributes:
        url: URL of the farm's API.
        token: Enrolment token, to exchange for the device's credential; None if it has one, or uses another API key.
        token_file: File that the token is in, if given; the agent of a single device reads it again when its credential has ended.
        api_key: The device's credential, or any key that may register devices; None before it enrols.
        device_key: Pool of identical devices to join.
        name: Name of the device. Registering the name again updates the device.
        name_given: Whether the name was given; otherwise it is the host's.
        target: Target of the device, in any form that `parse_target` reads; ``cuda`` for its GPU of any kind.
        gpu: GPUs to lend, as `gpu.choose` reads them; None to follow the target.
        device_model: Hardware model: timings of one model are comparable. None to detect it.
        gateway: Address of the farm's gateway as seen from here; None for the one that the API names.
        api_key_file: File with the API key, if given.
        work_dir: Folder of this agent only, for its credential and session files.
        work_dir_given: Whether the folder was given; otherwise it follows from the name.
        max_session_sec: Longest session of a worker on the device.
        session_user: User whose process runs sessions; None for `session_user.DEFAULT_NAME`, if it can be used, else the agent's own.
        heartbeat_sec: Seconds between heartbeats.
        probe_sec: Seconds between checks that the RPC server is alive.
    """

    url: str
    token: str | None = field(default=None, repr=False)
    token_file: Path | None = None
    api_key: str | None = field(repr=False)
    device_key: str
    name: str
    name_given: bool = True
    target: str = "host"
    gpu: str | None = None
    device_model: str | None = None
    gateway: Address | None = None
    api_key_file: Path | None = None
    work_dir: Path
    work_dir_given: bool = True
    max_session_sec: float = 900.0
    session_user: str | None = None
    heartbeat_sec: float = 5.0
    probe_sec: float = 2.0


def read_settings(
    argv: Sequence[str] | None,
    environment: Mapping[str, str] = os.environ,
    *,
    farm_url: Callable[[Path], str | None] = farm_url_in,
) -> AgentSettings:
    """Read the command line.

    Args:
        argv: The arguments.
        environment: Environment variables.
        farm_url: Returns the URL in the file of a farm on this machine; None if there is none.

    Raises:
        InvalidInputError: If a setting is missing or invalid; the message says what to do.
    """
    options = _parser(environment).parse_args(argv)
    for name in _OF_TRACKERS:
        if getattr(options, f"no_{name}") is not None:
            raise InvalidInputError(
                f"--{name} was removed: devices no longer wait at a tracker or open a port. They dial the farm's gateway; if its address "
                "is not the one that the API tells, name it with --gateway",
                code="tracker-removed",
                field=name,
            )
    if options.farm_file is not None:  # before the token is read, which the farm writes first
        options.url = farm_url(options.farm_file)
    name_given, work_dir_given = bool(options.name), options.work_dir is not None
    options.name = options.name or socket.gethostname()
    if not options.url:
        raise InvalidInputError("no farm is given: use --url or TUNEFARM_URL", code="no-url")
    for label in ("name", "device_key"):
        _check(label, getattr(options, label))
    token = _token(options, environment)
    work_dir = options.work_dir or _default_folder(options.name)
    # Where the devices may be GPUs, whose credentials these are to be is known later: `as_device` insists then.
    needed = token is None and options.gpu is None and options.target == "host"
    api_key = _api_key(options.api_key_file, work_dir, environment, needed=needed)
    # Settings with the names of the command line; the others are computed here.
    same = {
        field.name: getattr(options, field.name) for field in fields(AgentSettings) if field.name in options
    }
    return AgentSettings(
        **{**same, "token": token, "work_dir": work_dir.absolute()},
        api_key=api_key,
        name_given=name_given,
        work_dir_given=work_dir_given,
    )


def as_device(
    settings: AgentSettings, name: str, *, part: str = "", environment: Mapping[str, str] = os.environ
) -> AgentSettings:
    """Return the settings of one device of the machine.

    Args:
        settings: The machine's settings.
        name: The device's.
        part: Suffix that distinguishes its folder from other devices' folders; empty for a single device.
        environment: Environment variables, which may contain a key.

    Raises:
        InvalidInputError: As `read_settings`.
    """
    _check("name", name)
    folder = settings.work_dir / part if settings.work_dir_given else _default_folder(name).absolute()
    key = _api_key(settings.api_key_file, folder, environment, needed=settings.token is None and not part)
    return replace(settings, name=name, name_given=True, work_dir=folder, work_dir_given=True, api_key=key)


def is_open_to_others(url: str) -> bool:
    """Return whether others can read and change what is sent to the API: over HTTP, beyond this machine."""
    parts = urlsplit(url)
    if parts.scheme == "https" or parts.hostname == "localhost":
        return False
    try:
        return not ip_address(parts.hostname or "").is_loopback
    except ValueError:  # a name
        return True


def _check(label: str, value: str) -> None:
    if not is_name(value):
        raise InvalidInputError(
            f"--{label.replace('_', '-')} must be {NAME_RULE}", code="invalid-device", field=label
        )


def _default_folder(name: str) -> Path:
    return Path(platformdirs.user_cache_dir("tunefarm")) / "device" / name


def _token(options: argparse.Namespace, environment: Mapping[str, str]) -> str | None:
    if options.token_file is not None:
        return read_secret(options.token_file, "enrolment token")
    return (options.token or environment.get("TUNEFARM_ENROLMENT_TOKEN", "")).strip() or None


def _api_key(
    file: Path | None, work_dir: Path, environment: Mapping[str, str], *, needed: bool
) -> str | None:
    """Return the key in the named file, else the device's own credential, else the key in the environment."""
    credential = work_dir / CREDENTIAL_FILE
    if file is None and not credential.is_file() and "TUNEFARM_API_KEY_FILE" in environment:
        file = Path(environment["TUNEFARM_API_KEY_FILE"])
    if file is not None:
        return read_secret(file, "API key")
    if credential.is_file():
        return read_secret(credential, "device's credential")
    key = environment.get("TUNEFARM_API_KEY", "").strip()
    if key and key.isascii() and key.isprintable():
        return key
    if needed:
        raise InvalidInputError(
            "this device is not enrolled: give --token-file with a token from `tunefarm device token`, or "
            "an API key with TUNEFARM_API_KEY or --api-key-file",
            code="no-api-key",
        )
    return None


def read_secret(path: Path, kind: str) -> str:
    """Return the token or key in a file.

    Raises:
        InvalidInputError: ``no-api-key``, if there is none.
    """
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise InvalidInputError(f"cannot read the {kind}'s file: {error}", code="no-api-key") from error
    if not text or not text.isascii() or not text.isprintable():
        raise InvalidInputError(f"{path} has no {kind}", code="no-api-key")
    return text


def _parser(environment: Mapping[str, str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tunefarm_workers.device",
        description="Lend this machine to a farm, whose workers then measure kernels on it.",
    )
    add = parser.add_argument
    add(
        "--url",
        default=environment.get("TUNEFARM_URL"),
        help="URL of the farm's API (default: $TUNEFARM_URL)",
    )
    add(
        "--farm-file",
        type=Path,
        metavar="FILE",
        help="file in which a farm on this machine leaves its URL as soon as it is up; the agent waits for it (instead of --url)",
    )
    add(
        "--token",
        metavar="TOKEN",
        help="enrolment token, valid once (default: $TUNEFARM_ENROLMENT_TOKEN)",
    )
    add("--token-file", type=Path, metavar="FILE", help="file with the enrolment token")
    add(
        "--api-key-file",
        type=Path,
        metavar="FILE",
        help="file with an API key, instead of enrolment (default: $TUNEFARM_API_KEY_FILE, or the key in "
        "$TUNEFARM_API_KEY)",
    )
    add(
        "--device-key",
        default=environment.get("TUNEFARM_DEVICE_KEY", "local"),
        metavar="KEY",
        help="pool of identical devices to join (default: %(default)s)",
    )
    add(
        "--name",
        default=environment.get("TUNEFARM_DEVICE_NAME"),
        help="name of this device (default: the host's name); GPUs get the suffix -gpu and their number",
    )
    add(
        "--target",
        default="host",
        help="target of the device, as for tuning (default: %(default)s); `cuda` for its GPUs of any kind",
    )
    add(
        "--gpu",
        metavar="LIST",
        help="lend these GPUs instead of the CPU, each as a device: `all`, or the driver's numbers, like 0,2 "
        "(default: all if the target is cuda)",
    )
    add(
        "--device-model",
        metavar="MODEL",
        help="hardware model; timings of one model are comparable (default: detected)",
    )
    for name in _OF_TRACKERS:
        add(f"--{name}", dest=f"no_{name}", help=argparse.SUPPRESS)
    add(
        "--gateway",
        type=_address,
        metavar="HOST:PORT",
        help="gateway's host:port as seen from here (default: the API's setting)",
    )
    add(
        "--work-dir",
        type=Path,
        metavar="DIR",
        help="folder for credential and session files (default: in the user's cache)",
    )
    add(
        "--max-session-sec",
        type=float,
        default=900.0,
        metavar="SEC",
        help="longest session in seconds (default: %(default)g)",
    )
    add(
        "--session-user",
        default=environment.get("TUNEFARM_SESSION_USER") or None,
        metavar="USER",
        help="user whose process runs sessions; the agent must be root, or have its rights to change users (default: "
        "$TUNEFARM_SESSION_USER, or `tunefarm-session` if that can be used, else the agent's own)",
    )
    add(
        "--heartbeat-sec",
        type=float,
        default=5.0,
        metavar="SEC",
        help="seconds between heartbeats (default: %(default)g)",
    )
    return parser


def _address(text: str) -> Address:
    try:
        return parse_address(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
