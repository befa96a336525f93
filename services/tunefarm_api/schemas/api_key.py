"""Schemas of API keys."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from tunefarm_api.schemas.base import Input, Output


class ApiKeyCreate(Input):
    """A request for a key."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"name": "lab-node-3", "scopes": ["read", "device"]}]}
    )

    name: str = Field(min_length=1, max_length=100, description="What it is for, for people.")
    scopes: list[str] = Field(
        min_length=1,
        max_length=10,
        description="What it may do: `read` (look), `write` (upload, tune, cancel), `device` (register devices), "
        "`admin` (all of these, and keys).",
    )


class ApiKey(Output):
    """A key, without its secret."""

    id: str = Field(description="Its identity; it stands in the key itself and in the log.")
    name: str = Field(description="What it is for.")
    scopes: list[str] = Field(description="What it may do; `enrol` is the use of an enrolment token.")
    created_at: float = Field(description="When it was made, Unix seconds.")
    last_used_at: float | None = Field(
        description="About when it was last used, Unix seconds; null if never."
    )
    revoked_at: float | None = Field(
        description="When it was revoked, or used up, Unix seconds; null while it is good."
    )
    expires_at: float | None = Field(description="When its time is over, Unix seconds; null for never.")
    device_name: str | None = Field(description="The one device that it may speak for; null for any.")
    device_key: str | None = Field(description="The one pool that it may bring devices into; null for any.")


class NewApiKey(ApiKey):
    """A key that was just made."""

    key: str = Field(description="The key itself. It is shown this once: only a hash of it is kept.")


class SignInLink(Output):
    """What signs a browser in, once."""

    path: str = Field(description="Where to send the browser, below the server's URL. It is shown this once.")
    expires_at: float = Field(description="When its time is over, Unix seconds.")
