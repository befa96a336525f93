"""Make blocking methods from awaited ones, so that each method of the client is written once.

What the client awaits is its link alone (`tunefarm.client.http.links`). Over a link that blocks, a coroutine of the client
therefore never suspends: its first step is its last one, and no event loop is needed.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from functools import wraps
from inspect import signature
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

C = TypeVar("C")
F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")
T = TypeVar("T")
U = TypeVar("U")


class Blocking(Generic[C]):
    """The blocking form of an object with coroutine methods. A subclass names the methods.

    Args:
        core: The object; its link blocks.
    """

    def __init__(self, core: C) -> None:
        self._core = core


def finish(work: Awaitable[T]) -> T:
    """Run a coroutine that never suspends to its end, and return its result."""
    steps = work.__await__()
    try:
        next(steps)
    except StopIteration as end:
        result: T = end.value
        return result
    raise RuntimeError("a coroutine over a blocking link was suspended")


def each(items: AsyncIterator[T]) -> Iterator[T]:
    """Iterate over an asynchronous iterator that never suspends."""
    try:
        while True:
            try:
                item = finish(anext(items))
            except StopAsyncIteration:
                return
            yield item
    finally:
        if isinstance(items, AsyncGenerator):
            finish(items.aclose())


def blocking(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], T]:
    """Return the blocking form of a core's coroutine method."""

    @wraps(method)
    def call(self: Blocking[Any], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return finish(method(self._core, *args, **kwargs))

    return _signed(call, method)


def blocking_as(
    kind: Callable[[T], U], method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]
) -> Callable[Concatenate[Any, P], U]:
    """Return the blocking form of a coroutine method whose result needs a blocking form too.

    Args:
        kind: Makes the blocking form of the result.
        method: The core's method.
    """

    @wraps(method)
    def call(self: Blocking[Any], /, *args: P.args, **kwargs: P.kwargs) -> U:
        return kind(finish(method(self._core, *args, **kwargs)))

    return _signed(call, method)


def blocking_each(
    method: Callable[Concatenate[Any, P], AsyncIterator[T]],
) -> Callable[Concatenate[Any, P], Iterator[T]]:
    """Return the blocking form of a core's method that returns an asynchronous iterator."""

    @wraps(method)
    def call(self: Blocking[Any], /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return each(method(self._core, *args, **kwargs))

    return _signed(call, method)


def _signed(call: F, method: Callable[..., Any]) -> F:
    """Correct the return type that `help` shows: ``JobHandle`` for ``AsyncJobHandle``, ``Iterator`` for ``AsyncIterator``."""
    shown = signature(method)
    returned = str(shown.return_annotation).removeprefix("Async")
    call.__signature__ = shown.replace(return_annotation=returned)  # type: ignore[attr-defined]
    return call
