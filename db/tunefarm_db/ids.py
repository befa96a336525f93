"""Identifiers of rows: text, prefixed by kind, sorted by time of creation."""

from __future__ import annotations

import re
import secrets
import threading
import time
from typing import Literal, get_args

Prefix = Literal[
    "mdl",
    "job",
    "stp",
    "trl",
    "rec",
    "dev",
    "dch",
    "cal",
    "art",
    "key",
    "whk",
    "whd",
    "upl",
    "smp",
    "trc",
    "swp",
    "aud",
    "rsv",
]

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32: no letters that look like digits
_RANDOM_BITS = 80
_ID = re.compile(f"({'|'.join(get_args(Prefix))})_[{_ALPHABET}]{{26}}")
_lock = threading.Lock()
_last = 0  # the newest number given out by this process


def new_id(prefix: Prefix) -> str:
    """Return a new id: ``job_`` and 26 characters. Later ids sort after earlier ones.

    The number is 48 bits of milliseconds and 80 random bits, and grows strictly within a process. Across
    machines the order is only as good as their clocks: it is for pages of a list, never for correctness.
    """
    return f"{prefix}_{_encode(_next_number())}"


def is_id(text: str, prefix: Prefix) -> bool:
    """Return whether `text` has the form of an id of this kind; the row need not exist."""
    match = _ID.fullmatch(text)
    return match is not None and match[1] == prefix


def _next_number() -> int:
    global _last
    number = time.time_ns() // 1_000_000 << _RANDOM_BITS | secrets.randbits(_RANDOM_BITS)
    with _lock:
        _last = max(number, _last + 1)
        return _last


def _encode(number: int) -> str:
    digits = [_ALPHABET[number >> shift & 31] for shift in range(125, -1, -5)]
    return "".join(digits)
