"""Credentials of devices: how long one is valid, and how its agent replaces it before its end.

A device has at most two: the newest, and the one that it replaced, which ends a day after the newest was used first. A device whose
power fails before it has stored its successor, and that stays off for a week, has not lost its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from tunefarm_app.access.api_keys import is_credential, new_key_text
from tunefarm_app.runtime.composition import Services
from tunefarm_app.settings import Settings
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import ApiKey, AuditAction
from tunefarm_tuning.core.errors import ConflictError

log = structlog.stdlib.get_logger(__name__)

_DUE_SHARE = 0.5
"""A credential is replaced once this share of its validity is left."""

_AGAIN_SEC = 600.0
"""An agent that lost the successor before it had stored it gets another one after this time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """What is shown of a device's credential.

    Attributes:
        key_id: Its id among the API keys, by which it is revoked.
        created_at: When the device enrolled, or replaced its former one; Unix seconds.
        expires_at: Its end; None for one of a farm before 2026, which its agent replaces at once.
        last_used_at: Its last use, to a minute; None before the first.
    """

    key_id: str
    created_at: float
    expires_at: float | None
    last_used_at: float | None


def valid_sec(settings: Settings) -> float:
    """Return how long a new credential is valid."""
    return settings.device_credential_days * 86400.0


def is_due(key: ApiKey, now: float) -> bool:
    """Return whether an agent that uses this credential should replace it now."""
    if not is_credential(key):
        return False
    if key.rotated_at is not None:
        return now - key.rotated_at > _AGAIN_SEC
    if key.expires_at is None:
        return True
    return key.expires_at - now < _DUE_SHARE * (key.expires_at - key.created_at)


def renew_credential(services: Services, key: ApiKey) -> tuple[ApiKey, str]:
    """Replace the credential that the request was made with; return its successor and the full text of that.

    The former one stays valid until its own end, or for `api_keys.FORMER_SEC` from the successor's first use. Any other one of the device
    is revoked.

    Raises:
        ConflictError: ``credential-not-due``, if it is no device's credential, or needs no successor yet, or its successor is in use.
    """
    new = new_key_text()
    with services.uow.write() as repos:
        old = repos.api_keys.find(key.id, lock=True)
        if old is None or old.revoked_at is not None or not is_due(old, repos.now()):
            raise ConflictError(
                "this key is not a device credential that expires soon: agents replace a credential after half of its validity",
                code="credential-not-due",
            )
        device_name = str(old.device_name)
        others = [
            key for key in repos.api_keys.of_devices([device_name]) if is_credential(key) and key.id != old.id
        ]
        if old.rotated_at is not None and any(other.last_used_at is not None for other in others):
            raise ConflictError(
                "the successor of this credential is in use: an agent that still has this credential must enrol again",
                code="credential-not-due",
            )
        for other in others:
            repos.api_keys.revoke(other.id)
        own_end = old.expires_at if old.rotated_at is None else old.unrotated_end
        successor = repos.api_keys.add(
            key_id=new.key_id,
            name=old.name,
            secret_sha256=new.secret_sha256,
            scopes=old.scopes,
            valid_sec=valid_sec(services.settings),
            device_name=device_name,
            device_key=old.device_key,
            account=old.owner,
        )
        repos.api_keys.rotate(old.id, valid_sec(services.settings), own_end=own_end)
        repos.audit.note(AuditAction.KEY_ROTATED, old.id, successor=successor.id, device=device_name)
    log.info("device credential replaced", name=device_name, api_key_id=successor.id, instead_of=old.id)
    return successor, new.text


def credentials_of(repos: Repositories, names: Sequence[str]) -> dict[str, Credential]:
    """Return the newest valid credential of each of these devices, by name; devices that use another key have none."""
    newest: dict[str, Credential] = {}
    for key in repos.api_keys.of_devices(names):
        if is_credential(key):
            newest[str(key.device_name)] = Credential(
                key_id=key.id,
                created_at=key.created_at,
                expires_at=key.expires_at,
                last_used_at=key.last_used_at,
            )
    return newest
