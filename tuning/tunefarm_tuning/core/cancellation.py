"""Cancel work that another thread waits for."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Protocol, Self


class Closable(Protocol):
    """An object that a cancellation can close: a child process, a builder, a runner."""

    def close(self) -> None: ...


class Cancellation:
    """A request to stop, and the objects to close then. Concurrency: any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cancelled = False
        self._attached: list[Closable] = []

    @property
    def cancelled(self) -> bool:
        return self._cancelled

    def cancel(self) -> None:
        """Close all attached objects, and those attached later. Calling it again does nothing."""
        with self._lock:
            self._cancelled = True
            attached, self._attached = self._attached, []
        for closable in attached:
            closable.close()

    def close(self) -> None:
        """Cancel: so a cancellation can be attached to another one."""
        self.cancel()

    @contextmanager
    def attach(self, closable: Closable) -> Iterator[None]:
        """Let `cancel` close `closable` during the block; close it at once if `cancel` was called before."""
        with self._lock:
            cancelled = self._cancelled
            if not cancelled:
                self._attached.append(closable)
        if cancelled:
            closable.close()
        try:
            yield
        finally:
            with self._lock:
                self._attached = [attached for attached in self._attached if attached is not closable]


class Closing:
    """Mix-in: `with` closes."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()
