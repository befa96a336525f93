"""The bars of a `wait`, in a terminal and in a notebook."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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


@contextmanager
def job_bars() -> Iterator[Callable[[Job], None]]:
    """Draw bars until the block ends; what is yielded is called with the job after every look."""
    from rich.console import Console

    if _in_notebook():
        with notebook_bars(Console(), import_module("IPython.display").display) as show:
            yield show
        return
    from tunefarm.live.bars import Bars

    board = Board()
    bars = Bars(Console(stderr=True, markup=False, highlight=False, emoji=False), board, _OF_A_JOB)

    def on_job(job: Job) -> None:
        board.on_job(job)
        bars.update()

    with bars.progress:
        yield on_job


@contextmanager
def notebook_bars(console: Console, display: Callable[..., Any]) -> Iterator[Callable[[Job], None]]:
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

    def on_job(job: Job) -> None:
        nonlocal place
        board.on_job(job)
        bars.update()
        table = bars.progress.make_tasks_table(bars.progress.tasks)
        if place is None:
            place = display(table, display_id=True)
        else:
            place.update(table)

    yield on_job


def _in_notebook() -> bool:
    """Return whether this runs in a kernel of Jupyter."""
    ipython: Any = sys.modules.get("IPython")
    # The second is Colab's.
    return ipython is not None and type(ipython.get_ipython()).__name__ in ("ZMQInteractiveShell", "Shell")
