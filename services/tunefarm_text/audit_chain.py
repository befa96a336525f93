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

PRUNED = "audit-pruned"
"""The action of an entry that states up to which entry, with which hash, the log was pruned: ``to`` and ``hash`` of its details."""

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

    A log that was pruned begins later. One of its entries must state what was pruned, up to exactly the entry before its first
    one, with a hash that the first entry's own follows from.

    Args:
        head: The number and hash of an entry, noted at another place and time: the log must have exactly it.
        after: The number and hash of the entry before the first one, for a part of a log.

    Attributes:
        seq: The number of the last entry that is right.
        hash: Its hash.
        pruned: How many entries a pruned log lacks at its begin.
        broken: The first break; None so far.
    """

    def __init__(self, head: tuple[int, str] | None = None, *, after: tuple[int, str] | None = None) -> None:
        self._expected = head
        self._may_be_pruned = after is None
        self._unproven: Mapping[str, Any] | None = None
        self.seq, self.hash = after or (0, START)
        self.pruned = 0
        self.broken: ChainBreak | None = None

    def take(self, entry: Mapping[str, Any]) -> bool:
        """Check the next entry; return False if the chain does not hold, now or before."""
        if self.broken is not None:
            return False
        seq, shown = entry["seq"], entry["hash"]
        if self._may_be_pruned and self.seq == 0 and isinstance(seq, int) and seq > 1:
            self._unproven, self.pruned = entry, seq - 1
            return self._accept(entry)
        if seq != self.seq + 1:
            missing = f"entry {self.seq + 1} is missing" if seq > self.seq else f"entry {seq} occurs twice"
            return self._break(self.seq + 1, f"{missing}: {seq} follows {self.seq}")
        if chained_hash(self.hash, entry) != shown:
            return self._break(seq, "the entry was changed, or the hash of the entry before it")
        if self._expected is not None and self._expected[0] == seq and self._expected[1] != shown:
            return self._break(seq, f"its hash was {self._expected[1][:16]}… when it was noted")
        return self._accept(entry)

    def _accept(self, entry: Mapping[str, Any]) -> bool:
        if self._unproven is not None and entry["action"] == PRUNED and self._proves(entry["details"]):
            self._unproven = None
        self.seq, self.hash = entry["seq"], entry["hash"]
        return True

    def _proves(self, stated: object) -> bool:
        """Return whether the first entry follows from what was pruned by this statement."""
        first = self._unproven
        if first is None or not isinstance(stated, Mapping) or stated.get("to") != self.pruned:
            return False
        before = str(stated.get("hash"))
        if self._expected is not None and self._expected[0] == self.pruned and self._expected[1] != before:
            return False
        return bool(chained_hash(before, first) == first["hash"])

    def end(self) -> ChainBreak | None:
        """Return the break, if there is one, after the last entry: a noted head must have come, and what is missing been stated."""
        if self.broken is None and self._unproven is not None:
            lacking = (
                "entry 1 is missing" if self.pruned == 1 else f"entry 1 is missing, up to entry {self.pruned}"
            )
            self.seq, self.hash = 0, START
            self._break(1, f"{lacking}, and no entry says that this was pruned")
        if self.broken is None and self._expected is not None and self._expected[0] < self.pruned:
            self._break(
                self.pruned + 1,
                f"entry {self._expected[0]}, which was noted, was pruned: check the export from before the pruning, or give a later head",
            )
        if self.broken is None and self._expected is not None and self._expected[0] > self.seq:
            self._break(self.seq + 1, f"the log ends before entry {self._expected[0]}, which it once had")
        return self.broken

    def _break(self, seq: int, reason: str) -> bool:
        self.broken = ChainBreak(seq=seq, reason=reason)
        return False


def parse_head(text: str) -> tuple[int, str] | None:
    """Return the number and hash in ``SEQ:HASH``, as checks print it; None if it is none."""
    seq, _, digest = text.strip().partition(":")
    is_hash = len(digest) == 64 and set(digest) <= set("0123456789abcdef")
    return (int(seq), digest) if seq.isascii() and seq.isdecimal() and len(seq) < 19 and is_hash else None
