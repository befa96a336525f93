"""``tunefarm keys``: create, list and revoke API keys."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from tunefarm.cli.base.commands import command, group
from tunefarm.cli.base.connect import Server
from tunefarm.cli.base.output import Output
from tunefarm_text import quantities

app = group("keys", "Create, list and revoke API keys. Needs a key with the scope admin.")


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
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write the key to a new file that only you can read."
        ),
    ] = None,
) -> None:
    """Create an API key. It is shown only now: the server keeps a hash."""
    with server.connect() as client:
        # The file first: a key that cannot be stored would be valid, but lost.
        descriptor = None if output is None else os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            new_key = client.keys.create(name, scopes=scopes)
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
            "made": lambda key: quantities.local_time(key.created_at),
            "last used": lambda key: quantities.local_time(key.last_used_at),
            "revoked": lambda key: quantities.local_time(key.revoked_at),
        },
    )


@command(app, "revoke")
def revoke_key(
    out: Output,
    server: Server,
    key_id: Annotated[str, typer.Argument(metavar="KEY_ID", help="The key's id, as `keys list` shows it.")],
) -> None:
    """Revoke an API key. The last key with the scope admin cannot be revoked."""
    with server.connect() as client:
        key = client.keys.revoke(key_id)
    out.result(key.raw, f"{key.id} ({key.name}) is revoked")
