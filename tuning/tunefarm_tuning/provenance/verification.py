"""Verifies an artifact before it is loaded: the bytes that were verified are the bytes that the caller gets."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.provenance.envelope import MAX_ENVELOPE_BYTES, open_envelope, read_public_keys
from tunefarm_tuning.provenance.statement import PROVENANCE, Statement, read_statement

SUFFIX = ".intoto.jsonl"
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedFile:
    """A verified artifact.

    Attributes:
        file: A copy that has no name, at its beginning: nobody else can change it.
        sha256: Of the copy.
        statement: What is attested.
    """

    file: IO[bytes]
    sha256: str
    statement: Statement


def envelope_beside(path: Path) -> Path:
    """Return the path of a file's envelope, unless it lies elsewhere."""
    return path.with_name(path.name + SUFFIX)


@contextmanager
def verified(path: Path, key_file: Path, *, envelope: Path | None = None) -> Iterator[VerifiedFile]:
    """Verify an artifact, and keep the verified bytes open during the block.

    Args:
        path: The artifact.
        key_file: The file of public keys that are trusted.
        envelope: The artifact's envelope; by default the file beside it.

    Raises:
        InvalidInputError: ``not-an-artifact`` if it cannot be read; ``no-envelope``; ``wrong-subject`` if the envelope is of another
            file; and as `read_public_keys`, `open_envelope` and `read_statement`.
    """
    keys = read_public_keys(key_file)
    beside = envelope or envelope_beside(path)
    signed = open_envelope(_read_envelope(beside, path), keys, named=str(beside), keys_named=str(key_file))
    statement = read_statement(signed, predicate_type=PROVENANCE, named=str(beside))
    if not path.is_file():
        raise InvalidInputError(f"{path} does not exist or is not a file", code="not-an-artifact")
    with path.open("rb") as source, tempfile.TemporaryFile(prefix="tunefarm-") as copy:
        hasher = hashlib.sha256()
        while chunk := source.read(_CHUNK_BYTES):
            hasher.update(chunk)
            copy.write(chunk)
        sha256 = hasher.hexdigest()
        if sha256 not in statement.subjects.values():
            raise InvalidInputError(
                f"{beside} is signed, but is of another file than {path}: the artifact was altered or replaced, or the "
                "envelope is another artifact's. Download both again",
                code="wrong-subject",
                sha256=sha256,
            )
        copy.seek(0)
        yield VerifiedFile(file=copy, sha256=sha256, statement=statement)


def _read_envelope(beside: Path, path: Path) -> bytes:
    try:
        with beside.open("rb") as file:
            return file.read(MAX_ENVELOPE_BYTES + 1)
    except FileNotFoundError as error:
        raise InvalidInputError(
            f"{path} is not verified: there is no {beside}. `tunefarm jobs artifact` writes it beside the artifact, if the "
            "farm signs its results; without a key to verify with, an artifact is loaded unverified",
            code="no-envelope",
        ) from error
    except OSError as error:
        raise InvalidInputError(f"{beside} cannot be read: {error.strerror}", code="no-envelope") from error
