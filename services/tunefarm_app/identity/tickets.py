"""Tickets: with one, whoever holds a device's lease gets one session on that device, soon.

A ticket is a token (`tokens`) that workers sign and the gateway checks. It names the public key of the relay that it was signed for (``cnf``, RFC 7800), which has to prove that it has that
key (`tunefarm_tuning.process.relay.key`): in other hands a ticket is worth nothing.
"""

from __future__ import annotations

import json
import math
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from cryptography.hazmat.primitives.asymmetric import ed25519

from tunefarm_app.identity.tokens import (
    ForeignTokenError,
    claims_of,
    read_private_key,
    read_public_key,
    sign_token,
)
from tunefarm_tuning.core import base64url
from tunefarm_tuning.core.errors import TransientError
from tunefarm_tuning.process.relay.key import is_public_key

VALID_SEC = 60.0
"""Time from the signature to the session's begin."""

_MOST_FENCE = 1 << 62


class BadTicketError(Exception):
    """The text is no ticket of this farm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """What a ticket says.

    Attributes:
        device: The device, as `device_identity`.
        fence: The number of its lease.
        id: The ticket's own: it is valid once.
        key: The public key of the relay that it was signed for.
        issued_at: Unix seconds.
        expires_at: Unix seconds.
    """

    device: str
    fence: int
    id: str
    key: str
    issued_at: float
    expires_at: float


class TicketSigner:
    """Signs tickets. Workers have it."""

    def __init__(self, key: ed25519.Ed25519PrivateKey) -> None:
        self._key = key

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the key from its file.

        Raises:
            TransientError: ``no-keys-here``.
        """
        try:
            return cls(read_private_key(path))
        except (OSError, ValueError) as error:
            raise TransientError(
                f"the key of tickets cannot be read: {error}", code="no-keys-here"
            ) from error

    def sign(self, device: str, fence: int, key: str, *, valid_sec: float = VALID_SEC) -> str:
        """Return a new ticket as text.

        Args:
            device: As `Ticket.device`.
            fence: As `Ticket.fence`.
            key: As `Ticket.key`.
            valid_sec: Until when it is valid, from now.
        """
        now = time.time()
        claims = {
            "sub": device,
            "fence": fence,
            "jti": secrets.token_hex(16),
            "cnf": {"jwk": {"kty": "OKP", "crv": "Ed25519", "x": key}},
            "iat": now,
            "exp": now + valid_sec,
        }
        return sign_token(self._key, claims)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayWay:
    """How a worker reaches devices over the farm's gateway. Concurrency: any thread.

    Attributes:
        address: The gateway's ``host:port``.
        folder: Of the workers' keys.
        check: Takes a device's id and a fence; raises `DeviceLostError` if that lease does not hold the device now.
    """

    address: str
    folder: Path
    check: Callable[[str, int], None]

    def authority(self) -> str:
        """Return the certificate that the gateway is known by.

        Raises:
            TransientError: ``no-keys-here``.
        """
        try:
            return (self.folder / "authority.pem").read_text("ascii")
        except (OSError, ValueError) as error:
            raise TransientError(
                f"the certificate of the farm's authority cannot be read: {error}", code="no-keys-here"
            ) from error

    def ticket(self, device_id: str, device: str, fence: int, key: str) -> str:
        """Return a ticket for a session, if the lease holds.

        Args:
            device_id: The device's id.
            device: As `Ticket.device`.
            fence: The lease's number.
            key: As `Ticket.key`.

        Raises:
            DeviceLostError: If it does not.
            TransientError: ``no-keys-here``.
        """
        self.check(device_id, fence)
        return TicketSigner.read(self.folder / "tickets.key").sign(device, fence, key)


class TicketReader:
    """Reads tickets. The gateway has it."""

    def __init__(self, key: ed25519.Ed25519PublicKey) -> None:
        self._key = key

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the key from its file.

        Raises:
            OSError: If that fails.
            ValueError: If it is none.
        """
        return cls(read_public_key(path))

    def ticket(self, text: object) -> Ticket:
        """Return what a ticket says. Whether it is still valid is another question (`gateway.admissions`).

        Raises:
            BadTicketError: If the farm's workers did not sign it.
        """
        try:
            said = claims_of(text, self._key)
            ticket = Ticket(
                device=str(said["sub"]),
                fence=int(said["fence"]),
                id=str(said["jti"]),
                key=said["cnf"]["jwk"]["x"],
                issued_at=float(said["iat"]),
                expires_at=float(said["exp"]),
            )
        except ForeignTokenError:
            raise BadTicketError("no ticket of this farm") from None
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            raise BadTicketError("no ticket") from None
        times = (ticket.issued_at, ticket.expires_at)
        if not (
            all(map(math.isfinite, times)) and 0 <= ticket.fence < _MOST_FENCE and is_public_key(ticket.key)
        ):
            raise BadTicketError("no ticket")
        return ticket


def id_of(ticket: str) -> str:
    """Return the id (``jti``) of a ticket that this process signed; nothing is checked."""
    return str(json.loads(base64url.decode(ticket.split(".")[1]))["jti"])
