"""The end of what a child writes to its standard error."""

from __future__ import annotations

import os
import threading

from tunefarm_tuning.core.untrusted_text import clean

_KEPT_BYTES = 64 << 10


class ErrorOutput:
    """Drains a descriptor in a thread of its own and keeps the last 64 KiB; memory stays bounded.

    Ownership: closes the descriptor when the last writer is gone.
    """

    def __init__(self, fd: int) -> None:
        self._tail = bytearray()
        self._thread = threading.Thread(target=self._drain, args=(fd,), name="child-stderr", daemon=True)
        self._thread.start()

    def _drain(self, fd: int) -> None:
        try:
            while chunk := os.read(fd, 1 << 16):
                self._tail += chunk
                del self._tail[:-_KEPT_BYTES]
        finally:
            os.close(fd)

    def text(self, *, wait_sec: float = 0.0) -> str:
        """Return what is kept, uncleaned, after waiting up to `wait_sec` for the writers to go."""
        self._thread.join(wait_sec)
        return bytes(self._tail).decode("utf-8", "replace")

    def last_lines(self, count: int = 20, *, wait_sec: float = 0.0) -> str:
        """Return the last lines, each cleaned, one a line."""
        lines = [line for line in self.text(wait_sec=wait_sec).splitlines() if line.strip()]
        return "\n".join(clean(line, 200) for line in lines[-count:])
