"""Signing in with a browser: a session acts for an API key for some hours, if it is used; a link starts one session.

Sessions and links are API keys that can do nothing else: stored as a hash, with an expiry, listed and revoked like other
keys. Each names the key that it stands in for, and ends with it.
"""

from __future__ import annotations

import re

import structlog

from tunefarm_app.access.api_keys import (
    SESSION_KINDS,
    end_sessions,
    new_key_text,
    note_use,
    verify_api_key,
)
from tunefarm_app.runtime.composition import Services
from tunefarm_app.settings import Settings
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import ApiKey, AuditAction

log = structlog.stdlib.get_logger(__name__)

LINK_VALID_SEC = 15 * 60.0

_SESSION, _LINK = SESSION_KINDS
_KEPT_SEC = 7 * 86400.0
_FOR = re.compile(f"({_SESSION}|{_LINK}):([0-9a-f]{{16}})")


def start_session(services: Services, text: str) -> str | None:
    """Start a session for an API key or a link, which is used up; return its text, or None if `text` is neither."""
    shown = verify_api_key(services, text)
    if shown is None:
        return None
    way = _way(shown)
    if way is not None and way[0] != _LINK:
        return None  # a session must not start another: it would never end
    key_id = shown.id if way is None else way[1]
    with services.uow.write() as repos:
        key = _good(repos, key_id)
        if key is None or (way is not None and not repos.api_keys.use_up(shown.id)):
            return None
        repos.api_keys.forget_expired(sorted(SESSION_KINDS.values()), _KEPT_SEC)
        session = _add(repos, _SESSION, key, valid_sec(services.settings))
        repos.audit.note(AuditAction.SIGNED_IN, key.id, actor=key.id, by_link=way is not None)
    log.info("session started", api_key_id=key.id, by_link=way is not None)
    return session


def make_link(services: Services, key: ApiKey) -> str:
    """Return the text of a new sign-in link for this key, valid once and for `LINK_VALID_SEC`."""
    with services.uow.write() as repos:
        repos.audit.note(AuditAction.LINK_CREATED, key.id)
        return _add(repos, _LINK, key, LINK_VALID_SEC)


def link_key(services: Services, text: str) -> ApiKey | None:
    """Return the API key that a link signs in; None if it was used, or has expired. It is not used up by that."""
    link = verify_api_key(services, text, is_use=False)
    way = None if link is None else _way(link)
    if way is None or way[0] != _LINK:
        return None
    with services.uow.read() as repos:
        return _good(repos, way[1])


def valid_sec(settings: Settings) -> float:
    """Return how long a session may last."""
    return settings.session_hours * 3600.0


def session_key(services: Services, text: str, *, is_use: bool = True) -> ApiKey | None:
    """Return the API key that a session acts for; None if the session or the key is no longer valid.

    Args:
        services: The process's services.
        text: The session's text.
        is_use: Whether somebody used the session, so that its idle time begins anew; otherwise a page renews itself.
    """
    session = verify_api_key(services, text, is_use=False)
    way = None if session is None else _way(session)
    if session is None or way is None or way[0] != _SESSION:
        return None
    with services.uow.read() as repos:
        key, now = _good(repos, way[1]), repos.now()
    used_at = session.created_at if session.last_used_at is None else session.last_used_at
    if key is None or now - used_at > services.settings.session_idle_hours * 3600.0:
        return None
    if is_use:
        note_use(services, session, now)
    return key


def sign_out_everywhere(services: Services, key: ApiKey) -> int:
    """End all browser sessions and sign-in links of a key; return how many."""
    with services.uow.write() as repos:
        ended = end_sessions(repos, key.id)
        repos.audit.note(AuditAction.SIGNED_OUT, key.id, actor=key.id, sessions=ended)
    log.info("all sessions ended", api_key_id=key.id, sessions=ended)
    return ended


def end_session(services: Services, text: str) -> None:
    """End the session; an unknown or ended one is ignored."""
    session = verify_api_key(services, text)
    way = None if session is None else _way(session)
    if session is not None and way is not None and way[0] == _SESSION:
        with services.uow.write() as repos:
            repos.api_keys.revoke(session.id)
            repos.audit.note(AuditAction.SIGNED_OUT, way[1], actor=way[1])
        log.info("session ended", api_key_id=way[1])


def _add(repos: Repositories, kind: str, key: ApiKey, valid_sec: float) -> str:
    text_and_hash = new_key_text()
    repos.api_keys.add(
        key_id=text_and_hash.key_id,
        name=SESSION_KINDS[kind],
        secret_sha256=text_and_hash.secret_sha256,
        scopes=[f"{kind}:{key.id}"],
        valid_sec=valid_sec,
    )
    return text_and_hash.text


def _way(key: ApiKey) -> tuple[str, str] | None:
    match = _FOR.fullmatch(key.scopes[0]) if len(key.scopes) == 1 else None
    return None if match is None else (match[1], match[2])


def _good(repos: Repositories, key_id: str) -> ApiKey | None:
    key = repos.api_keys.find(key_id)
    if key is None or key.revoked_at is not None:
        return None
    return None if key.expires_at is not None and key.expires_at <= repos.now() else key
