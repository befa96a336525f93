"""The bars of `tune` and `wait`, in a terminal and in a notebook."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tunefarm.live.board import PHASES, Board, Phase
from tunefarm.live.stage import Stage

if TYPE_CHECKING:
    from rich.console import Console

    from tunefarm.client.results.jobs import Job
    from tunefarm.client.results.models import Model

OF_A_MODEL = (Phase.UPLOAD, Phase.IMPORT)
OF_A_JOB = tuple(phase for phase in PHASES if phase not in OF_A_MODEL)


@dataclass(frozen=True, slots=True)
class LiveView:
    """Draws the client's reports."""

    board: Board
    draw: Callable[[], None]

    def on_upload(self, sent: int, total: int) -> None:
        """Show the upload's progress: bytes sent, and the total."""
        self.board.on_upload(sent, total)
        self.draw()

    def on_model(self, model: Model) -> None:
        """Show the state of the model."""
        self.board.on_model(model)
        self.draw()

    def on_job(self, job: Job) -> None:
        """Show the state of the job."""
        self.board.on_job(job)
        self.draw()

    def on_away(self, _error: object = None) -> None:
        """Show that the server did not answer."""
        self.board.on_away()
        self.draw()


def somebody_watches() -> bool:
    """Return whether bars can be shown: standard error is a suitable terminal, or this is a notebook."""
    return (sys.stderr.isatty() and os.environ.get("TERM") != "dumb") or _in_notebook()


@contextmanager
def live_view(wanted: bool, phases: Sequence[Phase], title: str) -> Iterator[LiveView]:
    """Draw bars until the block ends.

    Args:
        wanted: Whether to draw bars at all.
        phases: Each has a bar.
        title: Title of the bars, which is shown if there are other bars.
    """
    if not wanted:
        yield LiveView(Board(), lambda: None)
        return
    if _in_notebook():
        from rich.console import Console

        yield notebook_view(phases, Console(), import_module("IPython.display").display)
        return
    from tunefarm.live.bars import Bars

    board, (console, stage) = Board(), _terminal()
    bars = Bars(console, board, phases)
    with stage.showing(title, bars.progress):
        yield LiveView(board, bars.update)


def notebook_view(phases: Sequence[Phase], console: Console, display: Callable[..., Any]) -> LiveView:
    """Return a view that draws bars in the output of a notebook's cell, by replacing the output.

    Rich would do so by widgets, which are seldom installed, and need a notebook that allows them.

    Args:
        phases: Each has a bar.
        console: Not drawn on: the bars ask it for the time.
        display: IPython's.
    """
    from tunefarm.live.bars import Bars

    board = Board()
    bars = Bars(console, board, phases)
    handle: Any = None

    def draw() -> None:
        nonlocal handle
        bars.update()
        table = bars.progress.make_tasks_table(bars.progress.tasks)
        if handle is None:
            handle = display(table, display_id=True)
        else:
            handle.update(table)

    return LiveView(board, draw)


@cache
def _terminal() -> tuple[Console, Stage]:
    from rich.console import Console

    console = Console(stderr=True, markup=False, highlight=False, emoji=False)
    return console, Stage(console)


def _in_notebook() -> bool:
    """Return whether this runs in a kernel of Jupyter."""
    ipython: Any = sys.modules.get("IPython")
    # The second is Colab's.
    return ipython is not None and type(ipython.get_ipython()).__name__ in ("ZMQInteractiveShell", "Shell")
