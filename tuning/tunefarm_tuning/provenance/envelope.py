"""DSSE envelopes: a payload, its type and signatures, as JSON; and the file of public keys that they are checked with."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tunefarm_tuning.core.errors import InvalidInputError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from securesystemslib.signer import Key

PAYLOAD_TYPE = "application/vnd.in-toto+json"
MAX_ENVELOPE_BYTES = 4 << 20
_MAX_KEYS_BYTES = 64 << 10
_MAX_SIGNATURES = 16
_PEM = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----.*?-----END \1-----", re.DOTALL)
_PUBLIC = "PUBLIC KEY"
_SHOWN_ID = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedPayload:
    """What an envelope holds, once its signature is checked.

    Attributes:
        key_id: The public key that verified it.
    """

    payload: bytes
    key_id: str


def read_public_keys(path: Path) -> tuple[Key, ...]:
    """Return the Ed25519 keys of a file of PEM blocks, in their order. Text between the blocks is ignored.

    Raises:
        InvalidInputError: ``bad-verify-key`` if the file cannot be read or holds no such key; ``not-installed``.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_KEYS_BYTES + 1)
    except OSError as error:
        raise _bad_key(f"the key file {path} cannot be read: {error.strerror}") from error
    if len(data) > _MAX_KEYS_BYTES:
        raise _bad_key(f"{path} is larger than {_MAX_KEYS_BYTES} bytes: it is not a file of public keys")
    return parse_public_keys(data, named=str(path))


def parse_public_keys(data: bytes, *, named: str) -> tuple[Key, ...]:
    """Return the Ed25519 keys of PEM text; `named` is what errors call it.

    Raises:
        InvalidInputError: As `read_public_keys`.
    """
    require_verifier()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key
    from securesystemslib.signer import SSlibKey

    keys: list[Key] = []
    for block in _PEM.finditer(data.decode("utf-8", "replace")):
        if block[1] != _PUBLIC:
            raise _bad_key(
                f"{named} holds a {block[1].lower()}, not a public key: give the file of public keys, which "
                "`tunefarm signing list --output FILE` writes"
            )
        try:
            key = load_pem_public_key(block[0].encode())
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise _bad_key(f"{named} holds a public key that cannot be read: {error}") from error
        if not isinstance(key, Ed25519PublicKey):
            raise _bad_key(f"{named} holds a key of another kind than Ed25519, which tunefarm signs with")
        keys.append(SSlibKey.from_crypto(key, key_id(key)))
    if not keys:
        raise _bad_key(
            f"{named} holds no public key (a block -----BEGIN PUBLIC KEY-----): "
            "`tunefarm signing list --output FILE` writes those of a farm"
        )
    return tuple(keys)


def key_id(key: Ed25519PublicKey) -> str:
    """Return the name of a public key: the SHA-256 of its DER form, whatever the version of the library."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()


def require_verifier() -> None:
    """Check that the packages are installed that check signatures.

    Raises:
        InvalidInputError: ``not-installed``, with the command that installs them.
    """
    try:
        import cryptography
        import securesystemslib  # noqa: F401

        assert cryptography
    except ImportError as error:
        raise InvalidInputError(
            f"{error.name} is not installed, but a signature is to be checked: pip install 'tunefarm[verify]'",
            code="not-installed",
        ) from error


def open_envelope(data: bytes, keys: Sequence[Key], *, named: str, keys_named: str) -> SignedPayload:
    """Check an envelope's signature, and return its payload.

    Args:
        data: The envelope, as JSON.
        keys: The keys that are trusted: one of them has to have signed.
        named: What errors call the envelope.
        keys_named: What errors call the keys.

    Raises:
        InvalidInputError: ``bad-envelope`` if it is none; ``unknown-key`` if another key signed it; ``bad-signature`` if payload or
            signature were altered; ``wrong-predicate`` if its payload is no statement of in-toto.
    """
    from securesystemslib.dsse import Envelope
    from securesystemslib.exceptions import Error

    if len(data) > MAX_ENVELOPE_BYTES:
        raise _bad_envelope(named, f"it is larger than {MAX_ENVELOPE_BYTES} bytes")
    try:
        document = json.loads(data)
        if len(document["signatures"]) > _MAX_SIGNATURES:
            raise ValueError(f"it has more than {_MAX_SIGNATURES} signatures")
        str.encode(
            document["payloadType"]
        )  # refuses what is no text, and a lone surrogate, which has no bytes
        envelope = Envelope.from_dict(document)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, Error) as error:
        raise _bad_envelope(named, str(error)) from error
    signers = [str(key_id) for key_id in envelope.signatures]
    if not signers:
        raise _bad_envelope(named, "nobody has signed it")
    trusted = {key.keyid: key for key in keys}
    if not trusted.keys() & set(signers):
        raise InvalidInputError(
            f"{named} is signed with the key {_ids(signers)}, and {keys_named} holds {_ids(list(trusted))}: it is of another "
            "farm, or that farm has a new key. If you trust its server, `tunefarm signing list --output FILE` writes its keys",
            code="unknown-key",
        )
    try:
        verified = envelope.verify(list(trusted.values()), 1)
    except (Error, ValueError, TypeError) as error:
        raise InvalidInputError(
            f"the signature in {named} does not match what it signs: one of the two was altered",
            code="bad-signature",
        ) from error
    if envelope.payload_type != PAYLOAD_TYPE:
        raise InvalidInputError(f"{named} does not hold a statement of in-toto", code="wrong-predicate")
    return SignedPayload(payload=envelope.payload, key_id=next(iter(verified)))


def _ids(key_ids: Sequence[str]) -> str:
    shown = [key_id[:_SHOWN_ID] if key_id.isalnum() else "of no name" for key_id in key_ids[:4]]
    return ", ".join(shown) + (" …" if len(key_ids) > len(shown) else "")


def _bad_key(message: str) -> InvalidInputError:
    return InvalidInputError(message, code="bad-verify-key")


def _bad_envelope(named: str, why: str) -> InvalidInputError:
    return InvalidInputError(
        f"{named} is not an envelope of a signed statement: {why[:200]!a}. Download it again",
        code="bad-envelope",
    )
