"""Room for deep recursion: TVM's passes recurse along a graph, and long chains overflow an ordinary stack."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")

_STACK_BYTES = 512 << 20
_PYTHON_DEPTH = 50_000


def with_deep_stack(work: Callable[[], Value]) -> Value:
    """Run `work` on a thread with a stack of 512 MiB (address space; only what is used becomes memory)."""
    results: list[Value] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:  # noqa: BLE001  (raised again, in the caller)
            errors.append(error)

    old_size = threading.stack_size(_STACK_BYTES)
    old_depth = sys.getrecursionlimit()
    sys.setrecursionlimit(max(old_depth, _PYTHON_DEPTH))
    try:
        thread = threading.Thread(target=run, name="deep-stack")
        thread.start()
    finally:
        threading.stack_size(old_size)
    thread.join()
    sys.setrecursionlimit(old_depth)
    if errors:
        raise errors[0]
    return results[0]
