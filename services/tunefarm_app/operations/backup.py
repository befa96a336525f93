"""Backup and restore: the database and the store's files in one file.

The file is a tar archive: ``manifest.json``, ``database.jsonl.gz`` (`tunefarm_db.dump`), then ``store/<sha256>`` for every
model, artifact, kernel source and file of samples that the database knew at that moment. It holds API keys as hashes only. If the farm
has a signing key, ``manifest.intoto.jsonl`` is a signed statement about manifest and database; the manifest has the SHA-256 of every file
of the store. With recipients, the whole is encrypted (`encryption`). A backup is taken while the farm runs. A restored farm continues its unfinished jobs: steps that were leased at the time are taken
back when their leases expire, and devices register again.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
import tempfile
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any, cast

import structlog

from tunefarm_app.identity.signing import SigningKey
from tunefarm_app.identity.statements import backup_statement
from tunefarm_app.operations.archive_members import add_bytes, add_file, member
from tunefarm_app.operations.backup_file import backup_file, exists
from tunefarm_app.operations.encryption import Recipient, encrypting, opened
from tunefarm_app.storage.blob_store import BlobStore
from tunefarm_db import schema
from tunefarm_db.dump import dump, load
from tunefarm_db.engine import make_engine, parse_url
from tunefarm_db.unit_of_work import UnitOfWork
from tunefarm_db.values import AuditAction, ModelState
from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.provenance.envelope import MAX_ENVELOPE_BYTES, open_envelope, read_public_keys
from tunefarm_tuning.provenance.statement import BACKUP, read_statement

log = structlog.stdlib.get_logger(__name__)

FORMAT = 1
MANIFEST = "manifest.json"
ENVELOPE = "manifest.intoto.jsonl"
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


def back_up(
    database_url: str,
    store: BlobStore,
    path: Path,
    *,
    key: SigningKey | None = None,
    recipients: Sequence[Recipient] = (),
) -> Backup:
    """Write a backup to `path`, which must not exist. An incomplete file is removed. Only its owner can read it.

    Of several backups to the same path at once, the first that is complete gets it.

    Args:
        database_url: The farm's database.
        store: Its store.
        path: The backup.
        key: Signs the backup; None to leave it unsigned.
        recipients: Who can read it; none to leave it in plain. What is in it is signed, not the encrypted file.

    Raises:
        FileExistsError: If the file exists.
        InvalidInputError: ``no-database`` if there is nothing to back up.
        ConflictError: ``schema-outdated``.
        TransientError: If the database is away.
    """
    if path.exists():
        raise exists(path)
    url = parse_url(database_url)
    if url.get_backend_name() == "sqlite" and not Path(url.database or "").is_file():
        raise InvalidInputError(f"{url.database}: there is no such database", code="no-database")
    # A plain database must not get to where an encrypted backup goes.
    folder = store.temporary_path().parent if recipients else path.parent
    with tempfile.TemporaryFile(dir=folder) as staged:
        rows, needed = _dump(database_url, staged)
        blobs = [sha256 for sha256 in sorted(needed) if store.has(sha256)]
        backup = Backup(
            tunefarm=version("tunefarm"),
            schema=schema.head(),
            created_at=time.time(),
            rows=rows,
            blobs=tuple(blobs),
            missing=tuple(sorted(needed - set(blobs))),
        )
        with (
            backup_file(path) as file,
            encrypting(file, recipients) if recipients else nullcontext(file) as target,
            tarfile.open(fileobj=target, mode="w|") as archive,
        ):
            _add_head(archive, backup, staged, key)
            for sha256 in blobs:
                with store.open(sha256) as blob_file:
                    add_file(archive, STORE + sha256, blob_file)
    log.info("backed up", rows=rows, blobs=len(blobs), missing=len(backup.missing))
    return backup


_WITH_BLOBS = frozenset(
    {"models", "artifacts", "drafts", "kernel_sources", "sample_files", "quantised_models"}
)
"""Tables whose rows name a blob."""


def _add_head(archive: tarfile.TarFile, backup: Backup, staged: IO[bytes], key: SigningKey | None) -> None:
    """Add the manifest, what is signed of it, and the database."""
    manifest = json.dumps(backup.to_json()).encode()
    add_bytes(archive, MANIFEST, manifest)
    if key is not None:
        staged.seek(0)
        digests = {MANIFEST: hashlib.sha256(manifest).hexdigest(), DATABASE: _Hashed(staged).sha256}
        add_bytes(archive, ENVELOPE, key.sign(backup_statement(digests, backup.created_at)).encode())
    add_file(archive, DATABASE, staged)


def _dump(database_url: str, file: IO[bytes]) -> tuple[int, set[str]]:
    """Write the database's lines; return how many rows, and the blobs that its models, artifacts, sources and samples need."""
    engine = make_engine(database_url)
    rows, needed = 0, set()
    table, columns = "", list[str]()
    try:
        with gzip.GzipFile(fileobj=file, mode="wb", compresslevel=5) as packed:
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


