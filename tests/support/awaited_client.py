"""An `AsyncClient` with the blocking methods of a `Client`, so that one test covers both."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Iterator
from typing import Any, Self

from tunefarm.client import AsyncClient


class Awaited:
    """An object with coroutines; each is run to its end when it is called.

    Args:
        value: The object.
        runner: Runs all that belongs to one client in one event loop.
    """

    def __init__(self, value: Any, runner: asyncio.Runner) -> None:
        self._value = value
        self._runner = runner

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._value, name)
        if not inspect.ismethod(member):
            return self._shown(member)

        def call(*args: Any, **kwargs: Any) -> Any:
            result = member(*args, **kwargs)
            if isinstance(result, AsyncIterator):
                return self._each(result)
            return self._shown(self._run(result) if inspect.isawaitable(result) else result)

        return call

    def __repr__(self) -> str:
        return repr(self._value)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _run(self, awaitable: Any) -> Any:
        async def main() -> Any:
            return await awaitable

        return self._runner.run(main())

    def _each(self, items: AsyncIterator[Any]) -> Iterator[Any]:
        while True:
            try:
                item = self._run(anext(items))
            except StopAsyncIteration:
                return
            yield item

    def _shown(self, value: Any) -> Any:
        return Awaited(value, self._runner) if type(value).__name__.startswith("Async") else value


def awaited_client(runner: asyncio.Runner, *args: Any, **kwargs: Any) -> Any:
    """Return an `AsyncClient` with these arguments, to be called like a `Client`."""
    return Awaited(AsyncClient(*args, **kwargs), runner)
