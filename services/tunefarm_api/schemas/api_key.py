"""Schemas of API keys."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from tunefarm_api.schemas.base import Input, Output


class ApiKeyCreate(Input):
    """A request to create an API key."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"name": "lab-node-3", "scopes": ["read", "device"]}]}
    )

    name: str = Field(min_length=1, max_length=100, description="Purpose of the key.")
    scopes: list[str] = Field(
        min_length=1,
        max_length=10,
        description="Rights: `read`, `write` (upload, tune, cancel), `device` (register devices), `admin` (all of "
        "these, and manage keys).",
    )


class ApiKey(Output):
    """An API key, without its secret."""

    id: str = Field(description="Identifier; part of the key itself, and shown in the log.")
    name: str = Field(description="Purpose of the key.")
    scopes: list[str] = Field(description="Rights; `enrol` allows only the use of an enrolment token.")
    created_at: float = Field(description="Creation time, Unix seconds.")
    last_used_at: float | None = Field(
        description="Approximate time of the last use, Unix seconds; null if never used."
    )
    revoked_at: float | None = Field(
        description="Time of revocation or of a token's use, Unix seconds; null while valid."
    )
    expires_at: float | None = Field(description="Expiry time, Unix seconds; null if it does not expire.")
    device_name: str | None = Field(description="Device that the key is limited to; null for any.")
    device_key: str | None = Field(description="Pool that the key is limited to; null for any.")


class NewApiKey(ApiKey):
    """A new API key."""

    key: str = Field(description="The key itself, shown only now: the server keeps a hash.")


class SignInLink(Output):
    """A link that signs one browser in, once."""

    path: str = Field(
        description="Path to open in the browser, relative to the server's URL. Shown only now."
    )
    expires_at: float = Field(description="Expiry time, Unix seconds.")
