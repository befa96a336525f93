"""``tunefarm keys``: create, list, rotate and revoke API keys."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tunefarm.cli.base.commands import command, group
from tunefarm.cli.base.connect import Server
from tunefarm.cli.base.output import Output
from tunefarm_text import quantities
from tunefarm_tuning.core.errors import InvalidInputError

if TYPE_CHECKING:
    from tunefarm.client import Client
    from tunefarm.client.keys import KeyLimits, NewApiKey

KeyFile = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", metavar="FILE", help="Write the key to a new file that only you can read."
    ),
]
KeyId = Annotated[
    str,
    typer.Argument(metavar="KEY_ID", help="The key: its id, or the first or last characters of it."),
]

MaxBytes = Annotated[
    int | None,
    typer.Option(
        "--max-bytes",
        min=0,
        metavar="N",
        help="Maximum bytes of models, samples, imported records and running uploads together.",
    ),
]
MaxOpenJobs = Annotated[
    int | None,
    typer.Option("--max-open-jobs", min=0, metavar="N", help="Maximum number of jobs that have not ended."),
]
MaxDeviceMinutes = Annotated[
    float | None,
    typer.Option(
        "--max-device-minutes",
        min=0,
        metavar="N",
        help="Maximum minutes of search of all jobs within 30 days. Each job then needs a time budget.",
    ),
]
MaxPriority = Annotated[
    int | None,
    typer.Option("--max-priority", min=-100, max=100, metavar="N", help="Highest priority of its jobs."),
]

_TIME = re.compile(r"([0-9]+(?:\.[0-9]+)?)([mhd])")
_UNITS = {"m": 60.0, "h": 3600.0, "d": 86400.0}
_MAX_DAYS = 3650

app = group("keys", "Create, list, rotate and revoke API keys. Needs a key with the scope admin.")


@command(app, "create")
def create_key(
    out: Output,
    server: Server,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Purpose of the key.")],
    scopes: Annotated[
        list[str],
        typer.Option(
            "--scope",
            "-s",
            help="Right of the key: read, write (upload, tune, cancel), device (register devices), admin (all, "
            "and manage keys). Can be given several times.",
        ),
    ],
    output: KeyFile = None,
    expires: Annotated[
        str | None,
        typer.Option(
            "--expires", metavar="TIME", help="Validity: 90d, 12h, 30m. Without it the key does not expire."
        ),
    ] = None,
    max_bytes: MaxBytes = None,
    max_open_jobs: MaxOpenJobs = None,
    max_device_minutes: MaxDeviceMinutes = None,
    max_priority: MaxPriority = None,
) -> None:
    """Create an API key. It is shown only now: the server keeps a hash."""
    from tunefarm.client.keys import KeyLimits

    valid_sec = None if expires is None else _seconds(expires)
    limits = KeyLimits(
        bytes=max_bytes,
        open_jobs=max_open_jobs,
        device_minutes=max_device_minutes,
        priority=max_priority,
    )
    _show_new(
        out,
        server,
        output,
        lambda client: client.keys.create(name, scopes=scopes, valid_sec=valid_sec, limits=limits),
    )


@command(app, "limit")
def limit_key(
    out: Output,
    server: Server,
    key_id: KeyId,
    max_bytes: MaxBytes = None,
    max_open_jobs: MaxOpenJobs = None,
    max_device_minutes: MaxDeviceMinutes = None,
    max_priority: MaxPriority = None,
) -> None:
    """Set the limits of an API key in place of those that it has; a limit that you do not give is removed.

    They apply at once to new uploads and jobs, also to those of keys that replace this one by rotation. Running jobs continue.
    """
    from tunefarm.client.keys import KeyLimits

    limits = KeyLimits(
        bytes=max_bytes,
        open_jobs=max_open_jobs,
        device_minutes=max_device_minutes,
        priority=max_priority,
    )
    with server.connect() as client:
        key = client.keys.limit(key_id, limits)
    out.result(key.raw, f"{key.id} ({key.name}): {_limits(key.limits)}")


@command(app, "rotate")
def rotate_key(
    out: Output,
    server: Server,
    key_id: KeyId,
    overlap: Annotated[
        str,
        typer.Option("--overlap", metavar="TIME", help="How long the old key stays valid: 7d, 12h, 0m."),
    ] = "7d",
    output: KeyFile = None,
) -> None:
    """Create a key with the same name, rights and validity as another; the old key ends after the overlap."""
    overlap_sec = _seconds(overlap)
    _show_new(out, server, output, lambda client: client.keys.rotate(key_id, overlap_sec=overlap_sec))


def _show_new(
    out: Output, server: Server, output: Path | None, create: Callable[[Client], NewApiKey]
) -> None:
    with server.connect() as client:
        # The file first: a key that cannot be stored would be valid, but lost.
        descriptor = None if output is None else os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            new_key = create(client)
        except BaseException:
            if output is not None and descriptor is not None:
                os.close(descriptor)
                output.unlink()
            raise
    if output is not None and descriptor is not None:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(new_key.key + "\n")
    if out.json:
        out.data({**new_key.raw, **({} if output is None else {"key": None, "output": str(output)})})
        return
    out.note(f"key {new_key.id} for {new_key.name}: {', '.join(new_key.scopes)}")
    out.text(new_key.key if output is None else str(output))


@command(app, "list")
def list_keys(out: Output, server: Server) -> None:
    """List the API keys, including revoked ones."""
    with server.connect() as client:
        keys = client.keys.list()
    out.items(
        keys,
        {
            "key": lambda key: key.id,
            "name": lambda key: key.name,
            "scopes": lambda key: ", ".join(key.scopes),
            "created": lambda key: quantities.local_time(key.created_at),
            "last used": lambda key: quantities.local_time(key.last_used_at),
            "expires": lambda key: quantities.local_time(key.expires_at),
            "revoked": lambda key: quantities.local_time(key.revoked_at),
            "limits": lambda key: _limits(key.limits),
        },
    )


@command(app, "revoke")
def revoke_key(
    out: Output,
    server: Server,
    key_id: KeyId,
) -> None:
    """Revoke an API key. The last key with the scope admin cannot be revoked."""
    with server.connect() as client:
        key = client.keys.revoke(key_id)
    out.result(key.raw, f"{key.id} ({key.name}) is revoked")


def _limits(limits: KeyLimits) -> str:
    words = {
        "bytes": None if limits.bytes is None else quantities.size(limits.bytes),
        "open jobs": limits.open_jobs,
        "minutes of search in 30 days": limits.device_minutes,
        "priority": limits.priority,
    }
    return ", ".join(f"{name} {value}" for name, value in words.items() if value is not None) or "no limits"


def _seconds(text: str) -> float:
    match = _TIME.fullmatch(text)
    if match is None:
        raise InvalidInputError(
            f"{text!r} is not a duration: give minutes, hours or days, like 30m, 12h or 90d",
            code="invalid-time",
        )
    seconds = float(match[1]) * _UNITS[match[2]]
    if seconds > _MAX_DAYS * _UNITS["d"]:
        raise InvalidInputError(
            f"{text!r} is too long: a key is valid for {_MAX_DAYS}d at most", code="invalid-time"
        )
    return seconds
