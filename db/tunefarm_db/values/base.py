"""Types for all values: JSON objects and pages of a list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

Json = dict[str, Any]


T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[T]):
    """A page of a list. `next_cursor` gets the next page; None on the last page."""

    items: tuple[T, ...]
    next_cursor: str | None = None
