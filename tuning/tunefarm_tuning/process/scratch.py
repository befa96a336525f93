"""Scratch folders, which are deleted after their process ends, even if it crashes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import stat
import tempfile
import time
from pathlib import Path

_PREFIX = "tunefarm-scratch-"
_LOCK = "lock"
_SETTLED_SEC = 60.0
_LONG_PATH = 700  # characters, each of up to four of the 4,095 bytes that the kernel takes


class ScratchDir:
    """A private folder, deleted by `close`; after a crash, by the next `ScratchDir` beside it.

    The owner holds a lock on a file inside. A folder whose lock is free has lost its owner (the kernel gives
    locks back), whatever its process number is used for by now.

    Args:
        parent: Where to make it; the system's folder for temporary files by default.
    """

    def __init__(self, parent: Path | None = None) -> None:
        root = Path(parent) if parent is not None else Path(tempfile.gettempdir())
        root.mkdir(parents=True, exist_ok=True)
        sweep(root)
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=root))
        self._lock = os.open(self.path / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self._closed = False

    def close(self) -> None:
        """Delete the folder. Calling it again does nothing."""
        if not self._closed:
            self._closed = True
            delete(self.path)
            os.close(self._lock)


def delete(folder: Path) -> None:
    """Delete a folder that a child could write, as far as that goes: folders that it has closed, or nested without end, too.

    No process may write it any more.
    """
    left, emptied = [str(folder)], []
    while left:
        current = left.pop()
        emptied.append(current)
        with contextlib.suppress(OSError):
            for entry in list(os.scandir(current)):
                if not entry.is_dir(follow_symlinks=False):
                    os.unlink(entry.path)  # noqa: PTH108
                    continue
                if entry.stat(follow_symlinks=False).st_mode & 0o700 != 0o700:
                    os.chmod(entry.path, 0o700)  # noqa: PTH101
                inner = entry.path
                if len(inner) > _LONG_PATH:
                    inner = str(folder / secrets.token_hex(8))
                    os.rename(entry.path, inner)  # noqa: PTH104
                left.append(inner)
    for current in reversed(emptied):
        with contextlib.suppress(OSError):
            os.rmdir(current)  # noqa: PTH106


def sweep(root: Path) -> None:
    """Delete the scratch folders in `root` whose owners are gone.

    Everybody may write to the system's folder for temporary files. What another user put there is left alone: a link, or folders that
    become links while they are deleted, would lead to any files of this user's.
    """
    for folder in root.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            state = folder.lstat()
            # A folder this young may not be locked yet.
            if time.time() - state.st_mtime > _SETTLED_SEC and _is_own(state) and _is_free(folder):
                delete(folder)


def _is_own(state: os.stat_result) -> bool:
    """Return whether something is a folder of this user's, that nobody else may write."""
    is_closed = state.st_mode & (stat.S_IWGRP | stat.S_IWOTH) == 0
    return stat.S_ISDIR(state.st_mode) and state.st_uid == os.geteuid() and is_closed


def _is_free(folder: Path) -> bool:
    try:
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return True  # its owner died before it made one
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
    return True
