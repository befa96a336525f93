"""The stack and the memory of TVM's passes: a larger stack for deep recursion, and errors that mean "out of memory"."""

from __future__ import annotations

import contextvars
import sys
import threading
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")

_STACK_BYTES = 512 << 20
_PYTHON_DEPTH = 50_000


def with_deep_stack(work: Callable[[], Value]) -> Value:
    """Run `work` on a thread with a stack of 512 MiB (address space; only what is used becomes memory).

    TVM's passes recurse along a graph: a long chain of operators overflows an ordinary stack.
    """
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
        thread = threading.Thread(target=contextvars.copy_context().run, args=(run,), name="deep-stack")
        thread.start()
    finally:
        threading.stack_size(old_size)
    thread.join()
    sys.setrecursionlimit(old_depth)
    if errors:
        raise errors[0]
    return results[0]


_SIGNS = ("bad_alloc", "out of memory", "cannot allocate memory", "unable to allocate")


def raise_if_out_of_memory(error: BaseException) -> None:
    """Raise `MemoryError` if an error of TVM's means that memory ran out: TVM has no class of its own for it.

    Raises:
        MemoryError: If the error is one, or its text says so.
    """
    if isinstance(error, MemoryError):
        raise error
    text = str(error).lower()
    if any(sign in text for sign in _SIGNS):
        raise MemoryError(str(error)[:300]) from error
