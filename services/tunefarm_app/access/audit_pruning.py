"""Prune the audit log from its begin, so that its chain stays verifiable: an entry of the log says what is gone, and its last hash.

What is young cannot be pruned: whoever holds a stolen key of an administrator shall not remove what it did.
"""

from __future__ import annotations

import structlog

from tunefarm_app.runtime.composition import Services
from tunefarm_tuning.core.errors import InvalidInputError, TransientError

log = structlog.stdlib.get_logger(__name__)

LEAST_DAYS = 30.0
_DAY_SEC = 86400.0
_AT_ONCE = 50_000


def prune_audit(services: Services, to: int, digest: str) -> int:
    """Delete the entries of the audit log up to the one with this number and hash; return how many.

    Raises:
        InvalidInputError: ``audit-too-young``, if it is younger than `LEAST_DAYS`.
        ConflictError: ``audit-head-differs``.
        TransientError: ``busy``, if another process writes the log now.
    """
    with services.uow.read() as repos:
        after = repos.audit.after(to - 1, limit=1)
        now = repos.now()
    if after and after[0].seq == to and now - after[0].at < LEAST_DAYS * _DAY_SEC:
        raise InvalidInputError(
            f"entry {to} of the audit log is younger than {LEAST_DAYS:g} days: only older ones can be pruned",
            code="audit-too-young",
            least_days=LEAST_DAYS,
        )
    with services.uow.write() as repos:
        count = repos.audit.prune(to, digest)
        if count is None:
            raise TransientError("another process writes the audit log now: try again", code="busy")
    log.info("audit log pruned", to=to, hash=digest, count=count)
    return count


def apply_audit_retention(services: Services, days: float) -> int:
    """Prune what is older than so many days, a part at a time; return how many entries were deleted."""
    with services.uow.read() as repos:
        last = repos.audit.prunable(repos.now() - max(days, LEAST_DAYS) * _DAY_SEC, limit=_AT_ONCE)
    if last is None:
        return 0
    try:
        return prune_audit(services, last.seq, last.hash)
    except TransientError:
        return 0
