"""Encryption of backups by age: for public keys, so that whoever writes them cannot read them.

Files are those of the command ``age``, which opens them as well (``age --decrypt -i FILE``).
"""

from __future__ import annotations

import errno
import os
import stat
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

from pyrage import (
    DecryptError,
    IdentityError,
    RecipientError,
    decrypt_io,
    encrypt_io,
    ssh,
    x25519,
)

from tunefarm_tuning.core.errors import InvalidInputError

MAGIC = b"age-encryption.org/v1\n"
"""How encrypted files begin."""
_ARMORED = b"-----BEGIN AGE ENCRYPTED FILE-----"  # how they do as text (``age --armor``)
_MAX_KEY_BYTES = 1 << 16
_SECRET_PREFIX = "AGE-SECRET-KEY"  # noqa: S105  (how one begins)
_HINT = "give a key as age1… or ssh-ed25519 …, or a file of such lines (age-keygen -y FILE prints one)"

Recipient = Any
"""A public key (pyrage has no types)."""
Identity = Any
"""A secret key."""


def read_recipients(texts: Sequence[str]) -> tuple[Recipient, ...]:
    """Return the public keys that are named: each text is one, or the path of a file with one a line.

    Raises:
        InvalidInputError: ``bad-recipient``.
    """
    return tuple(_recipient(line) for text in texts for line in _lines(text))


def _lines(text: str) -> list[str]:
    _refuse_secret(text)
    if text.startswith(("age1", "ssh-")):
        return [text]
    lines = [line for line in _read(Path(text), "bad-recipient").splitlines() if _is_key(line)]
    if not lines:
        raise InvalidInputError(f"{text} has no public key: {_HINT}", code="bad-recipient")
    return lines


def _is_key(line: str) -> bool:
    return bool(line.strip()) and not line.startswith("#")


def _refuse_secret(text: str) -> None:
    """Refuse a secret key, however it is written: no message may repeat it."""
    if _SECRET_PREFIX in text.upper():
        raise InvalidInputError(
            f"this is a secret key, with which backups are read: {_HINT}", code="bad-recipient"
        )


def _recipient(text: str) -> Recipient:
    _refuse_secret(text)
    kind = ssh.Recipient if text.startswith("ssh-") else x25519.Recipient
    try:
        return kind.from_str(text.strip())
    except (RecipientError, ValueError) as error:
        raise InvalidInputError(
            f"{text[:80]!r} is not a public key of age: {_HINT}", code="bad-recipient"
        ) from error


def read_identities(path: Path) -> tuple[Identity, ...]:
    """Return the secret keys of a file: of age-keygen, or an SSH key without a passphrase.

    Raises:
        InvalidInputError: ``bad-identity``, also if other users can read the file.
    """
    text = _read(path, "bad-identity")
    if path.stat().st_mode & (stat.S_IROTH | stat.S_IWOTH):
        raise InvalidInputError(
            f"every user can read {path}, which holds a secret key: chmod 600 {path}", code="bad-identity"
        )
    try:
        if "PRIVATE KEY" in text:
            return (ssh.Identity.from_buffer(text.encode()),)
        keys = tuple(x25519.Identity.from_str(line.strip()) for line in text.splitlines() if _is_key(line))
    except (IdentityError, ValueError) as error:
        raise InvalidInputError(
            f"{path} holds no secret key that can be used. Use a key of age-keygen, or an SSH key (Ed25519 or RSA) without a passphrase",
            code="bad-identity",
        ) from error
    if not keys:
        raise InvalidInputError(f"{path} holds no secret key", code="bad-identity")
    return keys


def _read(path: Path, code: str) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_KEY_BYTES + 1)
        text = data.decode("utf-8-sig")
    except OSError as error:
        raise InvalidInputError(f"{path}: {error.strerror or error}; {_HINT}", code=code) from error
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"{path} is not a file of keys", code=code) from error
    if len(data) > _MAX_KEY_BYTES:
        raise InvalidInputError(
            f"{path} is longer than the {_MAX_KEY_BYTES:,} bytes of a file of keys", code=code
        )
    return text


@contextmanager
def encrypting(file: BinaryIO, recipients: Sequence[Recipient]) -> Iterator[BinaryIO]:
    """Give a file to write to in the block, in order; what is written goes into `file`, encrypted for all recipients.

    Raises:
        OSError: If `file` cannot be written.
    """
    source, target = os.pipe()
    failures: list[BaseException] = []

    def encrypt() -> None:
        with os.fdopen(source, "rb") as plain:
            try:
                encrypt_io(plain, file, recipients)
            except BaseException as error:  # noqa: BLE001  (the thread of the writer raises it)
                failures.append(error)

    thread = threading.Thread(target=encrypt, name="encryption")
    thread.start()
    try:
        with os.fdopen(target, "wb") as plain:
            yield plain
    except BrokenPipeError as error:
        thread.join()
        if not failures:  # somebody else's pipe
            raise
        raise OSError(errno.EIO, f"the file cannot be written: {failures[0]}") from error
    finally:
        thread.join()
    if failures:
        raise OSError(errno.EIO, f"the file cannot be written: {failures[0]}") from failures[0]


@contextmanager
def opened(path: Path, identity: Path | None, folder: Path) -> Iterator[BinaryIO]:
    """Open a file, decrypted if it is encrypted: into a file without a name in `folder`.

    Raises:
        InvalidInputError: ``backup-encrypted`` without an identity; ``not-encrypted`` with one, for a file that anybody could have
            written; ``wrong-identity`` if it is encrypted for others, or damaged; as `read_identities`.
    """
    with path.open("rb") as file:
        is_encrypted = file.read(len(_ARMORED)).startswith((MAGIC, _ARMORED))
        file.seek(0)
        if not is_encrypted:
            if identity is not None:
                raise InvalidInputError(
                    f"{path} is not encrypted: if you trust it, omit --identity",
                    code="not-encrypted",
                )
            yield file
            return
        if identity is None:
            raise InvalidInputError(
                f"{path} is encrypted: name the file of the secret key (--identity FILE)",
                code="backup-encrypted",
            )
        keys = read_identities(identity)
        with tempfile.TemporaryFile(dir=folder) as plain:
            try:
                decrypt_io(file, plain, keys)
            except (DecryptError, OSError) as error:
                if isinstance(error, OSError) and error.errno is not None:
                    raise
                raise InvalidInputError(
                    f"{path} cannot be decrypted with {identity}: it is encrypted for other keys, or it is damaged ({error})",
                    code="wrong-identity",
                ) from error
            plain.seek(0)
            yield cast("BinaryIO", plain)
