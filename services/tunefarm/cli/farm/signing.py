"""``tunefarm signing``: the key that a farm signs its results with, and the public keys that they are verified with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tunefarm.cli.base.commands import command, group
from tunefarm.cli.base.connect import Server
from tunefarm.cli.base.output import Output
from tunefarm_text import quantities

KeyFile = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        envvar="TUNEFARM_SIGNING_KEY",
        help="File of the farm's key; its public keys are in FILE.pub beside it.",
    ),
]

app = group(
    "signing", "Create and replace the key that a farm signs its artifacts with; list the public keys."
)


@command(app, "create")
def create_key(out: Output, file: KeyFile) -> None:
    """Create a farm's signing key on this machine.

    Workers need FILE, the API only FILE.pub; set TUNEFARM_SIGNING_KEY=FILE for both. `tunefarm serve` makes its own key.
    """
    from tunefarm_app.identity.signing import create_signing_key

    _tell(out, file, create_signing_key(file))


@command(app, "rotate")
def rotate_key(out: Output, file: KeyFile) -> None:
    """Replace a farm's signing key by a new one, on this machine. Its former public key stays in FILE.pub, for what it signed.

    Workers take the new key for their next artifact. Those who verify artifacts need the new public key: `tunefarm signing list --output`.
    """
    from tunefarm_app.identity.signing import rotate_signing_key

    _tell(out, file, rotate_signing_key(file))


@command(app, "list")
def list_keys(
    out: Output,
    server: Server,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write the keys to a file, for `tunefarm verify --key FILE`, `tunefarm run --verify-key FILE` and "
            "TUNEFARM_VERIFY_KEY.",
        ),
    ] = None,
) -> None:
    """List the public keys that a server's artifacts are verified with: the current one, then former ones.

    Do this once, over a connection that you trust, and keep the file: anyone who can change the server's answer can give you other keys.
    """
    with server.connect() as client:
        if output is not None:
            client.signing.save(output)
        keys = client.signing.list()
    if output is not None:
        out.result({"output": str(output), "keys": [key.raw for key in keys]}, str(output))
        return
    out.items(
        keys,
        {
            "id": lambda key: key.id,
            "current": lambda key: "yes" if key.is_current else quantities.NONE,
            "public key": lambda key: "".join(key.public_key.splitlines()[1:-1]),
        },
    )


def _tell(out: Output, file: Path, key_id: str) -> None:
    from tunefarm_app.identity.signing import public_path

    public = public_path(file)
    if out.json:
        out.data({"id": key_id, "key": str(file), "public_keys": str(public)})
        return
    out.text(f"{file}: key {key_id[:16]}, for workers only")
    out.text(f"{public}: its public keys, for everybody")
