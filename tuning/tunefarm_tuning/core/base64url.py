"""Base64url without padding, as JSON Web Tokens and Keys have it (RFC 7515)."""

from __future__ import annotations

import base64
import binascii


def encode(data: bytes) -> str:
    """Return bytes as text."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def decode(text: str) -> bytes:
    """Return what `encode` was given.

    Raises:
        ValueError: If the text is no base64url.
    """
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from None
