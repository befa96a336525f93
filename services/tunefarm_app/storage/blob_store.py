"""The content-addressed store: uploaded models and finished artifacts as files named by their SHA-256.

A blob appears whole or not at all: bytes go to a temporary file on the same file system, are hashed while they are
written, flushed to the disk, and renamed into place. So a blob's name never refers to an incomplete file, even if a process is killed.

Workers write to the store, and a worker may have been taken over: a link in it would have the API read, and hand out, files that the worker
itself cannot reach. So nothing below the store's folder is a link: neither a blob or staged file, nor a folder on the way to it.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from tunefarm_tuning.core.cancellation import Closing
from tunefarm_tuning.core.errors import InvalidInputError, NotFoundError, TransientError
from tunefarm_tuning.core.output_file import fsync_folder

_SHA256 = re.compile(r"[0-9a-f]{64}")
_CHUNK_BYTES = 1 << 20
_STAGED = ".upload"
_LEAST_ROOM_BYTES = 1 << 20
_NO_SUCH_FILE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO, errno.EINVAL})
"""What `_opened` fails with if the file is not there, or a link, a socket or something else is in its stead."""
HEAD_BYTES = 128
"""First bytes of a blob that are kept to recognise its file format."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBlob:
    """A blob that is flushed to the disk.

    Attributes:
        head: Its first bytes, at most `HEAD_BYTES`.
        created: False if the store held the same bytes already.
    """

    sha256: str
    size_bytes: int
    head: bytes
    created: bool


class BlobStore:
    """Blobs below one folder.

    Concurrency: any number of processes and threads; storing equal bytes twice at once is harmless.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._blobs = root / "sha256"
        self._temporary = root / "tmp"

    def writer(self, *, limit_bytes: int | None = None) -> BlobWriter:
        """Return a writer for one new blob; use it in a ``with``, and end with `BlobWriter.commit`.

        Raises:
            TransientError: ``store-full`` or ``store-unavailable`` if the disk refuses, here and later on.
        """
        return BlobWriter(self, limit_bytes)

    def put(self, chunks: Iterable[bytes], *, limit_bytes: int | None = None) -> StoredBlob:
        """Store the chunks as one blob, in constant memory.

        Raises:
            InvalidInputError: ``too-large`` if they exceed `limit_bytes`; nothing is left behind.
        """
        with self.writer(limit_bytes=limit_bytes) as writer:
            for chunk in chunks:
                writer.write(chunk)
            return writer.commit()

    def put_file(self, path: Path) -> StoredBlob:
        """Store a copy of the file."""
        with path.open("rb") as file:
            return self.put(iter(lambda: file.read(_CHUNK_BYTES), b""))

    def path(self, sha256: str) -> Path:
        """Return the blob's file. Read it, never change it; where another process may replace it meanwhile, use `open`.

        Raises:
            NotFoundError: If the store has no such blob.
        """
        self.open(sha256).close()
        return self.path_of(sha256)

    def open(self, sha256: str) -> BinaryIO:
        """Open the blob to read it. What is read is the blob that was opened, whatever becomes of its name meanwhile.

        Raises:
            NotFoundError: If the store has no such blob, or it, or a folder on the way to it, is a link.
            TransientError: ``store-unavailable`` if the disk, or the system, refuses.
        """
        path = self.path_of(sha256)
        try:
            descriptor = _opened(self._root, path.relative_to(self._root).parts)
        except OSError as error:
            if error.errno in _NO_SUCH_FILE:
                raise NotFoundError(f"the store has no blob {sha256}", code="blob-not-found") from error
            raise TransientError(
                f"the store cannot be read: {error.strerror}", code="store-unavailable"
            ) from error
        return os.fdopen(descriptor, "rb")

    def has(self, sha256: str) -> bool:
        """Return whether the store has the blob."""
        try:
            self.open(sha256).close()
        except NotFoundError:
            return False
        return True

    def path_of(self, sha256: str) -> Path:
        """Return the blob's path, whether or not it exists."""
        if not _SHA256.fullmatch(sha256):
            raise NotFoundError("not a SHA-256", code="blob-not-found")
        return self._blobs / sha256[:2] / sha256[2:4] / sha256

    def delete(self, sha256: str) -> bool:
        """Remove the blob; return whether there was one."""
        try:
            self.path_of(sha256).unlink()
        except FileNotFoundError:
            return False
        return True

    def is_older(self, sha256: str, age_sec: float) -> bool:
        """Return whether the blob was stored (or stored again) at least `age_sec` ago."""
        return _modified_at(self.path_of(sha256)) <= time.time() - age_sec

    def older_than(self, age_sec: float) -> Iterator[str]:
        """Yield the blobs that were stored (or stored again) at least `age_sec` ago."""
        limit = time.time() - age_sec
        for path in self._blobs.glob("??/??/*"):
            if _SHA256.fullmatch(path.name) and _modified_at(path) <= limit:
                yield path.name

    def used_bytes(self) -> int:
        """Return the size of all blobs together, by looking at each file."""
        return sum(_size_bytes(path) for path in self._blobs.glob("??/??/*"))

    def sweep(self, older_than_sec: float) -> int:
        """Remove temporary files of writers that were killed: not written to for `older_than_sec`; return how many."""
        limit = time.time() - older_than_sec
        swept = 0
        for path in self._temporary.glob("*.part"):
            if _modified_at(path) <= limit:
                path.unlink(missing_ok=True)
                swept += 1
        return swept

    def check(self) -> None:
        """Raise `TransientError` (``store-full``, ``store-unavailable``) unless the store can be written to now."""
        with self.writer() as probe:
            probe.write(b"probe")
            probe.flush()

    def could_write(self) -> bool:
        """Return whether the store could be written to, without writing: its folder is there, or can be made, and has some room."""
        folder = next(path for path in (self._temporary, *self._temporary.parents) if path.exists())
        try:
            disk = os.statvfs(folder)
        except OSError:
            return False
        may_write = folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)
        return may_write and disk.f_bavail * disk.f_frsize >= _LEAST_ROOM_BYTES

    def staged_path(self, name: str) -> Path:
        """Return the file of a blob that is received in parts; see `tunefarm_app.storage.staged_blob`."""
        return self._temporary / f"{name}{_STAGED}"

    def staged_older_than(self, age_sec: float) -> Iterator[str]:
        """Yield the names of staged files that were not written to for `age_sec`."""
        limit = time.time() - age_sec
        for path in self._temporary.glob(f"*{_STAGED}"):
            if _modified_at(path) <= limit:
                yield path.name.removesuffix(_STAGED)

    def take(self, file: Path, sha256: str) -> bool:
        """Rename a temporary file to its blob's name; return whether the blob is new.

        Raises:
            TransientError: ``store-full`` or ``store-unavailable`` if the disk refuses.
        """
        path = self.path_of(sha256)
        with disk_errors():
            path.parent.mkdir(parents=True, exist_ok=True)
            created = not self.has(sha256)
            # An existing blob is overwritten: that renews the time by which unreferenced blobs are swept.
            file.replace(path)
            fsync_folder(path.parent)
        return created

    def make_temporary_folder(self) -> None:
        """Make the folder of temporary and staged files, unless it exists.

        Raises:
            OSError: If the disk refuses, or it is a link.
        """
        self._temporary.mkdir(parents=True, exist_ok=True)
        if self._temporary.is_symlink():
            raise NotADirectoryError(errno.ENOTDIR, "the store's temporary folder is a link")

    def temporary_path(self) -> Path:
        """Return a new path for a blob that is being written.

        Raises:
            OSError: As `make_temporary_folder`.
        """
        self.make_temporary_folder()
        return self._temporary / f"{secrets.token_hex(16)}.part"


