"""Folders of files that are kept for later, up to a size: those that nobody has used for longest go first."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path


def usable_folder(path: Path | None) -> Path | None:
    """Return the folder, which is made unless it is there; None if it cannot be written, or none is given."""
    if path is None:
        return None
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return path if os.access(path, os.W_OK | os.X_OK) else None


def folder_of_file(folder: Path | None, sha256: str) -> Path | None:
    """Return the folder inside for what is kept of a file, by its hash, as `usable_folder` does; None also where no hash is given."""
    return usable_folder(folder / sha256) if folder is not None and sha256 else None


def remove_folder_of_file(folder: Path, sha256: str) -> None:
    """Remove what is kept of a file, as far as that goes.

    Others may write to `folder`, whom this process must not serve: neither it nor what is inside is followed if it is a link.
    """
    with suppress(OSError):
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            shutil.rmtree(sha256, ignore_errors=True, dir_fd=opened)
        finally:
            os.close(opened)


def prune(folder: Path, patterns: Sequence[str], *, limit_bytes: int) -> None:
    """Remove the files that were used longest ago (by their time of change), until the others have no more than so many bytes.

    Those in the folder itself and in the folders inside it count. Files whose names fit no pattern are nobody's business. A folder that
    cannot be read is left alone.

    Concurrency: any number of processes; a file that another one removes first is no error.
    """
    files = []
    inner = [path for path in _listed(folder) if path.is_dir() and not path.is_symlink()]
    for path in (path for each in (folder, *inner) for path in _listed(each)):
        if any(fnmatch(path.name, pattern) for pattern in patterns):
            with suppress(OSError):
                stat = path.stat()
                files.append((stat.st_mtime, stat.st_size, path))
    kept_bytes = 0
    for _, size_bytes, path in sorted(files, key=lambda file: -file[0]):
        kept_bytes += size_bytes
        if kept_bytes > limit_bytes:
            with suppress(OSError):
                path.unlink(missing_ok=True)


def _listed(folder: Path) -> list[Path]:
    with suppress(OSError):
        return list(folder.iterdir())
    return []
