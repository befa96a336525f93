"""Values of the farm as a whole."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """A key of the API. Only a hash of its secret is stored.

    Attributes:
        id: The public part, as it stands in the key itself.
        scopes: Its rights; ``["admin"]`` includes all.
        expires_at: End of its validity; None for no end.
        device_name: The one device that it may speak for; None for any.
        device_key: The one pool that it may bring devices into; None for any.
    """

    id: str
    name: str
    secret_sha256: str
    scopes: list[str]
    created_at: float
    last_used_at: float | None
    revoked_at: float | None
    expires_at: float | None
    device_name: str | None
    device_key: str | None
