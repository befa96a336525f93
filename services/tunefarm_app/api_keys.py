"""API keys: made once, shown once, stored as a hash.

A key reads ``tfk_<id>_<secret>``: the id finds the row, the secret is compared in constant time with its SHA-256.
A fast hash is right here: the secret is 256 random bits, nothing that could be guessed from a dictionary.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence

from tunefarm_app.composition import Services
from tunefarm_db.values import ApiKey
from tunefarm_tuning.errors import InvalidInputError
from tunefarm_tuning.untrusted_text import clean

SCOPES = ("read", "write", "device", "admin")
"""What a key may do: look; upload, tune and cancel; register devices; all of these and keys."""

_TOKEN = re.compile(r"tfk_([0-9a-f]{16})_([A-Za-z0-9_-]{43})")
_TOUCH_AFTER_SEC = 60.0


def create_api_key(
    services: Services, *, name: str, scopes: Sequence[str] = ("admin",)
) -> tuple[ApiKey, str]:
    """Make a key; return it and its full text, which is not kept anywhere.

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
    key_id, secret = secrets.token_hex(8), secrets.token_urlsafe(32)
    with services.uow.write() as repos:
        key = repos.api_keys.add(
            key_id=key_id, name=clean(name), secret_sha256=_digest(secret), scopes=list(scopes)
        )
    return key, f"tfk_{key_id}_{secret}"


def verify_api_key(services: Services, token: str) -> ApiKey | None:
    """Return the key that `token` is the text of; None where there is none, or it is revoked."""
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
    if key.last_used_at is None or now - key.last_used_at > _TOUCH_AFTER_SEC:
        with services.uow.write() as repos:
            repos.api_keys.touch(key_id)
    return key


def revoke_api_key(services: Services, key_id: str) -> ApiKey:
    """Make the key worthless from now on. Raises `NotFoundError` if there is no such key."""
    with services.uow.write() as repos:
        return repos.api_keys.revoke(key_id)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
