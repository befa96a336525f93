"""Bound values as the command, the API and the uploads take them: ``sr=16000``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_LONGEST = 80
"""Characters of a bound value that people are shown."""


def value_texts(values: Mapping[str, Any]) -> list[str]:
    """Return values (numbers, nested sequences, arrays) as texts; what is no number, the server refuses."""
    return [
        f"{name}={json.dumps(_plain(value), separators=(',', ':'), default=str)}"
        for name, value in values.items()
    ]


def short_value(value: Any) -> str:
    """Return a bound value for people: ``16000``, ``[1.0, 2.0]``; a long one is cut."""
    text = json.dumps(_plain(value), default=str)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _plain(value: Any) -> Any:
    """Return an array or NumPy's number as Python's lists and numbers."""
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value.tolist() if hasattr(value, "tolist") else value
