"""What JSON of others may hold that a database cannot, or should not."""

from __future__ import annotations

import json
import re
from typing import Any

from tunefarm_tuning.core.errors import InvalidModelError

UNSTORABLE = re.compile(r"(?<!\\)(?:\\\\)*\\u0000|[\ud800-\udfff]")
"""In JSON that was written with `ensure_ascii=False`, a NUL or half of a pair: PostgreSQL refuses either. After an escaped backslash,
``u0000`` is a text as others are: ``C:\\u0000``."""


def check_length(told: Any, what: str, *, most_bytes: int) -> None:
    """Check what a child told of a model, before it is stored: whoever looks at the model or its jobs has it read, again and again.

    Args:
        told: JSON values.
        what: It, for a message.
        most_bytes: Longest JSON.

    Raises:
        InvalidModelError: ``too-large``.
    """
    length = len(json.dumps(told))
    if length > most_bytes:
        raise InvalidModelError(
            f"{what} takes {length} bytes; the limit is {most_bytes}",
            code="too-large",
            size_bytes=length,
            limit_bytes=most_bytes,
        )
