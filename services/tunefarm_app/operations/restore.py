"""Restore: a backup becomes a farm again, which goes on with its unfinished jobs by itself.

Steps that somebody held when the backup was made are taken back once their leases are over; devices register anew.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import structlog

from tunefarm_app.operations.backup import DATABASE, MANIFEST, STORE, Backup, read_manifest
from tunefarm_app.storage.blob_store import BlobStore
from tunefarm_db.dump import load
from tunefarm_tuning.core.errors import InvalidInputError

log = structlog.stdlib.get_logger(__name__)

_CHUNK_BYTES = 1 << 20
_MANIFEST_BYTES = 64 << 20


def check_backup(path: Path) -> Backup:
    """Read the whole file, and make sure that everything is in it and undamaged; changes nothing.

    Raises:
        InvalidInputError: ``bad-backup``.
    """
    with _opened(path) as archive:
        backup = _manifest(archive)
        _lines_counted(_member(archive, DATABASE))
        for sha256 in backup.blobs:
            digest = hashlib.sha256()
            for chunk in _chunks(_member(archive, STORE + sha256)):
                digest.update(chunk)
            if digest.hexdigest() != sha256:
                raise InvalidInputError(f"the backup's blob {sha256} is damaged", code="bad-backup")
    return backup


def restore(path: Path, *, database_url: str, store: BlobStore, replace: bool = False) -> Backup:
    """Bring database and store back to what they were; checks the whole file before it changes anything.

    Args:
        path: The backup.
        database_url: Where its database goes, all of it in one transaction. No farm may run on it.
        store: Where its models and artifacts go. What else is there stays, and is swept in time.
        replace: Whether a database that is not empty may be replaced.

    Raises:
        InvalidInputError: ``bad-backup``.
        ConflictError: ``not-empty``, ``in-use``.
        TransientError: If the database or the store is away.
    """
    backup = check_backup(path)
    with _opened(path) as archive:
        # The store first: what is there too early is swept, what is there too late would be missed.
        for sha256 in backup.blobs:
            store.put(_chunks(_member(archive, STORE + sha256)))
        with gzip.open(_member(archive, DATABASE), "rt", encoding="utf-8") as lines:
            load(database_url, lines, revision=backup.schema, replace=replace)
    log.info("restored", rows=backup.rows, blobs=len(backup.blobs), created_at=backup.created_at)
    return backup


@contextmanager
def _opened(path: Path) -> Iterator[tarfile.TarFile]:
    try:
        with tarfile.open(path, mode="r:") as archive:
            yield archive
    except (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error, UnicodeDecodeError) as error:
        raise InvalidInputError(
            f"{path} is no backup of tunefarm's, or is damaged: {error}", code="bad-backup"
        ) from error


def _manifest(archive: tarfile.TarFile) -> Backup:
    first = archive.next()
    if first is None or first.name != MANIFEST or first.size > _MANIFEST_BYTES:
        raise InvalidInputError("this is no backup of tunefarm's", code="bad-backup")
    return read_manifest(_member(archive, MANIFEST).read())


def _member(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    try:
        found = archive.extractfile(name)
    except KeyError:
        found = None
    if found is None:
        raise InvalidInputError(f"the backup ends before {name}", code="bad-backup")
    return found


def _chunks(file: IO[bytes]) -> Iterator[bytes]:
    return iter(lambda: file.read(_CHUNK_BYTES), b"")


def _lines_counted(file: IO[bytes]) -> int:
    """Unpack all of it: gzip's checksum stands at the end."""
    with gzip.open(file) as packed:
        return sum(chunk.count(b"\n") for chunk in _chunks(io.BufferedReader(packed)))
