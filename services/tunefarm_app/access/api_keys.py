"""API keys: created once, shown once, stored as a hash.

A key reads ``tfk_<id>_<secret>``: the id finds the row, the secret is compared in constant time with its SHA-256.
A fast hash is right here: the secret is 256 random bits, so no dictionary can guess it.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import re
import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import structlog

from tunefarm_app.access.quotas import NO_LIMITS, KeyLimits
from tunefarm_app.runtime.composition import Services
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import ApiKey, AuditAction
from tunefarm_tuning.core.errors import ConflictError, InvalidInputError, TransientError
from tunefarm_tuning.core.untrusted_text import clean

log = structlog.stdlib.get_logger(__name__)

SCOPES = ("read", "write", "device", "admin")
"""Scopes of a key: read; upload, tune and cancel; register devices; all of these and manage keys."""

OVERLAP_SEC = 7 * 86400.0
"""How long a rotated key stays valid beside its successor."""

FORMER_SEC = 86400.0
"""How long a device's former credential stays valid after the first use of its successor."""

ADMIN_SCOPE = "admin"
SESSION_KINDS = {"session": "browser session", "sign-in": "sign-in link"}
"""What stands in for a key in a browser: the kinds and their names. Its one scope is ``KIND:KEY_ID``."""
_TOKEN = re.compile(r"tfk_([0-9a-f]{16})_([A-Za-z0-9_-]{43})")
_TOUCH_AFTER_SEC = 60.0
_LEAST_LEFT_SEC = 86400.0
"""How long another key with the scope admin must last at least when one is revoked."""


