"""API keys: created once, shown once, stored as a hash.

A key reads ``tfk_<id>_<secret>``: the id finds the row, the secret is compared in constant time with its SHA-256.
A fast hash is right here: the secret is 256 random bits, so no dictionary can guess it.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import structlog

from tunefarm_app.runtime.composition import Services
from tunefarm_db.values import ApiKey
from tunefarm_tuning.core.errors import ConflictError, InvalidInputError, TransientError
from tunefarm_tuning.core.untrusted_text import clean

log = structlog.stdlib.get_logger(__name__)

SCOPES = ("read", "write", "device", "admin")
"""Scopes of a key: read; upload, tune and cancel; register devices; all of these and manage keys."""

_TOKEN = re.compile(r"tfk_([0-9a-f]{16})_([A-Za-z0-9_-]{43})")
_TOUCH_AFTER_SEC = 60.0


def create_api_key(
    services: Services, *, name: str, scopes: Sequence[str] = ("admin",), by_key_id: str | None = None
) -> tuple[ApiKey, str]:
    """Create a key; return it and its full text, which is not stored.

    Args:
        services: The process's services.
        name: Its purpose.
        scopes: Its rights, from `SCOPES`.
        by_key_id: The key of the request, for the log.

    Raises:
        InvalidInputError: ``unknown-scope``.
    """
    unknown = sorted(set(scopes) - set(SCOPES))
    if unknown or not scopes:
        raise InvalidInputError(
            f"unknown scope {', '.join(clean(s, 40) for s in unknown) or '(none)'}: the scopes are {', '.join(SCOPES)}",
            code="unknown-scope",
            scopes=list(SCOPES),
        )
    text_and_hash = new_key_text()
    with services.uow.write() as repos:
        key = repos.api_keys.add(
            key_id=text_and_hash.key_id,
            name=clean(name),
            secret_sha256=text_and_hash.secret_sha256,
            scopes=[scope for scope in SCOPES if scope in scopes],
        )
    log.info("api key created", api_key_id=key.id, name=key.name, scopes=key.scopes, by_key_id=by_key_id)
    return key, text_and_hash.text


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyText:
    """A new key: the text to show and the parts to store."""

    key_id: str
    text: str = field(repr=False)
    secret_sha256: str


def new_key_text() -> KeyText:
    """Return a random key."""
    key_id, secret = secrets.token_hex(8), secrets.token_urlsafe(32)
    return KeyText(key_id=key_id, text=f"tfk_{key_id}_{secret}", secret_sha256=_digest(secret))


def verify_api_key(services: Services, token: str) -> ApiKey | None:
    """Return the key with the text `token`; None if there is none, or it is revoked or expired."""
    parts = _TOKEN.fullmatch(token)
    if parts is None:
        return None
    key_id, secret = parts.groups()
    with services.uow.read() as repos:
        key = repos.api_keys.find(key_id)
        now = repos.now()
    # An unknown id takes as long as a wrong secret.
    expected = key.secret_sha256 if key is not None else "0" * 64
    if not hmac.compare_digest(_digest(secret), expected) or key is None or key.revoked_at is not None:
        return None
    if key.expires_at is not None and key.expires_at <= now:
        return None
    if key.last_used_at is None or now - key.last_used_at > _TOUCH_AFTER_SEC:
        # Storing the time of use must not fail the request: a request that reads also works on a read-only database.
        with suppress(TransientError), services.uow.write() as repos:
            repos.api_keys.touch(key_id)
    return key


def list_api_keys(services: Services) -> tuple[ApiKey, ...]:
    """Return all keys, revoked ones included, oldest first."""
    with services.uow.read() as repos:
        return repos.api_keys.list()


def revoke_api_key(services: Services, key_id: str, *, by_key_id: str | None = None) -> ApiKey:
    """Revoke the key; revoking it again changes nothing.

    Raises:
        NotFoundError: ``key-not-found``.
        ConflictError: ``last-admin-key``: without it nobody could create keys.
    """
    with services.uow.write() as repos:
        admins = [key.id for key in repos.api_keys.list(lock=True) if _is_admin(key)]
        if admins == [key_id]:
            raise ConflictError(
                "this is the last key with the scope admin: create another one first",
                code="last-admin-key",
            )
        key = repos.api_keys.revoke(key_id)
    log.info("api key revoked", api_key_id=key.id, name=key.name, by_key_id=by_key_id)
    return key


def _is_admin(key: ApiKey) -> bool:
    return "admin" in key.scopes and key.revoked_at is None


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
