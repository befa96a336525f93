"""Read lists that the server sends in pages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tunefarm.client.http.transport import Query, Transport
from tunefarm.client.results.reading import Result
from tunefarm.client.results.shown import html_table

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[T]):
    """A page of a list. `next_cursor` gets the next page; None for the last.

    Iterating yields this page's items; the lists' `all` methods yield all items.
    """

    items: tuple[T, ...]
    next_cursor: str | None = None

    def __iter__(self) -> Iterator[T]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, position: int) -> T:
        return self.items[position]

    def _repr_html_(self) -> str:
        more = "" if self.next_cursor is None else "<p>… and more on the next pages</p>"
        return html_table(self.items) + more

    @classmethod
    def read(cls, data: object, item: Callable[[object], T]) -> Page[T]:
        """Return the page in a server's JSON.

        Args:
            data: The parsed JSON.
            item: Reads one item of the page.

        Raises:
            ProtocolError: ``bad-answer`` if the JSON is no page.
        """
        page = _JsonPage.read(data)
        return Page(items=tuple(item(entry) for entry in page.items), next_cursor=page.next_cursor)


@dataclass(frozen=True, slots=True, kw_only=True)
class _JsonPage(Result):
    items: tuple[Any, ...] = ()
    next_cursor: str | None = None


class CompleteList(tuple[T, ...]):
    """The items of all pages. A notebook shows them as a table."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return html_table(self)


async def get_page(transport: Transport, path: str, query: Query, read: Callable[[object], T]) -> Page[T]:
    """Return one page of a list.

    Args:
        transport: Sends the request.
        path: Below ``/v1``.
        query: Filters, ``limit`` and ``cursor``; None values are not sent.
        read: Reads one item.
    """
    return Page.read(await transport.get(path, query), read)


async def walk(
    transport: Transport, path: str, query: Query, read: Callable[[object], T]
) -> AsyncIterator[T]:
    """Yield the items of all pages, and ask for the next page only when it is needed.

    Args:
        transport: Sends the requests.
        path: Below ``/v1``.
        query: Filters and ``limit``; None values are not sent.
        read: Reads one item.
    """
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
    """Return the items of all pages.

    Args:
        transport: Sends the requests.
        path: Below ``/v1``.
        query: Filters and ``limit``; None values are not sent.
        read: Reads one item.
    """
    return CompleteList([item async for item in walk(transport, path, query, read)])
