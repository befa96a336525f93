"""Reads typed values out of a JSON answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tunefarm.client.errors import ProtocolError


class Fields:
    """A JSON object of the server's. Unknown members are ignored, so that a newer server can be read.

    Args:
        data: What the server sent.
        what: What it should be, for messages (``"job"``).
    """

    def __init__(self, data: object, what: str) -> None:
        if not isinstance(data, dict):
            raise ProtocolError(f"the server's {what} is not a JSON object", code="bad-answer")
        self.data: Mapping[str, Any] = data
        self._what = what

    def _bad(self, name: str, kind: str) -> ProtocolError:
        return ProtocolError(f"the server's {self._what} has no {kind} {name!r}", code="bad-answer")

    def text(self, name: str, default: str | None = None) -> str:
        value = self.data.get(name, default)
        if isinstance(value, str):
            return value
        if value is None and default is not None:
            return default
        raise self._bad(name, "text")

    def optional_text(self, name: str) -> str | None:
        return None if self.data.get(name) is None else self.text(name)

    def number(self, name: str, default: float | None = None) -> float:
        value = self.data.get(name)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._bad(name, "number")
        return float(value)

    def optional_number(self, name: str) -> float | None:
        return None if self.data.get(name) is None else self.number(name)

    def integer(self, name: str, default: int | None = None) -> int:
        value = self.number(name, None if default is None else float(default))
        if not value.is_integer():
            raise self._bad(name, "whole number")
        return int(value)

    def flag(self, name: str, default: bool = False) -> bool:
        value = self.data.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self._bad(name, "boolean")
        return value

    def mapping(self, name: str) -> Mapping[str, Any]:
        """Return an object; an empty one where it is missing or null."""
        value = self.data.get(name)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self._bad(name, "object")
        return value

    def items(self, name: str) -> list[Any]:
        """Return a list; an empty one where it is missing or null."""
        value = self.data.get(name)
        if value is None:
            return []
        if not isinstance(value, list):
            raise self._bad(name, "list")
        return value
