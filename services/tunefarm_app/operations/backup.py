"""Backup and restore: the database and the store's files in one file.

The file is a tar archive: ``manifest.json``, ``database.jsonl.gz`` (`tunefarm_db.dump`), then ``store/<sha256>`` for every
model, artifact, kernel source and file of samples that the database knew at that moment. It holds API keys as hashes only. A backup is
taken while the farm runs. A restored farm continues its unfinished jobs: steps that were leased at the time are taken
back when their leases expire, and devices register again.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import tarfile
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

import structlog

from tunefarm_app.storage.blob_store import BlobStore
from tunefarm_db import schema
from tunefarm_db.dump import dump, load
from tunefarm_db.engine import make_engine, parse_url
from tunefarm_db.unit_of_work import UnitOfWork
from tunefarm_db.values import AuditAction, ModelState
from tunefarm_tuning.core.errors import InvalidInputError, NotFoundError

log = structlog.stdlib.get_logger(__name__)

FORMAT = 1
MANIFEST = "manifest.json"
DATABASE = "database.jsonl.gz"
STORE = "store/"
_CHUNK_BYTES = 1 << 20
_MANIFEST_BYTES = 64 << 20
_USELESS = (ModelState.FAILED.value, ModelState.DELETED.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup:
    """The contents of a backup.

    Attributes:
        rows: Number of rows of the database.
        blobs: SHA-256 of each model, artifact, kernel's source and file of samples in it.
        missing: Blobs that were deleted during the backup, or that the store had lost before.
    """

    tunefarm: str
    schema: str
    created_at: float
    rows: int
    blobs: tuple[str, ...]
    missing: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return {"format": FORMAT, **{name: getattr(self, name) for name in self.__slots__}}


def back_up(database_url: str, store: BlobStore, path: Path) -> Backup:
    """Write a backup to `path`, which must not exist. An incomplete file is removed. Only its owner can read it.

    Raises:
        FileExistsError: If the file exists.
        InvalidInputError: ``no-database`` if there is nothing to back up.
        ConflictError: ``schema-outdated``.
        TransientError: If the database is away.
    """
    if path.exists():
        raise FileExistsError(17, "exists already", str(path))
    url = parse_url(database_url)
    if url.get_backend_name() == "sqlite" and not Path(url.database or "").is_file():
        raise InvalidInputError(f"{url.database}: there is no such database", code="no-database")
    staged, part = path.with_name(f".{path.name}.database"), path.with_name(f".{path.name}.part")
    try:
        rows, needed = _dump(database_url, staged)
        blobs = {sha256: blob for sha256 in sorted(needed) if (blob := _blob_of(store, sha256)) is not None}
        backup = Backup(
            tunefarm=version("tunefarm"),
            schema=schema.head(),
            created_at=time.time(),
            rows=rows,
            blobs=tuple(blobs),
            missing=tuple(sorted(needed - blobs.keys())),
        )
        with _new_file(part) as file:
            with tarfile.open(fileobj=file, mode="w") as archive:
                manifest = json.dumps(backup.to_json()).encode()
                entry = tarfile.TarInfo(MANIFEST)
                entry.size = len(manifest)
                archive.addfile(entry, io.BytesIO(manifest))
                _add(archive, DATABASE, staged)
                for sha256, source in blobs.items():
                    _add(archive, STORE + sha256, source)
            file.flush()
            os.fsync(file.fileno())
        part.rename(path)
    finally:
        for leftover in (staged, part):
            leftover.unlink(missing_ok=True)
    log.info("backed up", rows=rows, blobs=len(blobs), missing=len(backup.missing))
    return backup


_WITH_BLOBS = frozenset(
    {"models", "artifacts", "drafts", "kernel_sources", "sample_files", "quantised_models"}
)
"""Tables whose rows name a blob."""


def _dump(database_url: str, path: Path) -> tuple[int, set[str]]:
    """Write the database's lines; return how many rows, and the blobs that its models, artifacts, sources and samples need."""
    engine = make_engine(database_url)
    rows, needed = 0, set()
    table, columns = "", list[str]()
    try:
        with _new_file(path) as file, gzip.GzipFile(fileobj=file, mode="wb", compresslevel=5) as packed:
            for line in dump(engine):
                packed.write(line.encode())
                if line.startswith('{"table"'):
                    head = json.loads(line)
                    table, columns = head["table"], head["columns"]
                elif line.startswith('{"rows"'):
                    rows = json.loads(line)["rows"]
                elif table in _WITH_BLOBS:
                    row = dict(zip(columns, json.loads(line), strict=True))
                    if row["sha256"] is not None and row.get("state") not in _USELESS:
                        needed.add(row["sha256"])
    finally:
        engine.dispose()
    return rows, needed