class BlobWriter(Closing):
    """Writes one blob; leaving the ``with`` without `commit` removes it."""

    def __init__(self, store: BlobStore, limit_bytes: int | None) -> None:
        self._store = store
        self._limit_bytes = limit_bytes
        with disk_errors():
            self._path = store.temporary_path()
            self._file = self._path.open("xb")
        self._hash = hashlib.sha256()
        self._head = b""
        self.size_bytes = 0

    def write(self, chunk: bytes) -> None:
        """Append `chunk`.

        Raises:
            InvalidInputError: ``too-large`` once the limit is passed.
            TransientError: ``store-full`` or ``store-unavailable`` if the disk refuses.
        """
        self.size_bytes += len(chunk)
        if self._limit_bytes is not None and self.size_bytes > self._limit_bytes:
            raise too_large(self._limit_bytes)
        if len(self._head) < HEAD_BYTES:
            self._head += bytes(chunk[: HEAD_BYTES - len(self._head)])
        self._hash.update(chunk)
        with disk_errors():
            self._file.write(chunk)

    def flush(self) -> None:
        """Flush the written bytes to the disk.

        Raises:
            TransientError: As `write`.
        """
        with disk_errors():
            self._file.flush()
            os.fsync(self._file.fileno())

    def commit(self) -> StoredBlob:
        """Flush the bytes to the disk and give the blob its name.

        Raises:
            TransientError: As `write`.
        """
        sha256 = self._hash.hexdigest()
        self.flush()
        with disk_errors():
            self._file.close()
        created = self._store.take(self._path, sha256)
        return StoredBlob(sha256=sha256, size_bytes=self.size_bytes, head=self._head, created=created)

    def close(self) -> None:
        """Remove the bytes that are not committed."""
        with suppress(OSError):  # closing tries again to write what a full disk refused
            self._file.close()
        self._path.unlink(missing_ok=True)


def too_large(limit_bytes: int) -> InvalidInputError:
    """Return the error for an upload over the limit (the API also raises it from Content-Length alone)."""
    return InvalidInputError(
        f"the upload is larger than {limit_bytes} bytes, the limit of this server",
        code="too-large",
        limit_bytes=limit_bytes,
    )


@contextmanager
def disk_errors() -> Iterator[None]:
    """Raise our error for an `OSError` of the store's disk.

    Raises:
        TransientError: ``store-full``, ``store-unavailable``.
    """
    try:
        yield
    except OSError as error:
        code = "store-full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "store-unavailable"
        raise TransientError(f"the store cannot be written: {error.strerror}", code=code) from error


def _opened(root: Path, parts: tuple[str, ...]) -> int:
    """Open a plain file below `root` to read it, over no link; return its descriptor.

    Raises:
        OSError: If it cannot be opened, or is something else.
    """
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in parts[:-1]:
            below = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            os.close(folder)
            folder = below
        # O_NONBLOCK: a pipe would wait for its writer.
        file = os.open(parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    finally:
        os.close(folder)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(errno.EINVAL, "not a plain file")
    return file


def _modified_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return float("inf")  # it was removed meanwhile


def _size_bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
