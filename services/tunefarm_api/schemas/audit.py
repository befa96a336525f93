"""Schemas of the audit log."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from tunefarm_api.schemas.base import Input, Output
from tunefarm_db.values import AuditAction


class AuditEntry(Output):
    """An entry of the audit log."""

    seq: int = Field(description="Number of the entry, without gaps.")
    at: float = Field(description="Time of the action, Unix seconds.")
    actor: str | None = Field(
        description="Id of the API key that acted; null for the farm itself, or a stranger."
    )
    via: str = Field(description="`api`, `browser`, or `farm` for the farm's own processes and commands.")
    address: str = Field(
        description="Address that the request came from (behind a proxy that `TUNEFARM_TRUSTED_PROXIES` does not name, the proxy's); empty if there was none."
    )
    action: AuditAction = Field(description="What was done.")
    subject: str | None = Field(description="Id of what it was done to.")
    details: dict[str, Any] = Field(
        description="Details. `count`: number of equal actions that this entry stands for."
    )
    hash: str = Field(
        description="SHA-256 of a JSON array, without spaces and with sorted keys, of the hash before (64 zeros for the first "
        "entry) and the values of `seq`, `at`, `actor`, `via`, `address`, `action`, `subject`, `details`."
    )


class AuditBreak(Output):
    """The first place where the log's chain does not hold."""

    seq: int = Field(description="Number of the entry.")
    reason: str = Field(description="What is wrong with it.")


class AuditPrune(Input):
    """Up to which entry the audit log is to be pruned."""

    to: int = Field(ge=1, lt=1 << 31, description="Number of the last entry to delete.")
    hash: str = Field(
        pattern="^[0-9a-f]{64}$",
        description="Its hash, as in an export, so that only entries that the caller has seen are deleted.",
    )


class AuditPruned(Output):
    """What was deleted of the audit log."""

    count: int = Field(description="Number of entries.")


class AuditCheck(Output):
    """A check of the audit log."""

    seq: int = Field(description="Number of the last correct entry: the log's last entry if the chain holds.")
    hash: str = Field(
        description="Its hash. Note both elsewhere, and give them to a later check as `head=SEQ:HASH`."
    )
    pruned: int = Field(
        0, description="Number of entries that were pruned at its begin, as an entry of it says."
    )
    broken: AuditBreak | None = Field(description="Where the chain does not hold; null if it does.")
    waiting: int = Field(
        description="Number of entries that are not in the chain yet: a few, of the last second, or something is wrong."
    )
    waiting_since: float | None = Field(description="Time of the oldest of them, Unix seconds; null if none.")
