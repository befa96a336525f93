"""Receipts: the gateway signs which certificate a device showed for the session that a ticket opened.

The gateway alone sees that certificate. Its receipt passes the worker's relay and child, which a device's bytes reach; so the worker believes
the signature and not who brings it. The key is the gateway's own: whoever can sign tickets can sign no receipts.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Self

from cryptography.hazmat.primitives.asymmetric import ed25519

from tunefarm_app.identity.tickets import Ticket, id_of
from tunefarm_app.identity.tokens import claims_of, read_private_key, read_public_key, sign_token
from tunefarm_tuning.core.errors import DeviceLostError, TransientError
from tunefarm_tuning.measure.interfaces import SessionOrigin

_THUMBPRINT = re.compile(r"[0-9a-f]{64}")


class ReceiptSigner:
    """Signs receipts. The gateway has it."""

    def __init__(self, key: ed25519.Ed25519PrivateKey) -> None:
        self._key = key

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the key from its file.

        Raises:
            OSError: If that fails.
            ValueError: If it is none.
        """
        return cls(read_private_key(path))

    def sign(self, ticket: Ticket, certificate_sha256: str) -> str:
        """Return the receipt of a session as text.

        Args:
            ticket: What opened it.
            certificate_sha256: SHA-256 of the certificate (DER) that the device showed for it, as hexadecimal digits.
        """
        return sign_token(
            self._key, {"sub": ticket.device, "jti": ticket.id, "cnf": {"x5t#S256": certificate_sha256}}
        )


class ReceiptReader:
    """Reads receipts. Workers have it."""

    def __init__(self, key: ed25519.Ed25519PublicKey) -> None:
        self._key = key

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the key from its file.

        Raises:
            TransientError: ``no-keys-here``.
        """
        try:
            return cls(read_public_key(path))
        except (OSError, ValueError) as error:
            raise TransientError(
                f"the key of receipts cannot be read: {error}", code="no-keys-here"
            ) from error

    def origin(self, device: str, ticket: str, receipt: object) -> SessionOrigin:
        """Return where the measurements of a session come from.

        Args:
            device: As `Ticket.device`.
            ticket: The ticket that this worker signed for the session.
            receipt: What came as its receipt.

        Raises:
            DeviceLostError: If the gateway did not sign it for this session: nobody knows then what was measured on.
        """
        ticket_id = id_of(ticket)
        try:
            claims = claims_of(receipt, self._key)
            certificate = claims["cnf"]["x5t#S256"]
            is_right = (claims["sub"], claims["jti"]) == (device, ticket_id)
            if not is_right or not _THUMBPRINT.fullmatch(certificate):
                raise ValueError("it is of another session")
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise DeviceLostError(
                "the session has no receipt of the farm's gateway: are gateway and worker of the same release?"
            ) from error
        return SessionOrigin(certificate_sha256=certificate, ticket_jti=ticket_id)
