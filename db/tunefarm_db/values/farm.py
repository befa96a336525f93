"""Values of the farm as a whole."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tunefarm_db.values.base import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """A key of the API. Only a hash of its secret is stored.

    Attributes:
        id: The public part, as it stands in the key itself.
        scopes: Its rights; ``["admin"]`` includes all.
        expires_at: End of its validity; None for no end.
        device_name: The one device that it may speak for; None for any.
        device_key: The one pool that it may bring devices into; None for any.
        account: The key whose limits count for it, and which owns what it creates: the first one of a chain of rotated keys, or
            the administrator's who enrolled a device. None: it is its own.
        limits: What it may use (`tunefarm_app.access.quotas.KeyLimits`), if `account` is None.
        rotated_at: When it was rotated last; None if never.
        unrotated_end: Of a rotated key, the end of its validity before; None for no end.
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
    account: str | None
    limits: Json
    rotated_at: float | None
    unrotated_end: float | None

    @property
    def owner(self) -> str:
        """The key that owns what this one creates."""
        return self.account or self.id


class AuditAction(StrEnum):
    """What an entry of the audit log tells of."""

    KEY_CREATED = "key-created"
    KEY_ROTATED = "key-rotated"
    KEY_CHANGED = "key-changed"
    KEY_REVOKED = "key-revoked"
    LINK_CREATED = "link-created"
    SIGNED_IN = "signed-in"
    SIGNED_OUT = "signed-out"
    MODEL_SUBMITTED = "model-submitted"
    MODEL_CHANGED = "model-changed"
    MODEL_DELETED = "model-deleted"
    SAMPLES_ADDED = "samples-added"
    SAMPLES_DELETED = "samples-deleted"
    JOB_SUBMITTED = "job-submitted"
    JOB_CHANGED = "job-changed"
    JOB_CANCELLED = "job-cancelled"
    JOB_FINISHED = "job-finished"
    JOB_PAUSED = "job-paused"
    JOB_RESUMED = "job-resumed"
    JOB_RETRIED = "job-retried"
    JOB_MEASURED = "job-measured"
    SWEEP_SUBMITTED = "sweep-submitted"
    SWEEP_CANCELLED = "sweep-cancelled"
    TOKEN_CREATED = "token-created"  # noqa: S105  (a name)
    DEVICE_ENROLLED = "device-enrolled"
    DEVICE_REGISTERED = "device-registered"
    DEVICE_CERTIFIED = "device-certified"
    DEVICE_DRAINED = "device-drained"
    DEVICE_QUARANTINED = "device-quarantined"
    DEVICE_RELEASED = "device-released"
    DEVICE_REMOVED = "device-removed"
    RECORDS_IMPORTED = "records-imported"
    RECORDS_PURGED = "records-purged"
    WEBHOOK_CREATED = "webhook-created"
    WEBHOOK_ENABLED = "webhook-enabled"
    WEBHOOK_DISABLED = "webhook-disabled"
    WEBHOOK_TESTED = "webhook-tested"
    WEBHOOK_DELETED = "webhook-deleted"
    DOWNLOADED = "downloaded"
    REFUSED = "refused"
    AUDIT_PRUNED = "audit-pruned"
    RESTORED = "restored"


@dataclass(frozen=True, slots=True, kw_only=True)
class NotedEntry:
    """An entry of the audit log that is not chained yet.

    Attributes:
        actor: The API key that acted; None if it is not known, or the farm itself.
        via: ``api``, ``browser`` or ``farm``.
        address: Where the request came from; empty if there was none.
        subject: The id of what it was done to.
    """

    id: str
    at: float
    actor: str | None
    via: str
    address: str
    action: AuditAction
    subject: str | None
    details: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingEntries:
    """Entries of the audit log that are not chained yet: more than a second's are a fault.

    Attributes:
        since: The time of the oldest one; None if there is none.
    """

    count: int
    since: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """An entry of the audit log, as `NotedEntry`.

    Attributes:
        seq: Its number; no number is left out.
        hash: SHA-256 over the hash of the entry before and this one (`tunefarm_text.audit_chain`).
    """

    seq: int
    at: float
    actor: str | None
    via: str
    address: str
    action: AuditAction
    subject: str | None
    details: Json
    hash: str
