"""What every kind of value uses: JSON objects and pages of a list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

Json = dict[str, Any]


T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[T]):
    """Part of a list. `next_cursor` gets the next part; None where this is the last."""

    items: tuple[T, ...]
    next_cursor: str | None = None
