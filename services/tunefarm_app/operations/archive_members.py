"""Members of a backup's archive: added, and read as the plain files that they have to be."""

from __future__ import annotations

import io
import os
import tarfile
from typing import IO

from tunefarm_tuning.core.errors import InvalidInputError


def add_bytes(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    """Add a member with these bytes."""
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    archive.addfile(entry, io.BytesIO(data))


def add_file(archive: tarfile.TarFile, name: str, file: IO[bytes]) -> None:
    """Add a member with the contents of a file, from its beginning."""
    file.flush()
    entry = tarfile.TarInfo(name)
    entry.size = file.seek(0, os.SEEK_END)
    file.seek(0)
    archive.addfile(entry, file)


def member(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    """Open a member.

    Raises:
        InvalidInputError: ``bad-backup`` if there is none, or it is no plain file.
    """
    try:
        entry = archive.getmember(name)
    except KeyError:
        raise InvalidInputError(f"the backup ends before {name}", code="bad-backup") from None
    file = archive.extractfile(entry) if entry.isreg() and not entry.issparse() else None
    if file is None:  # a link may lead to itself, holes may be of any size
        raise InvalidInputError(f"{name} in the backup is not a plain file", code="bad-backup")
    return file
