"""Looking at something again and again until it is as it should be."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tunefarm.client.errors import WaitTimeoutError
from tunefarm.client.links import Link

T = TypeVar("T")


async def wait_until(
    link: Link,
    look: Callable[[], Awaitable[T]],
    is_done: Callable[[T], bool],
    *,
    on_progress: Callable[[T], None] | None,
    timeout_sec: float | None,
    poll_sec: float,
    too_long: str,
) -> T:
    """Return what `look` returned when that was done.

    Args:
        link: Lets time pass between two looks.
        look: Asks the server.
        is_done: Whether there is nothing more to wait for.
        on_progress: Called with what was seen, after every look.
        timeout_sec: How long to wait at most; None for ever.
        poll_sec: Time between two looks.
        too_long: Says that it takes too long.
    """
    deadline = None if timeout_sec is None else time.monotonic() + timeout_sec
    while True:
        seen = await look()
        if on_progress is not None:
            on_progress(seen)
        if is_done(seen):
            return seen
        if deadline is not None and time.monotonic() >= deadline:
            raise WaitTimeoutError(f"{too_long} after {timeout_sec:g} s", code="wait-timeout")
        await link.sleep(poll_sec)
