"""Schemas of the keys that the farm signs its results with."""

from __future__ import annotations

from pydantic import Field

from tunefarm_api.schemas.base import Output


class SigningKey(Output):
    """A public key of the farm."""

    id: str = Field(description="What envelopes name it by: the SHA-256 of the key's DER form.")
    public_key: str = Field(description="The Ed25519 key, as PEM.")
    is_current: bool = Field(
        description="Whether workers sign with it now; a former key verifies what it signed."
    )
