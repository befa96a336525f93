"""Schemas of API keys."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from tunefarm_api.schemas.base import Input, Output
from tunefarm_app.access.api_keys import OVERLAP_SEC
from tunefarm_text.job_terms import MAX_PRIORITY


class KeyLimits(Input):
    """What a key, with those that it is rotated to, may use; null for no limit."""

    model_config = ConfigDict(extra="forbid", frozen=True, from_attributes=True)

    bytes: int | None = Field(
        None,
        ge=0,
        lt=1 << 62,
        description="Bytes of models, samples, imported records and running uploads together.",
    )
    open_jobs: int | None = Field(
        None, ge=0, lt=1 << 31, description="Jobs that have not ended, and artifacts that are measured again."
    )
    device_minutes: float | None = Field(
        None,
        ge=0,
        le=1e9,
        description="Minutes of search of the jobs of the last 30 days. An open job counts with its whole time budget, which it then "
        "must have.",
    )
    priority: int | None = Field(
        None, ge=-MAX_PRIORITY, le=MAX_PRIORITY, description="The highest priority of its jobs."
    )


class ApiKeyChange(Input):
    """A change of an API key."""

    limits: KeyLimits | None = Field(
        None, description="Its new limits, which replace the present ones; null keeps the present ones."
    )


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
    valid_sec: float | None = Field(
        None, gt=0, le=10 * 365 * 86400, description="Validity in seconds; null for no end."
    )
    limits: KeyLimits | None = Field(None, description="What it may use; null for no limits.")


class ApiKeyRotation(Input):
    """A request to replace an API key by a new one."""

    overlap_sec: float = Field(
        OVERLAP_SEC, ge=0, le=365 * 86400, description="Seconds for which the old key stays valid."
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
    account: str | None = Field(
        description="Key whose limits count, and which owns what this one creates: the first of a chain of rotated keys, or that of "
        "who enrolled a device; null for itself."
    )
    limits: KeyLimits = Field(description="What it may use.")
    rotated_at: float | None = Field(description="Time of its last rotation, Unix seconds; null if never.")


class NewApiKey(ApiKey):
    """A new API key."""

    key: str = Field(description="The key itself, shown only now: the server keeps a hash.")


class SignInLink(Output):
    """A link that signs one browser in, once."""

    path: str = Field(
        description="Path to open in the browser, relative to the server's URL. Shown only now."
    )
    expires_at: float = Field(description="Expiry time, Unix seconds.")
