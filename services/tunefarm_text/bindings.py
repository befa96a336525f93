"""Bound values as the command, the API and the uploads take them: ``sr=16000``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def value_texts(values: Mapping[str, Any]) -> list[str]:
    """Return values (numbers, nested sequences, arrays) as texts; what is no number, the server refuses."""
    return [
        f"{name}={json.dumps(_plain(value), separators=(',', ':'), default=str)}"
        for name, value in values.items()
    ]


def _plain(value: Any) -> Any:
    """Return an array or NumPy's number as Python's lists and numbers."""
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value.tolist() if hasattr(value, "tolist") else value
