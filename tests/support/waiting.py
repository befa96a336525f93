"""Wait for a condition, however busy the machine is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TypeVar

import psutil

Value = TypeVar("Value")
_REST = 4.0
"""Rest between two checks, in times of a check."""
_LONGEST_REST_SEC = 1.0


def wait_until(
    condition: Callable[[], Value],
    awaited: str | Callable[[], str],
    *,
    within_sec: float = 300.0,
    every_sec: float = 0.05,
) -> Value:
    """Return the first true value of the condition; `awaited` names it in the error.

    A condition that takes long (a request, a process) is checked more seldom than `every_sec`: what it waits for needs the processor.
    """
    deadline = time.monotonic() + within_sec
    while True:
        begun = time.monotonic()
        if value := condition():
            return value
        now = time.monotonic()
        if now > deadline:
            raise AssertionError(
                f"waited {within_sec:g} s in vain for {awaited() if callable(awaited) else awaited}"
            )
        time.sleep(max(every_sec, min(_REST * (now - begun), _LONGEST_REST_SEC)))


def gone(pid: int) -> bool:
    """Whether a process is no more (a zombie is no more)."""
    try:
        return psutil.Process(pid).status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return True


def wait_gone(pids: Iterable[int], awaited: str) -> None:
    """Wait for the end of processes: a killed one disappears after a moment."""
    left = list(pids)
    wait_until(lambda: all(map(gone, left)), f"the end of {awaited}")
