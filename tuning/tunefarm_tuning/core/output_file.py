"""A file where a user wants it: written beside its place, and put there once all is well."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.core.untrusted_text import clean


@contextmanager
def output_file(path: Path) -> Iterator[Path]:
    """Yield an empty file that takes the path's place at the end of the block.

    If the block raises, it is removed, and what was there stays.

    Raises:
        InvalidInputError: cannot-write.
    """
    with writing(path):
        place = path.resolve()  # a link stays one
        if place.exists() and not place.is_file():
            raise cannot_write(path, "it is there, and no ordinary file")
        part = place.with_name(f".tunefarm-{secrets.token_hex(8)}.part")
        part.touch(exist_ok=False)
    try:
        yield part
        with writing(path):
            part.replace(place)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def writing(path: Path | str) -> Iterator[None]:
    """Turn the system's errors inside the block into one about the path, which is the user's name for the file.

    Raises:
        InvalidInputError: cannot-write.
    """
    try:
        yield
    except OSError as error:
        raise cannot_write(path, error.strerror or type(error).__name__) from error


def cannot_write(path: Path | str, reason: str) -> InvalidInputError:
    return InvalidInputError(f"{clean(str(path), 300)} cannot be written: {reason}", code="cannot-write")
