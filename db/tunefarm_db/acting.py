"""Who acts: the API key of the request that runs now. Repositories note it as owner of rows and in the audit log.

The API sets it once for each request; worker, reconciler and command act as the farm itself, which owns nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(slots=True)
class Acting:
    """A request, or the farm itself.

    Attributes:
        via: ``api``, ``browser`` or ``farm``.
        address: Where the request came from: of a farm behind a proxy, that proxy.
        key_id: Its API key; a browser's session acts for one. None before it is known, and of the farm.
        owner: The key that owns what it creates (`ApiKey.owner`).
        problem: The code of the problem that answered it; empty if none did.
    """

    via: str = "farm"
    address: str = ""
    key_id: str | None = None
    owner: str | None = None
    problem: str = ""


_acting: ContextVar[Acting | None] = ContextVar("tunefarm_acting", default=None)


def acting() -> Acting:
    """Return who acts now, in this task or thread."""
    return _acting.get() or Acting()


@contextmanager
def act_as(who: Acting) -> Iterator[Acting]:
    """Let `who` act during the block, in what it awaits and in the threads that it hands work to, too."""
    token = _acting.set(who)
    try:
        yield who
    finally:
        _acting.reset(token)
