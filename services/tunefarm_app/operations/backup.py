"""Backup: the database and the store's files in one file, taken while the farm runs.

The file is a tar archive: ``manifest.json``, ``database.jsonl.gz`` (`tunefarm_db.dump`), then ``store/<sha256>`` for every
model, artifact and kernel's source that the database knew at that moment. No API key is in it, only the hashes that the database has.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, BinaryIO, cast

import structlog

from tunefarm_app.storage.blob_store import BlobStore
from tunefarm_db import schema
from tunefarm_db.dump import dump
from tunefarm_db.engine import make_engine, parse_url
from tunefarm_db.values import ModelState
from tunefarm_tuning.core.errors import InvalidInputError, NotFoundError

log = structlog.stdlib.get_logger(__name__)

FORMAT = 1
MANIFEST = "manifest.json"
DATABASE = "database.jsonl.gz"
STORE = "store/"
_USELESS = (ModelState.FAILED.value, ModelState.DELETED.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup:
    """What a backup holds.

    Attributes:
        rows: Of the database.
        blobs: SHA-256 of each model, artifact and kernel's source in it.
        missing: Those that were deleted while it was made, or that the store had lost before.
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
    """Write a backup to `path`, which must not exist: whole, or not at all. Readable for its owner alone.

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
        for left in (staged, part):
            left.unlink(missing_ok=True)
    log.info("backed up", rows=rows, blobs=len(blobs), missing=len(backup.missing))
    return backup


def _dump(database_url: str, path: Path) -> tuple[int, set[str]]:
    """Write the database's lines; return how many rows, and the blobs that its models, artifacts and sources need."""
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
                elif table in ("models", "artifacts", "kernel_sources"):
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
    """Return what a backup says it holds.

    Raises:
        InvalidInputError: ``bad-backup``.
    """
    try:
        said = json.loads(data)
        if said.pop("format") != FORMAT:
            raise InvalidInputError(
                "the backup was made by a newer tunefarm: use that one", code="bad-backup"
            )
        return Backup(**{**said, "blobs": tuple(said["blobs"]), "missing": tuple(said["missing"])})
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InvalidInputError("this is no backup of tunefarm's", code="bad-backup") from error
