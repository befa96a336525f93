"""The key that the farm signs its results with, as a file, and the file of its public keys beside it.

``FILE`` holds the Ed25519 key (PEM, mode 0600): for workers only, which sign what they compiled, and for whoever writes backups.
``FILE.pub`` holds the public keys, the present one first, then those of former keys: for everybody.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

import structlog
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from securesystemslib.dsse import Envelope
from securesystemslib.signer import CryptoSigner, SSlibKey

from tunefarm_tuning.core.errors import ConflictError, InvalidInputError, TransientError
from tunefarm_tuning.core.output_file import write_durably
from tunefarm_tuning.provenance.envelope import PAYLOAD_TYPE, key_id, read_public_keys

log = structlog.stdlib.get_logger(__name__)

_CREATE = "`tunefarm signing create FILE` makes one"
_LIST_AGAIN = (
    "restore it from a copy; without one, delete it, and `tunefarm signing rotate FILE` writes it again"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicKey:
    """A public key of the farm: `id` is what envelopes name it by, `pem` the key."""

    id: str
    pem: str


class SigningKey:
    """The key, read into this process."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        public = key.public_key()
        self._signer = CryptoSigner(key, SSlibKey.from_crypto(public, key_id(public)))

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read it from its file, which other users must not be able to read or write.

        Raises:
            InvalidInputError: ``no-signing-key``.
        """
        try:
            with path.open("rb") as file:
                mode, data = os.fstat(file.fileno()).st_mode, file.read()
            key = load_pem_private_key(data, None)
        except OSError as error:
            raise _no_key(f"{path} cannot be read: {error.strerror}", _CREATE) from error
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise _no_key(f"{path} holds no private key in PEM", _CREATE) from error
        if not isinstance(key, Ed25519PrivateKey):
            raise _no_key(f"{path} holds a key of another kind than Ed25519", _CREATE)
        if mode & (stat.S_IROTH | stat.S_IWOTH):
            raise _no_key(f"every user can read or replace {path}", f"`chmod 600 {path}` fixes that")
        return cls(key)

    @property
    def id(self) -> str:
        """What envelopes name it by."""
        return self._signer.public_key.keyid

    @property
    def public_pem(self) -> str:
        """Its public key."""
        return _pem(self._key.public_key().public_bytes_raw().hex())

    @property
    def private_pem(self) -> str:
        """The key itself."""
        return self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()

    def sign(self, statement: bytes) -> str:
        """Return the statement in an envelope, as a line of JSON."""
        envelope = Envelope(statement, PAYLOAD_TYPE, {})
        envelope.sign(self._signer)
        return json.dumps(envelope.to_dict(), separators=(",", ":")) + "\n"


def public_path(path: Path) -> Path:
    """Return the file of the public keys beside the key's file."""
    return path.with_name(path.name + ".pub")


def public_keys(path: Path) -> tuple[PublicKey, ...]:
    """Return the public keys beside the key's file, the present one first. The key itself is not read.

    Raises:
        InvalidInputError: ``no-signing-key``.
    """
    try:
        keys = read_public_keys(public_path(path))
    except InvalidInputError as error:
        raise _no_key(error.message, _LIST_AGAIN if path.exists() else _CREATE) from error
    return tuple(PublicKey(id=key.keyid, pem=_pem(key.keyval["public"])) for key in keys)


def farm_keys(path: Path | None) -> tuple[PublicKey, ...]:
    """Return the public keys of a farm, the present one first; none if it does not sign.

    Raises:
        TransientError: ``signing-keys-unavailable``.
    """
    try:
        return () if path is None else public_keys(path)
    except InvalidInputError as error:
        log.warning("public keys cannot be read", error=error.message)
        raise TransientError(
            "the file of the farm's public keys cannot be read now; the API's log says why",
            code="signing-keys-unavailable",
        ) from error


def create_signing_key(path: Path) -> str:
    """Make a key and the file of its public key; return its id.

    Raises:
        ConflictError: ``signing-key-exists``.
        InvalidInputError: ``no-signing-key`` if the files cannot be written.
    """
    with _alone(path):
        if path.exists():
            raise ConflictError(
                f"{path} exists already: `tunefarm signing rotate` replaces a key with a new key",
                code="signing-key-exists",
            )
        return _write_new(path)


def ensure_signing_key(path: Path) -> str:
    """Make a key if there is none, and list its public key if it is not listed; return its id. Several processes may start at once.

    Raises:
        InvalidInputError: ``no-signing-key``.
    """
    with _alone(path):
        if not path.exists():
            return _write_new(path)
        return _listed(path).id


def rotate_signing_key(path: Path) -> str:
    """Replace the key by a new one; return its id. The former public key stays in the list, for what it signed.

    Raises:
        InvalidInputError: ``no-signing-key`` if there is none.
    """
    with _alone(path):
        _listed(path)
        return _write_new(path)


def _listed(path: Path) -> SigningKey:
    """Read the key, and list its public key if the file of public keys is lost or that of another key."""
    key, public = SigningKey.read(path), public_path(path)
    if not public.exists():
        _write_public(public, key, "")
    elif key.id not in {listed.id for listed in public_keys(path)}:
        _write_public(public, key, _text(public))
    return key


def _text(public: Path) -> str:
    return public.read_text("utf-8", "replace") if public.exists() else ""


def _write_new(path: Path) -> str:
    key, public = SigningKey(Ed25519PrivateKey.generate()), public_path(path)
    # The public key first: what the new key signs can be verified from its first moment on.
    _write_public(public, key, _text(public))
    write_durably(path.resolve(), key.private_pem, mode=0o600)
    return key.id


def _write_public(path: Path, key: SigningKey, former: str) -> None:
    since = datetime.now(UTC).isoformat(timespec="seconds")
    text = f"tunefarm signing key {key.id}, since {since}\n{key.public_pem}\n{former}"
    write_durably(path.resolve(), text, mode=0o644)


def _pem(raw: str) -> str:
    key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(raw))
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    try:
        path = path.resolve()
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = os.open(path.with_name(f".{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)
    except OSError as error:
        raise _no_key(
            f"{path} cannot be written: {error.strerror}", "give a file in a folder of yours"
        ) from error


def _no_key(why: str, remedy: str) -> InvalidInputError:
    return InvalidInputError(
        f"the farm's signing key (TUNEFARM_SIGNING_KEY) cannot be used: {why}. {remedy[:1].upper()}{remedy[1:]}",
        code="no-signing-key",
    )
