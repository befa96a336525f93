"""An answer about the farm that takes time to find out: it is found out once for all who ask meanwhile, and kept for a moment."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from starlette.concurrency import run_in_threadpool

from tunefarm_app.runtime.composition import Services

Answer = TypeVar("Answer")

_KEPT_SEC = 2.0


class KeptAnswer(Generic[Answer]):
    """Finds an answer out at most once in two seconds. Used by one event loop.

    One caller looks, in a thread. The others wait for its answer without one: else whoever asks often enough while a part of the farm
    does not answer would hold all threads of the process.

    Args:
        look: Finds the answer out.
    """

    def __init__(self, look: Callable[[Services], Answer]) -> None:
        self._look = look
        self._lock = asyncio.Lock()
        self._kept: tuple[float, Answer] | None = None

    async def of(self, services: Services) -> Answer:
        """Return the answer."""
        async with self._lock:
            if self._kept is None or time.monotonic() - self._kept[0] >= _KEPT_SEC:
                answer = await run_in_threadpool(self._look, services)
                self._kept = (time.monotonic(), answer)
            return self._kept[1]
