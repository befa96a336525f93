"""Lists that come in pages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TypeVar

from tunefarm.client.http.transport import Query, Transport
from tunefarm.client.results.jobs import Page, Whole

T = TypeVar("T")


async def get_page(transport: Transport, path: str, query: Query, read: Callable[[object], T]) -> Page[T]:
    """Return one page of a list."""
    return Page.read(await transport.get(path, query), read)


async def walk(
    transport: Transport, path: str, query: Query, read: Callable[[object], T]
) -> AsyncIterator[T]:
    """Yield the items of all pages, asking for the next page only when it is needed."""
    cursor: str | None = None
    while True:
        page = await get_page(transport, path, {**query, "cursor": cursor}, read)
        for item in page.items:
            yield item
        cursor = page.next_cursor
        if cursor is None:
            return


async def get_all(
    transport: Transport, path: str, query: Query, read: Callable[[object], T]
) -> tuple[T, ...]:
    """Return the items of all pages."""
    return Whole([item async for item in walk(transport, path, query, read)])
