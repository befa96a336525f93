"""The bars of a `wait`, in a terminal and in a notebook."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tunefarm.live.board import PHASES, Board, Phase

if TYPE_CHECKING:
    from rich.console import Console

    from tunefarm.client import Job

_OF_A_JOB = tuple(phase for phase in PHASES if phase not in (Phase.UPLOAD, Phase.IMPORT))


def somebody_watches() -> bool:
    """Return whether bars would be seen: standard error is a terminal that can draw them, or this is a notebook."""
    return (sys.stderr.isatty() and os.environ.get("TERM") != "dumb") or _in_notebook()


@dataclass(frozen=True, slots=True)
class JobView:
    """Is told of every look at a job."""

    board: Board
    draw: Callable[[], None]

    def on_job(self, job: Job) -> None:
        self.board.on_job(job)
        self.draw()

    def on_away(self) -> None:
        self.board.on_away()
        self.draw()


@contextmanager
def job_bars() -> Iterator[JobView]:
    """Draw bars until the block ends."""
    from rich.console import Console

    if _in_notebook():
        yield notebook_bars(Console(), import_module("IPython.display").display)
        return
    from tunefarm.live.bars import Bars

    board = Board()
    bars = Bars(Console(stderr=True, markup=False, highlight=False, emoji=False), board, _OF_A_JOB)
    with bars.progress:
        yield JobView(board, bars.update)


def notebook_bars(console: Console, display: Callable[..., Any]) -> JobView:
    """Draw bars in the output of a notebook's cell, where the same place can be written again.

    Rich would do so by widgets, which are seldom installed, and need a notebook that allows them.

    Args:
        console: Not drawn on: the bars ask it for the time.
        display: IPython's.
    """
    from tunefarm.live.bars import Bars

    board = Board()
    bars = Bars(console, board, _OF_A_JOB)
    place: Any = None

    def draw() -> None:
        nonlocal place
        bars.update()
        table = bars.progress.make_tasks_table(bars.progress.tasks)
        if place is None:
            place = display(table, display_id=True)
        else:
            place.update(table)

    return JobView(board, draw)


def _in_notebook() -> bool:
    """Return whether this runs in a kernel of Jupyter."""
    ipython: Any = sys.modules.get("IPython")
    # The second is Colab's.
    return ipython is not None and type(ipython.get_ipython()).__name__ in ("ZMQInteractiveShell", "Shell")
