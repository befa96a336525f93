"""The hash chain of the audit log: each entry's hash covers the entry and the hash of the one before.

The farm chains entries with this, and whoever holds an export checks it with this: neither needs to trust the other.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

START = "0" * 64
"""What stands for the hash before the first entry."""

FIELDS = ("seq", "at", "actor", "via", "address", "action", "subject", "details")
"""The fields of an entry that its hash covers, in this order."""


def chained_hash(previous: str, entry: Mapping[str, Any]) -> str:
    """Return an entry's hash: SHA-256 of a JSON array of the hash before and the entry's `FIELDS`."""
    covered = [previous, *(entry[name] for name in FIELDS)]
    return hashlib.sha256(json.dumps(covered, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainBreak:
    """The first place where a chain does not hold.

    Attributes:
        seq: The number of the entry.
        reason: What is wrong with it, in words.
    """

    seq: int
    reason: str


class ChainCheck:
    """Checks entries in their order, as JSON objects with `FIELDS` and ``hash``; stops at the first break.

    Args:
        head: The number and hash of an entry, noted at another place and time: the log must have exactly it.
        after: The number and hash of the entry before the first one, for a part of a log.
    """

    def __init__(self, head: tuple[int, str] | None = None, *, after: tuple[int, str] = (0, START)) -> None:
        self._expected = head
        self.seq, self.hash = after
        self.broken: ChainBreak | None = None

    def take(self, entry: Mapping[str, Any]) -> bool:
        """Check the next entry; return False if the chain does not hold, now or before."""
        if self.broken is not None:
            return False
        seq, shown = entry["seq"], entry["hash"]
        if seq != self.seq + 1:
            missing = f"entry {self.seq + 1} is missing" if seq > self.seq else f"entry {seq} stands twice"
            return self._break(self.seq + 1, f"{missing}: {seq} follows {self.seq}")
        if chained_hash(self.hash, entry) != shown:
            return self._break(seq, "the entry was changed, or the hash of the one before")
        if self._expected is not None and self._expected[0] == seq and self._expected[1] != shown:
            return self._break(seq, f"its hash was {self._expected[1][:16]}… when it was noted")
        self.seq, self.hash = seq, shown
        return True

    def end(self) -> ChainBreak | None:
        """Return the break, if there is one, after the last entry: a noted head must have come."""
        if self.broken is None and self._expected is not None and self._expected[0] > self.seq:
            self._break(self.seq + 1, f"the log ends before entry {self._expected[0]}, which it had")
        return self.broken

    def _break(self, seq: int, reason: str) -> bool:
        self.broken = ChainBreak(seq=seq, reason=reason)
        return False


def parse_head(text: str) -> tuple[int, str] | None:
    """Return the number and hash in ``SEQ:HASH``, as checks print it; None if it is none."""
    seq, _, digest = text.strip().partition(":")
    is_hash = len(digest) == 64 and set(digest) <= set("0123456789abcdef")
    return (int(seq), digest) if seq.isascii() and seq.isdecimal() and len(seq) < 19 and is_hash else None
