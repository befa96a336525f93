"""Recognise a full disk. No step or candidate is at fault, and it ends when somebody makes room."""

from __future__ import annotations

import errno

from tunefarm_tuning.core.errors import TransientError

FULL_DISK_CODES = frozenset({"disk-full", "store-full", "database-full"})
"""Codes of errors of a full disk: the worker's, the store's or the database's."""


def as_full_disk(error: Exception) -> TransientError | None:
    """Return our error if a disk of this machine is full; None for any other error."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return TransientError("a disk of the worker is full", code="disk-full")
    return None
