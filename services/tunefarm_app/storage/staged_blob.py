"""A blob that is being received, over any number of requests and lives of the processes that receive it.

It is a file of the store's staging folder, written in order from its beginning. One process at a time writes: it holds
the file's lock, which the system takes back the moment that the process is gone. The store's file system must have
locks (local ones have, NFS from version 4 has): where it has none, nothing is written.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from pathlib import Path
from types import TracebackType
from typing import Self

from tunefarm_app.storage.blob_store import HEAD_BYTES, BlobStore, StoredBlob, disk_error
from tunefarm_tuning.core.errors import ConflictError, TransientError

_CHUNK_BYTES = 1 << 20


class StagedBlob:
    """One such file, with its lock held; use it in a ``with``.

    Args:
        store: Where it is, and where it goes.
        name: Its name in the staging folder; it is made where there is none.

    Raises:
        ConflictError: ``upload-locked`` if somebody else writes to it now.
        TransientError: ``store-full`` or ``store-unavailable`` if the disk refuses, here and later on.
    """

    def __init__(self, store: BlobStore, name: str) -> None:
        self._store = store
        self._hash: hashlib._Hash | None = None
        self.size_bytes = 0
        self._path = store.staged_path(name)
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = _locked(self._path)
        except BlockingIOError:
            raise ConflictError(
                "another request is writing to this upload now", code="upload-locked"
            ) from None
        except OSError as error:
            raise disk_error(error) from error

    def begin_at(self, offset_bytes: int) -> bool:
        """Go on after so many bytes, and drop what is there beyond; return False where there are not so many."""
        try:
            if os.fstat(self._file).st_size < offset_bytes:
                return False
            os.ftruncate(self._file, offset_bytes)
            os.lseek(self._file, offset_bytes, os.SEEK_SET)
        except OSError as error:
            raise disk_error(error) from error
        self.size_bytes = offset_bytes
        self._hash = hashlib.sha256() if offset_bytes == 0 else None
        return True

    def require_room(self, more_bytes: int) -> None:
        """Raise `TransientError` (``store-full``) if so many bytes more cannot be had: then better none of them."""
        try:
            free_bytes = shutil.disk_usage(self._path.parent).free
        except OSError as error:
            raise disk_error(error) from error
        if free_bytes < more_bytes:
            raise TransientError(
                "the store's disk has no room for the rest of this upload", code="store-full"
            )

    def write(self, chunk: bytes) -> None:
        """Append `chunk`; `size_bytes` says how much of it was taken if the disk refuses."""
        left = memoryview(chunk)
        while left:
            try:
                taken = os.write(self._file, left)
            except OSError as error:
                raise disk_error(error) from error
            if self._hash is not None:
                self._hash.update(left[:taken])
            self.size_bytes += taken
            left = left[taken:]

    def flush(self) -> None:
        """Have the disk take what was written so far."""
        try:
            os.fsync(self._file)
        except OSError as error:
            raise disk_error(error) from error

    def head(self) -> bytes:
        """Return its first bytes, at most `HEAD_BYTES`."""
        return os.pread(self._file, min(HEAD_BYTES, self.size_bytes), 0)

    def digest(self) -> str:
        """Return the SHA-256 of all of it. It is read once more unless all was written through this object."""
        if self._hash is None:
            self._hash = hashlib.sha256()
            at = 0
            while at < self.size_bytes:
                chunk = os.pread(self._file, min(_CHUNK_BYTES, self.size_bytes - at), at)
                if not chunk:
                    raise TransientError("the store lost a part of an upload", code="store-unavailable")
                self._hash.update(chunk)
                at += len(chunk)
        return self._hash.hexdigest()

    def commit(self) -> StoredBlob:
        """Give it its name as a blob; it is on the disk before that."""
        head, sha256 = self.head(), self.digest()
        self.flush()
        created = self._store.take(self._path, sha256)
        return StoredBlob(sha256=sha256, size_bytes=self.size_bytes, head=head, created=created)

    def close(self) -> None:
        """Let go of the lock; what was written stays."""
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()


def _locked(path: Path) -> int:
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Between the two it may have become a blob, which nobody must change, or have been deleted.
            if _is_same(path, file):
                return file
        except BaseException:
            os.close(file)
            raise
        os.close(file)


def _is_same(path: Path, file: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file))
    except FileNotFoundError:
        return False


def staged_bytes(path: Path) -> int:
    """Return how many bytes the file has; 0 where there is none."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
