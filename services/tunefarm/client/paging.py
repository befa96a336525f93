"""Lists that come in pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from tunefarm.client.results import Page

T = TypeVar("T")


def walk(get_page: Callable[[str | None], Page[T]]) -> Iterator[T]:
    """Yield the items of all pages, asking for the next page only when it is needed."""
    cursor: str | None = None
    while True:
        page = get_page(cursor)
        yield from page.items
        cursor = page.next_cursor
        if cursor is None:
            return
