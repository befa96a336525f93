"""Telling "out of memory" from TVM's other errors, which are all of a few classes."""

from __future__ import annotations

_SIGNS = ("bad_alloc", "out of memory", "cannot allocate memory", "unable to allocate")


def raise_if_out_of_memory(error: BaseException) -> None:
    """Raise `MemoryError` where that is what the error means.

    Raises:
        MemoryError: If the error is one, or its text says so.
    """
    if isinstance(error, MemoryError):
        raise error
    text = str(error).lower()
    if any(sign in text for sign in _SIGNS):
        raise MemoryError(str(error)[:300]) from error