def _new_file(path: Path) -> BinaryIO:
    flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    return cast("BinaryIO", os.fdopen(os.open(path, flags, 0o600), "w+b"))


def _blob_of(store: BlobStore, sha256: str) -> Path | None:
    try:
        return store.path(sha256)
    except NotFoundError:
        return None


def _add(archive: tarfile.TarFile, name: str, path: Path) -> None:
    with path.open("rb") as file:
        entry = tarfile.TarInfo(name)
        entry.size = os.fstat(file.fileno()).st_size
        archive.addfile(entry, file)


def read_manifest(data: bytes) -> Backup:
    """Return the contents that a backup's manifest lists.

    Raises:
        InvalidInputError: ``bad-backup``.
    """
    try:
        manifest = json.loads(data)
        if manifest.pop("format") != FORMAT:
            raise InvalidInputError(
                "the backup is from a newer version of tunefarm: use that version", code="bad-backup"
            )
        return Backup(
            **{**manifest, "blobs": tuple(manifest["blobs"]), "missing": tuple(manifest["missing"])}
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InvalidInputError("this is not a backup of tunefarm", code="bad-backup") from error


def check_backup(path: Path) -> Backup:
    """Read the whole file, and check that it is complete and undamaged; changes nothing.

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
    """Restore database and store from a backup; checks the whole file before it changes anything.

    Args:
        path: The backup.
        database_url: The database to fill, in one transaction. No farm may run on it.
        store: The store for its models and artifacts. Other files in it stay, and are swept later.
        replace: Whether a database that is not empty may be replaced.

    Raises:
        InvalidInputError: ``bad-backup``.
        ConflictError: ``not-empty``, ``in-use``.
        TransientError: If the database or the store is away.
    """
    backup = check_backup(path)
    with _opened(path) as archive:
        # The store first: a blob without a row is swept later, a row without its blob would be an error.
        for sha256 in backup.blobs:
            store.put(_chunks(_member(archive, STORE + sha256)))
        with gzip.open(_member(archive, DATABASE), "rt", encoding="utf-8") as lines:
            load(database_url, lines, revision=backup.schema, replace=replace)
    _note_restore(database_url, backup)
    log.info("restored", rows=backup.rows, blobs=len(backup.blobs), created_at=backup.created_at)
    return backup


def _note_restore(database_url: str, backup: Backup) -> None:
    """Note in the restored audit log that it goes back to an earlier time."""
    engine = make_engine(database_url)
    try:
        with UnitOfWork(engine).write() as repos:
            repos.audit.note(AuditAction.RESTORED, created_at=backup.created_at, rows=backup.rows)
    finally:
        engine.dispose()


@contextmanager
def _opened(path: Path) -> Iterator[tarfile.TarFile]:
    try:
        with tarfile.open(path, mode="r:") as archive:
            yield archive
    except (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error, UnicodeDecodeError) as error:
        raise InvalidInputError(
            f"{path} is damaged or not a backup of tunefarm: {error}", code="bad-backup"
        ) from error


def _manifest(archive: tarfile.TarFile) -> Backup:
    first = archive.next()
    if first is None or first.name != MANIFEST or first.size > _MANIFEST_BYTES:
        raise InvalidInputError("this is not a backup of tunefarm", code="bad-backup")
    return read_manifest(_member(archive, MANIFEST).read())


def _member(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    try:
        file = archive.extractfile(name)
    except KeyError:
        file = None
    if file is None:
        raise InvalidInputError(f"the backup ends before {name}", code="bad-backup")
    return file


def _chunks(file: IO[bytes]) -> Iterator[bytes]:
    return iter(lambda: file.read(_CHUNK_BYTES), b"")


def _lines_counted(file: IO[bytes]) -> int:
    """Unpack the file to its end, where gzip's checksum is."""
    with gzip.open(file) as packed:
        return sum(chunk.count(b"\n") for chunk in _chunks(io.BufferedReader(packed)))
