"""Recognise a full disk, which is no fault of a step or a candidate and ends when somebody makes room."""

from __future__ import annotations

import errno

from tunefarm_tuning.core.errors import TransientError

FULL_DISK_CODES = frozenset({"disk-full", "store-full", "database-full"})
"""Codes of errors of a full disk: the worker's, the store's or the database's."""


def as_full_disk(error: Exception) -> TransientError | None:
    """Return our error for a disk of this machine that is full; None where it is something else."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return TransientError("a disk of the worker is full", code="disk-full")
    return None