def create_api_key(
    services: Services,
    *,
    name: str,
    scopes: Sequence[str] = ("admin",),
    valid_sec: float | None = None,
    limits: KeyLimits = NO_LIMITS,
    by_key_id: str | None = None,
) -> tuple[ApiKey, str]:
    """Create a key; return it and its full text, which is not stored.

    Args:
        services: The process's services.
        name: Its purpose.
        scopes: Its rights, from `SCOPES`.
        valid_sec: Validity in seconds; None for no end.
        limits: What it may use.
        by_key_id: The key of the request, for the log.

    Raises:
        InvalidInputError: ``unknown-scope``.
    """
    unknown = sorted(set(scopes) - set(SCOPES))
    if unknown or not scopes:
        names = ", ".join(SCOPES)
        raise InvalidInputError(
            f"unknown scope {', '.join(clean(s, 40) for s in unknown)}: the scopes are {names}"
            if unknown
            else f"a key needs at least one scope: {names}",
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
            valid_sec=valid_sec,
            limits=limits.to_json(),
        )
        repos.audit.note(
            AuditAction.KEY_CREATED, key.id, name=key.name, scopes=key.scopes, limits=key.limits or None
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


def verify_api_key(services: Services, token: str, *, is_use: bool = True) -> ApiKey | None:
    """Return the key with the text `token`; None if there is none, or it is revoked or expired. Unless it is no use, its time is noted."""
    known = _known(services, token)
    if known is None or not is_valid(*known):
        return None
    key, now = known
    if is_use:
        note_use(services, key, now)
    return key


def why_not_valid(services: Services, token: str) -> str:
    """Return why a key that `verify_api_key` does not know cannot be used, and what to do; its end is told only to who has all of it."""
    known = _known(services, token)
    if known is None or is_valid(*known):
        return "this API key is not valid"
    key, _ = known
    if not is_credential(key):
        return f"this API key {'has expired' if key.revoked_at is None else 'was revoked'}"
    device = clean(str(key.device_name), 100)
    if key.revoked_at is None:
        why = f"the credential of device {device} has expired"
    else:
        with services.uow.read() as repos:
            is_there = repos.devices.find(str(key.device_name)) is not None
        why = f"device {device} was {'enrolled again since' if is_there else 'removed from this farm'}, so this credential ended"
    again = f"`tunefarm device token --name {device}` prints a token at the farm, `tunefarm device join --token TOKEN` takes it here"
    return f"{why}. To add the device again: {again}"


def _known(services: Services, token: str) -> tuple[ApiKey, float] | None:
    """Return the key with this text, valid or not, and the database's time; None if there is none."""
    parts = _TOKEN.fullmatch(token)
    if parts is None:
        return None
    key_id, secret = parts.groups()
    with services.uow.read() as repos:
        key = repos.api_keys.find(key_id)
        now = repos.now()
    # An unknown id takes as long as a wrong secret.
    expected = key.secret_sha256 if key is not None else "0" * 64
    return (key, now) if hmac.compare_digest(_digest(secret), expected) and key is not None else None


def note_use(services: Services, key: ApiKey, now: float) -> None:
    """Note that a key was used now, to a minute."""
    if key.last_used_at is None or now - key.last_used_at > _TOUCH_AFTER_SEC:
        # Storing the time of use must not fail the request: a request that reads also works on a read-only database.
        with suppress(TransientError), services.uow.write() as repos:
            repos.api_keys.touch(key.id)
            if key.last_used_at is None and is_credential(key):
                repos.api_keys.end_former(key, FORMER_SEC)


def is_credential(key: ApiKey) -> bool:
    """Return whether it is a device's credential, and no token to enrol it."""
    return key.device_name is not None and key.scopes[:1] == ["device"]


def rotate_api_key(
    services: Services, key_id: str, *, overlap_sec: float = OVERLAP_SEC, by_key_id: str | None = None
) -> tuple[ApiKey, str]:
    """Create a key in place of another: with its name, its rights and as long a validity; return it, with the limits that count for it, and its full text.

    The other one stays valid for `overlap_sec`, or until its own end if that is sooner; rotated again, for as long from then on.
    Both have the same limits and own the same.

    Raises:
        NotFoundError: ``key-not-found``.
        ConflictError: ``key-not-rotatable`` if it is not valid any more, or a device's, a token or a session: these are
            replaced by enrolling, and by signing in.
    """
    new = new_key_text()
    with services.uow.write() as repos:
        old = repos.api_keys.get(key_id, lock=True)
        if not is_valid(old, repos.now()) or old.device_name is not None or set(old.scopes) - set(SCOPES):
            raise ConflictError(
                "only a valid key that a person created can be rotated",
                code="key-not-rotatable",
                key_id=key_id,
            )
        own_end = old.expires_at if old.rotated_at is None else old.unrotated_end
        key = repos.api_keys.add(
            key_id=new.key_id,
            name=old.name,
            secret_sha256=new.secret_sha256,
            scopes=old.scopes,
            valid_sec=None if own_end is None else own_end - old.created_at,
            account=old.owner,
        )
        repos.api_keys.rotate(old.id, overlap_sec, own_end=own_end)
        repos.audit.note(AuditAction.KEY_ROTATED, old.id, successor=key.id, overlap_sec=overlap_sec)
        limits = _account(repos, old).limits
    log.info("api key rotated", api_key_id=key.id, name=key.name, instead_of=old.id, by_key_id=by_key_id)
    return replace(key, limits=limits), new.text


def list_api_keys(services: Services) -> tuple[ApiKey, ...]:
    """Return all keys, revoked ones included, oldest first; each with the limits that count for it."""
    with services.uow.read() as repos:
        keys = repos.api_keys.list()
    limits = {key.id: key.limits for key in keys}
    return tuple(replace(key, limits=limits.get(key.owner, key.limits)) for key in keys)


def limit_api_key(services: Services, key_id: str, limits: KeyLimits | None) -> ApiKey:
    """Give a key these limits in place of those that it has; they count for all keys that it was rotated to, or from.

    None leaves them.

    Raises:
        NotFoundError: ``key-not-found``.
    """
    with services.uow.write() as repos:
        key = repos.api_keys.get(key_id)
        account = _account(repos, key)
        if limits is None:
            return replace(key, limits=account.limits)
        repos.api_keys.limit(account.id, limits.to_json())
        repos.audit.note(AuditAction.KEY_CHANGED, key.id, limits=limits.to_json())
    log.info("api key limited", api_key_id=key.id, limits=limits.to_json())
    return replace(key, limits=limits.to_json())


def _account(repos: Repositories, key: ApiKey) -> ApiKey:
    """Return the first key of a rotation, whose limits count for all of them; the key itself if that one is gone."""
    return repos.api_keys.find(key.owner) or key


def revoke_api_key(services: Services, key_id: str, *, by_key_id: str | None = None) -> ApiKey:
    """Revoke the key; revoking it again changes nothing.

    Raises:
        NotFoundError: ``key-not-found``.
        ConflictError: ``last-admin-key``: without it nobody could create keys, now or from the end of another key on.
    """
    with services.uow.write() as repos:
        now = repos.now()
        admins = {
            key.id: math.inf if key.expires_at is None else key.expires_at
            for key in repos.api_keys.list(lock=True)
            if ADMIN_SCOPE in key.scopes and is_valid(key, now)
        }
        end = admins.pop(key_id, None)
        if end is not None and max(admins.values(), default=now) < max(end, now + _LEAST_LEFT_SEC):
            raise ConflictError(
                "this is the last key with the scope admin, or all others expire before it: create another key first",
                code="last-admin-key",
            )
        was_revoked = repos.api_keys.get(key_id).revoked_at is not None
        key = repos.api_keys.revoke(key_id)
        ended = end_sessions(repos, key_id)
        if ended or not was_revoked:
            repos.audit.note(AuditAction.KEY_REVOKED, key.id, name=key.name, sessions=ended or None)
    log.info("api key revoked", api_key_id=key.id, name=key.name, by_key_id=by_key_id)
    return key


def end_sessions(repos: Repositories, key_id: str) -> int:
    """Revoke the browser sessions and sign-in links of a key; return how many."""
    scopes = [[f"{kind}:{key_id}"] for kind in SESSION_KINDS]
    of_key = [key for key in repos.api_keys.valid_named(list(SESSION_KINDS.values())) if key.scopes in scopes]
    for key in of_key:
        repos.api_keys.revoke(key.id)
    return len(of_key)


def is_valid(key: ApiKey, now: float) -> bool:
    """Return whether it is neither revoked nor expired."""
    return key.revoked_at is None and (key.expires_at is None or key.expires_at > now)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
