"""What JSON of others may hold that a database cannot."""

from __future__ import annotations

import re

UNSTORABLE = re.compile(r"(?<!\\)(?:\\\\)*\\u0000|[\ud800-\udfff]")
"""In JSON that was written with `ensure_ascii=False`, a NUL or half of a pair: PostgreSQL refuses either. After an escaped backslash,
``u0000`` is a text as others are: ``C:\\u0000``."""
