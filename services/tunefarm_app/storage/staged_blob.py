"""A blob that is received over several requests, perhaps by several processes.

It is a file in the store's temporary folder, written in order from its beginning. One process at a time writes: it holds
the file's lock, which the system releases the moment that the process is gone. The store's file system must have
locks (local ones have, NFS from version 4 has); without them, nothing is written.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from pathlib import Path

from tunefarm_app.storage.blob_store import HEAD_BYTES, BlobStore, StoredBlob, disk_errors
from tunefarm_tuning.core.cancellation import Closing
from tunefarm_tuning.core.errors import ConflictError, TransientError

_CHUNK_BYTES = 1 << 20


class StagedBlob(Closing):
    """The file of such a blob, locked; use it in a ``with``.

    Args:
        store: The store that the file becomes a blob of.
        name: The file's name; the file is created if it does not exist.

    Raises:
        ConflictError: ``upload-locked`` if another process writes to it now.
        TransientError: ``store-full`` or ``store-unavailable`` if the disk refuses, here and later on.
    """

    def __init__(self, store: BlobStore, name: str) -> None:
        self._store = store
        self._hash: hashlib._Hash | None = None
        self.size_bytes = 0
        self._path = store.staged_path(name)
        with disk_errors():
            store.make_temporary_folder()
            self._file = _locked(self._path)

    def begin_at(self, offset_bytes: int) -> bool:
        """Cut the file to `offset_bytes` and write from there; return False if it is shorter."""
        with disk_errors():
            if os.fstat(self._file).st_size < offset_bytes:
                return False
            os.ftruncate(self._file, offset_bytes)
            os.lseek(self._file, offset_bytes, os.SEEK_SET)
        self.size_bytes = offset_bytes
        self._hash = hashlib.sha256() if offset_bytes == 0 else None
        return True

    def require_room(self, more_bytes: int) -> None:
        """Raise `TransientError` (``store-full``) unless the disk has room for `more_bytes`."""
        with disk_errors():
            free_bytes = shutil.disk_usage(self._path.parent).free
        if free_bytes < more_bytes:
            raise TransientError(
                "the store's disk has no space for the rest of this upload", code="store-full"
            )

    def write(self, chunk: bytes) -> None:
        """Append `chunk`. If the disk refuses, `size_bytes` says how much was written."""
        remaining = memoryview(chunk)
        while remaining:
            with disk_errors():
                taken = os.write(self._file, remaining)
            if self._hash is not None:
                self._hash.update(remaining[:taken])
            self.size_bytes += taken
            remaining = remaining[taken:]

    def flush(self) -> None:
        """Flush the written bytes to the disk."""
        with disk_errors():
            os.fsync(self._file)

    def head(self) -> bytes:
        """Return its first bytes, at most `HEAD_BYTES`."""
        return os.pread(self._file, min(HEAD_BYTES, self.size_bytes), 0)

    def digest(self) -> str:
        """Return the SHA-256 of the file. The file is read again unless this object wrote all of it."""
        if self._hash is None:
            self._hash = hashlib.sha256()
            position = 0
            while position < self.size_bytes:
                chunk = os.pread(self._file, min(_CHUNK_BYTES, self.size_bytes - position), position)
                if not chunk:
                    raise TransientError("the store lost a part of an upload", code="store-unavailable")
                self._hash.update(chunk)
                position += len(chunk)
        return self._hash.hexdigest()

    def commit(self) -> StoredBlob:
        """Flush the file to the disk and make it a blob."""
        head, sha256 = self.head(), self.digest()
        self.flush()
        created = self._store.take(self._path, sha256)
        return StoredBlob(sha256=sha256, size_bytes=self.size_bytes, head=head, created=created)

    def close(self) -> None:
        """Release the lock; the written bytes stay."""
        os.close(self._file)


def _locked(path: Path) -> int:
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Between opening and locking it may have become a blob, which must not change, or have been deleted.
            if _is_same(path, file):
                return file
        except BaseException as error:
            os.close(file)
            if isinstance(error, BlockingIOError):
                raise ConflictError(
                    "another request is writing to this upload now", code="upload-locked"
                ) from None
            raise
        os.close(file)


def _is_same(path: Path, file: int) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(file))
    except FileNotFoundError:
        return False


def staged_bytes(path: Path) -> int:
    """Return the size of a staged file; 0 if there is none."""
    try:
        return path.lstat().st_size
    except FileNotFoundError:
        return 0
