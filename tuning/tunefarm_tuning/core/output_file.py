"""Write files so that a path never names an incomplete file."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.core.untrusted_text import clean


@contextmanager
def output_file(path: Path) -> Iterator[Path]:
    """Yield an empty file in the path's folder; it becomes the path's file at the end of the block.

    If the block raises, the new file is removed, and the path keeps its old file.

    Raises:
        InvalidInputError: cannot-write.
    """
    with writing(path):
        target = path.resolve()  # a link stays a link
        if target.exists() and not target.is_file():
            raise cannot_write(path, "it exists and is not a regular file")
        temporary = target.with_name(f".tunefarm-{secrets.token_hex(8)}.part")
        temporary.touch(exist_ok=False)
    try:
        yield temporary
        with writing(path):
            temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def write_durably(path: Path, text: str, *, mode: int) -> None:
    """Write a small file, whole or not at all, so that a power cut after the return takes neither it nor its name away.

    Args:
        path: A new file, or one to replace. A link is replaced by the file.
        text: Its content.
        mode: Its permissions, from the first byte on.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    fsync_folder(path.parent)


def fsync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def writing(path: Path | str) -> Iterator[None]:
    """Turn an `OSError` inside the block into an error about the path, which is the user's name for the file.

    Raises:
        InvalidInputError: cannot-write.
    """
    try:
        yield
    except OSError as error:
        raise cannot_write(path, error.strerror or type(error).__name__) from error


def cannot_write(path: Path | str, reason: str) -> InvalidInputError:
    """Return the error for a file that cannot be written."""
    return InvalidInputError(f"{clean(str(path), 300)} cannot be written: {reason}", code="cannot-write")


def link_or_copy(source: Path, target: Path) -> bool:
    """Make `target` a file with the content of `source`: a link where the file system has links, else a copy.

    Return whether that worked; it does not where `source` is missing, or `target` exists.
    """
    try:
        os.link(source, target)
    except (FileNotFoundError, FileExistsError):
        return False
    except OSError:
        try:
            shutil.copyfile(source, target)
        except OSError:
            target.unlink(missing_ok=True)
            return False
    return True
