"""Tokens: JSON Web Tokens (RFC 7519) that one part of the farm signs with Ed25519 and another reads. There is one algorithm, so the header is always the same text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key

from tunefarm_tuning.core import base64url

_HEADER = "eyJhbGciOiJFZERTQSIsInR5cCI6IkpXVCJ9"  # {"alg":"EdDSA","typ":"JWT"}
_MOST_BYTES = 2048


class ForeignTokenError(ValueError):
    """Another key signed the token, or it was changed."""


def read_private_key(path: Path) -> ed25519.Ed25519PrivateKey:
    """Read a key that signs tokens from its file.

    Raises:
        OSError: If that fails.
        ValueError: If it is none.
    """
    key = load_pem_private_key(path.read_bytes(), None)
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise _other_kind(path)
    return key


def read_public_key(path: Path) -> ed25519.Ed25519PublicKey:
    """Read a key that tokens are checked with from its file.

    Raises:
        OSError: If that fails.
        ValueError: If it is none.
    """
    key = load_pem_public_key(path.read_bytes())
    if not isinstance(key, ed25519.Ed25519PublicKey):
        raise _other_kind(path)
    return key


def _other_kind(path: Path) -> ValueError:
    return ValueError(f"{path.name} is a key of another kind than Ed25519")


def sign_token(key: ed25519.Ed25519PrivateKey, claims: Mapping[str, Any]) -> str:
    """Return the claims as a signed token."""
    signed = f"{_HEADER}.{base64url.encode(json.dumps(claims).encode())}"
    return f"{signed}.{base64url.encode(key.sign(signed.encode()))}"


def claims_of(text: object, key: ed25519.Ed25519PublicKey) -> Any:
    """Return what a token says.

    Args:
        text: The token; a stranger may have sent it.
        key: The key that must have signed it.

    Raises:
        ForeignTokenError: If it did not.
        ValueError: If it is no token.
    """
    if not isinstance(text, str) or len(text) > _MOST_BYTES or not text.isascii():
        raise ValueError("no token")
    signed, _, signature = text.rpartition(".")
    header, _, claims = signed.partition(".")
    if header != _HEADER:
        raise ValueError("no token")
    try:
        key.verify(base64url.decode(signature), signed.encode())
    except InvalidSignature:
        raise ForeignTokenError("another key signed it") from None
    return json.loads(base64url.decode(claims))
