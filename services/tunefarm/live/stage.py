"""Show the bars of all concurrent waits in one part of the terminal."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.live import Live
    from rich.progress import Progress


@dataclass(frozen=True, slots=True, eq=False)
class _Set:
    title: str
    progress: Progress


class Stage:
    """Shows sets of bars, one below the other; two or more sets have titles.

    Concurrency: any thread.

    Args:
        console: The console on which bars are drawn.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._lock = threading.RLock()
        self._sets: list[_Set] = []
        self._several = False
        self._live: Live | None = None

    @contextmanager
    def showing(self, title: str, progress: Progress) -> Iterator[None]:
        """Show bars until the block ends; their last state stays on the screen."""
        mine = _Set(title, progress)
        self._add(mine)
        try:
            yield
        finally:
            self._remove(mine)

    def _add(self, bar_set: _Set) -> None:
        from rich.live import Live

        with self._lock:
            self._sets.append(bar_set)
            self._several = self._several or len(self._sets) > 1
            if self._live is None:
                self._live = Live(console=self._console, get_renderable=self._all)
                self._live.start(refresh=True)

    def _remove(self, bar_set: _Set) -> None:
        with self._lock:
            assert self._live is not None
            if len(self._sets) > 1:
                self._sets.remove(bar_set)
                self._console.print(self._drawn(bar_set))  # above the bars that continue
                return
            live, self._live = self._live, None
            live.stop()  # this draws them a last time
            self._sets.clear()
            self._several = False

    def _all(self) -> Group:
        from rich.console import Group

        return Group(*[self._drawn(bar_set) for bar_set in list(self._sets)])

    def _drawn(self, bar_set: _Set) -> Group:
        from rich.console import Group
        from rich.text import Text

        bars = bar_set.progress.get_renderable()
        return Group(Text(bar_set.title, style="dim"), bars) if self._several else Group(bars)