def read_manifest(data: bytes) -> Backup:
    """Return the contents that a backup's manifest lists.

    Raises:
        InvalidInputError: ``bad-backup``.
    """
    try:
        manifest = json.loads(data)
        if manifest.pop("format") != FORMAT:
            raise InvalidInputError(
                "the backup is from a newer version of tunefarm: restore it with that version",
                code="bad-backup",
            )
        names = {name: tuple(manifest[name]) for name in ("blobs", "missing")}
        if not all(isinstance(name, str) for of_kind in names.values() for name in of_kind):
            raise ValueError("a blob has no name")
        return Backup(**{**manifest, **names})
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError("this is not a backup of tunefarm", code="bad-backup") from error


def check_backup(path: Path, *, key_file: Path | None = None, identity: Path | None = None) -> Backup:
    """Read the whole file, and check that it is complete and undamaged; changes nothing.

    Args:
        path: The backup.
        key_file: File of public keys, one of which has to have signed it; None to accept any backup.
        identity: File of the secret key that decrypts it; None if it is not encrypted.

    Raises:
        InvalidInputError: ``bad-backup``; with `key_file` as `read_public_keys`, `open_envelope` and `read_statement`, ``no-envelope``,
            and ``wrong-subject`` if the statement is another backup's; as `encryption.opened`.
    """
    with _opened(path, identity, Path(tempfile.gettempdir())) as archive:
        return _checked(archive, path, key_file).backup


@dataclass(frozen=True, slots=True, kw_only=True)
class _CheckedBackup:
    backup: Backup
    database_sha256: str


def _checked(archive: tarfile.TarFile, path: Path, key_file: Path | None) -> _CheckedBackup:
    manifest = _manifest(archive)
    packed_sha256 = _Hashed(member(archive, DATABASE)).sha256
    if key_file is not None:  # before anything is unpacked that a stranger may have written
        digests = {MANIFEST: hashlib.sha256(manifest).hexdigest(), DATABASE: packed_sha256}
        _verify(archive, path, key_file, digests)
    backup = read_manifest(manifest)
    database = _Hashed(member(archive, DATABASE))
    _lines_counted(database)
    if database.sha256 != packed_sha256:
        raise _changed(path)
    for sha256 in backup.blobs:
        digest = hashlib.sha256()
        for chunk in _chunks(member(archive, STORE + sha256)):
            digest.update(chunk)
        if digest.hexdigest() != sha256:
            raise InvalidInputError(f"the backup's blob {sha256} is damaged", code="bad-backup")
    return _CheckedBackup(backup=backup, database_sha256=database.sha256)


def _verify(archive: tarfile.TarFile, path: Path, key_file: Path, digests: Mapping[str, str]) -> None:
    keys, named = read_public_keys(key_file), f"{path}: {ENVELOPE}"
    if ENVELOPE not in archive.getnames():
        raise InvalidInputError(
            f"{path} is not verified: it has no signature. Its farm had no signing key, or it was made by an older version. Without "
            "--verify-key it is restored unverified",
            code="no-envelope",
        )
    data = member(archive, ENVELOPE).read(MAX_ENVELOPE_BYTES + 1)
    signed = open_envelope(data, keys, named=named, keys_named=str(key_file))
    if dict(read_statement(signed, predicate_type=BACKUP, named=named).subjects) != digests:
        raise InvalidInputError(
            f"{named} is signed, but the signature belongs to another backup: manifest or database were replaced",
            code="wrong-subject",
        )


