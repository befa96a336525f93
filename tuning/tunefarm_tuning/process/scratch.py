"""Scratch folders, which are deleted after their process ends, even if it crashes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path

_PREFIX = "tunefarm-scratch-"
_LOCK = "lock"
_SETTLED_SEC = 60.0


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
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)


def sweep(root: Path) -> None:
    """Delete the scratch folders in `root` whose owners are gone."""
    for folder in root.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            # A folder this young may not be locked yet.
            if time.time() - folder.stat().st_mtime > _SETTLED_SEC and _is_free(folder):
                shutil.rmtree(folder, ignore_errors=True)


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
