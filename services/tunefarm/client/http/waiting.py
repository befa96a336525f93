"""Poll a value until it meets a condition."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

from tunefarm.client.errors import UnavailableError, WaitTimeoutError
from tunefarm.client.http.links import Link

P = ParamSpec("P")
T = TypeVar("T")

AWAY_SEC = 300.0
"""How long a server may be away during a wait: it or its machine may be restarting."""
_LEAST_POLL_SEC = 0.1
_POLL_SHARE = 0.1
"""Of the time waited so far, between two updates."""


async def wait_until(
    link: Link,
    look: Callable[[], Awaitable[T]],
    is_done: Callable[[T], bool],
    *,
    on_progress: Callable[[T], None] | None,
    timeout_sec: float | None,
    poll_sec: float,
    too_long: str,
    away_sec: float = AWAY_SEC,
    on_away: Callable[[UnavailableError], None] | None = None,
) -> T:
    """Call `look` until `is_done` accepts its value, and return the value.

    Args:
        link: Lets time pass between two looks.
        look: Asks the server.
        is_done: Whether there is nothing more to wait for.
        on_progress: Called with the value after every call of `look`.
        timeout_sec: Longest wait; None for no limit.
        poll_sec: Seconds between updates at most; at first they follow faster, for what takes a second or two.
        too_long: Says that it takes too long.
        away_sec: How long the server may be away, in seconds: the work continues without being watched.
        on_away: Called with the error after each update that the server did not answer.

    Raises:
        WaitTimeoutError: If it takes longer than `timeout_sec`.
        UnavailableError: If the server is away for longer than `away_sec`.
    """
    began = heard = time.monotonic()
    while True:
        away: UnavailableError | None = None
        try:
            state = await look()
        except UnavailableError as error:
            if time.monotonic() - heard >= away_sec:
                raise
            away = error
            if on_away is not None:
                on_away(error)
        else:
            heard = time.monotonic()
            if on_progress is not None:
                on_progress(state)
            if is_done(state):
                return state
        if timeout_sec is not None and time.monotonic() - began >= timeout_sec:
            raise WaitTimeoutError(f"{too_long} after {timeout_sec:g} s", code="wait-timeout") from away
        waited = time.monotonic() - began
        await link.sleep(min(poll_sec, max(_LEAST_POLL_SEC, _POLL_SHARE * waited)))


def each_of(*listeners: Callable[P, object] | None) -> Callable[P, None]:
    """Return a function that calls every listener that is not None with its arguments."""

    def tell(*args: P.args, **kwargs: P.kwargs) -> None:
        for listener in listeners:
            if listener is not None:
                listener(*args, **kwargs)

    return tell
