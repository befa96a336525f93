"""The relay's own key. Tickets are signed for it, and with it the relay proves to the gateway that a ticket is its own.

A proof is a signature of the gateway's challenge and the ticket. The challenge came over TLS from the gateway that the farm's authority
vouches for, so a proof is of use on that connection alone.
"""

from __future__ import annotations

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ed25519

from tunefarm_tuning.core import base64url

_PURPOSE = b"tunefarm: this ticket is mine\0"
_KEY_BYTES = 32


class RelayKey:
    """A key that never leaves this process.

    Attributes:
        public: Its public half, as ``x`` of a JSON Web Key (RFC 8037).
    """

    def __init__(self) -> None:
        self._key = ed25519.Ed25519PrivateKey.generate()
        self.public = base64url.encode(self._key.public_key().public_bytes_raw())

    def prove(self, ticket: str, challenge: str) -> str:
        """Return the proof that whoever was given this challenge has this key."""
        return base64url.encode(self._key.sign(_statement(ticket, challenge)))


def is_proof(proof: object, public: str, ticket: str, challenge: str) -> bool:
    """Return whether the owner of a public key proved a ticket to be its own."""
    try:
        key = ed25519.Ed25519PublicKey.from_public_bytes(base64url.decode(public))
        key.verify(base64url.decode(str(proof)), _statement(ticket, challenge))
    except (InvalidSignature, ValueError):
        return False
    return True


def is_public_key(text: object) -> bool:
    """Return whether a text may be the `public` of a key."""
    try:
        return isinstance(text, str) and len(base64url.decode(text)) == _KEY_BYTES
    except ValueError:
        return False


def _statement(ticket: str, challenge: str) -> bytes:
    return _PURPOSE + challenge.encode() + b"\0" + ticket.encode()
