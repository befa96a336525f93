"""The file that a backup is written to: it gets its name when it is complete.

Until then it is a part, which the backup holds locked. A backup that is killed leaves its part; the next one to the folder removes it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, cast

_PREFIX, _SUFFIX = ".tunefarm-backup-", ".part"
_FLAGS = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW


@contextmanager
def backup_file(path: Path) -> Iterator[BinaryIO]:
    """Yield an empty file that only its owner can read; at the end of the block it is `path`, unless the block raises.

    Raises:
        FileExistsError: If `path` exists by then.
    """
    _remove_abandoned(path.parent)
    part, file = _locked_part(path.parent)
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            _name(part, path)
    finally:
        part.unlink(missing_ok=True)


def exists(path: Path) -> FileExistsError:
    """Return the error that `path` exists."""
    return FileExistsError(errno.EEXIST, "exists already", str(path))


def _locked_part(folder: Path) -> tuple[Path, BinaryIO]:
    while True:
        part = folder / f"{_PREFIX}{secrets.token_hex(8)}{_SUFFIX}"
        file = cast("BinaryIO", os.fdopen(os.open(part, _FLAGS | os.O_CREAT | os.O_EXCL, 0o600), "w+b"))
        with suppress(OSError):  # a file system without locks: nobody removes its parts, either
            fcntl.flock(file, fcntl.LOCK_EX)
        if part.exists():
            return part, file
        file.close()  # another backup saw it before it was locked


def _remove_abandoned(folder: Path) -> None:
    for part in folder.glob(f"{_PREFIX}*{_SUFFIX}"):
        with suppress(OSError):  # it is at work, or somebody else's
            descriptor = os.open(part, _FLAGS | os.O_NONBLOCK)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if stat.S_ISREG(os.fstat(descriptor).st_mode):
                    part.unlink()
            finally:
                os.close(descriptor)


def _name(part: Path, path: Path) -> None:
    """Give a complete backup its name, unless another got it meanwhile."""
    try:
        os.link(part, path)
    except OSError as error:
        if path.exists():
            raise exists(path) from error
        part.rename(path)  # a file system without links
