"""``tunefarm backup`` and ``tunefarm restore``: a farm's data in one file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tunefarm.cli.base.connect import Home
from tunefarm.cli.base.output import Output, without_log
from tunefarm.cli.farm.database import DatabaseUrl
from tunefarm_text import quantities
from tunefarm_tuning.core.errors import InvalidInputError

if TYPE_CHECKING:
    from tunefarm_app.identity.signing import SigningKey
    from tunefarm_app.storage.blob_store import BlobStore

StoreDir = Annotated[
    Path | None,
    typer.Option(
        "--store-dir",
        envvar="TUNEFARM_STORE_DIR",
        metavar="DIR",
        help="Folder of models and artifacts; by default, that of the farm on this machine.",
    ),
]

_RECIPIENT_VARIABLE = "TUNEFARM_BACKUP_RECIPIENT"


def back_up(
    out: Output,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The backup's path. Must not exist.")],
    database_url: DatabaseUrl = None,
    store_dir: StoreDir = None,
    home: Home = None,
    signing_key: Annotated[
        Path | None,
        typer.Option(
            "--signing-key",
            envvar="TUNEFARM_SIGNING_KEY",
            metavar="FILE",
            help="File of the key to sign the backup with; by default, that of the farm on this machine.",
        ),
    ] = None,
    recipient: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY",
            envvar=_RECIPIENT_VARIABLE,
            help="Encrypt the backup for this public key (age1… or ssh-ed25519 …), or for the keys in a file. May be repeated; "
            "the variable has a key per line.",
        ),
    ] = None,
) -> None:
    """Write a farm's database, models and artifacts to one file. The farm may be running.

    The copy of the database (SQLite or PostgreSQL) is consistent. It holds API keys as hashes only, and no signing key: copy that key's
    file too. Only you can read the backup: keep it as safe as the farm, or encrypt it (--recipient) for a key that is kept elsewhere.
    """
    from tunefarm_app.operations.backup import back_up as write
    from tunefarm_app.operations.encryption import read_recipients

    with without_log():
        recipients = read_recipients(_whole_lines(recipient or []))
        url, store = _places(database_url, store_dir, home)
        key = _signing_key(signing_key, database_url, home)
        manifest = write(url, store, file, key=key, recipients=recipients)
    size_bytes = file.stat().st_size
    if out.json:
        signed_by = None if key is None else key.id
        out.data(
            {
                "backup": str(file),
                "size_bytes": size_bytes,
                "signed_by": signed_by,
                "recipients": len(recipients),
                **manifest.to_json(),
            }
        )
        return
    signed = "not signed" if key is None else f"signed by the key {key.id[:16]}"
    signed += (
        f", encrypted for {quantities.plural(len(recipients), 'key')}" if recipients else ", not encrypted"
    )
    out.text(
        f"{file}  {quantities.size(size_bytes)}: {manifest.rows:,} rows, {len(manifest.blobs)} models and artifacts, {signed}"
    )
    if manifest.missing:
        out.warning(
            f"{len(manifest.missing)} models or artifacts are missing in the store, so the backup lacks them"
        )


def restore(
    out: Output,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", exists=True, dir_okay=False, help="File that `tunefarm backup` wrote."
        ),
    ],
    database_url: DatabaseUrl = None,
    store_dir: StoreDir = None,
    home: Home = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace the database even if it is not empty.")
    ] = False,
    verify_key: Annotated[
        Path | None,
        typer.Option(
            "--verify-key",
            envvar="TUNEFARM_VERIFY_KEY",
            metavar="FILE",
            help="File of the public keys that you trust: restore nothing unless one of them signed the backup.",
        ),
    ] = None,
    identity: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            envvar="TUNEFARM_BACKUP_IDENTITY",
            help="File of the secret key that decrypts the backup: of age-keygen, or an SSH key without a passphrase.",
        ),
    ] = None,
    keep_keys: Annotated[
        bool,
        typer.Option(
            "--keep-keys",
            help="Keep the backup's API keys and device credentials valid, including those that were revoked after the backup was made.",
        ),
    ] = False,
) -> None:
    """Restore a farm from a backup: on this machine (--home), or into a given database and store.

    Stop the farm first. The command checks the whole file, then replaces the database in one transaction: an error
    changes nothing. A backup of SQLite can be restored to PostgreSQL, and the reverse. A backup of an older version is
    upgraded. Start the farm afterwards: unfinished jobs continue.

    The backup's API keys and credentials of devices are revoked, unless you say --keep-keys: the farm makes a new first key
    (`--key-file` of the API; `tunefarm serve` does so by itself), and devices are enrolled again.
    """
    from tunefarm_app.operations.backup import restore as read

    with without_log(), _alone(database_url, home):
        url, store = _places(database_url, store_dir, home)
        manifest = read(
            file,
            database_url=url,
            store=store,
            replace=replace,
            key_file=verify_key,
            keep_keys=keep_keys,
            identity=identity,
        )
    if out.json:
        checks = {"verified": verify_key is not None, "keys_kept": keep_keys}
        out.data({"restored": str(file), **checks, **manifest.to_json()})
        return
    out.text(
        f"restored as of {quantities.local_time(manifest.created_at)}: {manifest.rows:,} rows, {len(manifest.blobs)} models and artifacts"
    )
    if manifest.missing:
        out.warning(f"{len(manifest.missing)} models or artifacts are missing in the backup")
    if verify_key is None:
        out.note("it is not verified who made the backup: --verify-key FILE checks that")
    if not keep_keys:
        out.note("its API keys and device credentials are revoked (--keep-keys keeps them valid)")


def _whole_lines(recipients: list[str]) -> list[str]:
    """Return the recipients; those of the environment by lines, as typer splits a variable at spaces, which SSH's keys have."""
    variable = os.environ.get(_RECIPIENT_VARIABLE, "")
    if recipients != variable.split():
        return recipients
    return [line.strip() for line in variable.splitlines() if line.strip()]


def _signing_key(path: Path | None, database_url: str | None, home: Path | None) -> SigningKey | None:
    """Return the key that was named, or that of the farm in its folder; None if that farm has none."""
    from tunefarm.embedded.home import FarmHome
    from tunefarm_app.identity.signing import SigningKey

    if path is None and database_url is None:
        own = FarmHome(home).signing_key
        path = own if own.exists() else None
    return None if path is None else SigningKey.read(path)


def _places(database_url: str | None, store_dir: Path | None, home: Path | None) -> tuple[str, BlobStore]:
    from tunefarm_app.storage.blob_store import BlobStore

    if (database_url is None) != (store_dir is None):
        raise InvalidInputError(
            "give both --database-url and --store-dir, or neither",
            code="bad-arguments",
        )
    if database_url is not None and store_dir is not None:
        return database_url, BlobStore(store_dir)
    from tunefarm.embedded.home import FarmHome

    farm = FarmHome(home)
    return farm.database_url, BlobStore(farm.store_dir)


@contextmanager
def _alone(database_url: str | None, home: Path | None) -> Iterator[None]:
    """Prevent a farm from starting in the folder during the block.

    Raises:
        ConflictError: ``farm-running``.
    """
    if database_url is not None:
        yield
        return
    from tunefarm.embedded.home import FarmHome

    mask = os.umask(0o077)  # as the farm itself would write
    try:
        farm = FarmHome(home)
        farm.prepare()
        lock = farm.lock()
        try:
            yield
        finally:
            os.close(lock)
    finally:
        os.umask(mask)