class _Hashed:
    """Reads a file, and hashes what was read."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._digest = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self._digest.update(data)
        return data

    @property
    def sha256(self) -> str:
        """Of the whole file: what was not asked for is read now."""
        for _ in _chunks(cast("IO[bytes]", self)):
            pass
        return self._digest.hexdigest()


def restore(
    path: Path,
    *,
    database_url: str,
    store: BlobStore,
    replace: bool = False,
    key_file: Path | None = None,
    keep_keys: bool = False,
    identity: Path | None = None,
) -> Backup:
    """Restore database and store from a backup; checks the whole file before it changes anything.

    What is restored is what was checked, even if somebody changes the file meanwhile.

    Args:
        path: The backup.
        database_url: The database to fill, in one transaction. No farm may run on it.
        store: The store for its models and artifacts. Other files in it stay, and are swept later.
        replace: Whether a database that is not empty may be replaced.
        key_file: As `check_backup`.
        keep_keys: Whether the backup's API keys stay valid, with the credentials of devices and what else acts for a key. Otherwise
            they are revoked: a backup may bring back keys that were revoked after it was made, or bring one that never was.
        identity: As `check_backup`. The decrypted file has no name, and lies in the store's folder meanwhile.

    Raises:
        InvalidInputError: As `check_backup`.
        ConflictError: ``not-empty``, ``in-use``.
        TransientError: If the database or the store is away.
    """
    with _opened(path, identity, store.temporary_path().parent) as archive:
        checked = _checked(archive, path, key_file)
        backup = checked.backup
        # The store first: a blob without a row is swept later, a row without its blob would be an error.
        for sha256 in backup.blobs:
            if store.put(_chunks(member(archive, STORE + sha256))).sha256 != sha256:
                raise _changed(path)
        lines = _database_lines(archive, path, checked.database_sha256)
        load(database_url, lines, revision=backup.schema, replace=replace, keep_keys=keep_keys)
    _note_restore(database_url, backup, keep_keys=keep_keys)
    log.info("restored", rows=backup.rows, blobs=len(backup.blobs), created_at=backup.created_at)
    return backup


def _database_lines(archive: tarfile.TarFile, path: Path, sha256: str) -> Iterator[str]:
    """Yield the database's lines; raise at their end, before anything is committed, if they are not those that were checked."""
    file = _Hashed(member(archive, DATABASE))
    with gzip.open(cast("IO[bytes]", file), "rt", encoding="utf-8") as lines:
        yield from cast("IO[str]", lines)
    if file.sha256 != sha256:
        raise _changed(path)


def _changed(path: Path) -> InvalidInputError:
    return InvalidInputError(f"{path} was changed while it was restored: restore it again", code="bad-backup")


def _note_restore(database_url: str, backup: Backup, *, keep_keys: bool) -> None:
    """Note in the restored audit log that it goes back to an earlier time."""
    engine = make_engine(database_url)
    try:
        with UnitOfWork(engine).write() as repos:
            repos.audit.note(
                AuditAction.RESTORED, created_at=backup.created_at, rows=backup.rows, keys_kept=keep_keys
            )
    finally:
        engine.dispose()


@contextmanager
def _opened(path: Path, identity: Path | None, folder: Path) -> Iterator[tarfile.TarFile]:
    try:
        with opened(path, identity, folder) as file, tarfile.open(fileobj=file, mode="r:") as archive:
            yield archive
    except (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error, UnicodeDecodeError) as error:
        raise InvalidInputError(
            f"{path} is damaged or not a backup of tunefarm: {error}", code="bad-backup"
        ) from error


def _manifest(archive: tarfile.TarFile) -> bytes:
    first = archive.next()
    if first is None or first.name != MANIFEST or first.size > _MANIFEST_BYTES:
        raise InvalidInputError("this is not a backup of tunefarm", code="bad-backup")
    return member(archive, MANIFEST).read(_MANIFEST_BYTES)


def _chunks(file: IO[bytes]) -> Iterator[bytes]:
    return iter(lambda: file.read(_CHUNK_BYTES), b"")


def _lines_counted(file: _Hashed) -> int:
    """Unpack the file to its end, where gzip's checksum is."""
    with gzip.open(cast("IO[bytes]", file)) as packed:
        return sum(chunk.count(b"\n") for chunk in _chunks(io.BufferedReader(packed)))
