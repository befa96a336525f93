"""Draws a `Board` as bars, with rich."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tunefarm.live.board import PHASES, Board, Phase, Status

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

_MOST_TEXT = 200


class Bars:
    """A bar per phase. `update` is called after each change of the board.

    Args:
        console: The console on which bars are drawn while `progress` is started.
        board: The board that the bars show.
        phases: The phases that have a bar.
    """

    def __init__(self, console: Console, board: Board, phases: Sequence[Phase] = PHASES) -> None:
        from rich.progress import BarColumn, Progress, Task, TextColumn, TimeElapsedColumn
        from rich.progress_bar import ProgressBar

        class EmptyUntilStarted(BarColumn):
            """A bar that does not pulse while it waits for its turn."""

            def render(self, task: Task) -> ProgressBar:
                """Return the bar, empty while the phase waits."""
                return super().render(task) if task.started else ProgressBar(total=1.0, width=self.bar_width)

        self._board = board
        self._phases = [(phase, board.phases[phase]) for phase in phases]
        self.progress: Progress = Progress(
            TextColumn("{task.description:<8}", markup=False),
            EmptyUntilStarted(bar_width=24),
            TimeElapsedColumn(),
            TextColumn("{task.fields[text]}", markup=False),
            console=console,
        )
        self._ids: dict[Phase, TaskID] = {
            phase: self.progress.add_task(phase.value, total=1.0, start=False, text="") for phase in phases
        }
        self._started: set[Phase] = set()

    def pause(self) -> None:
        """Stop drawing until `resume`."""
        self.progress.stop()

    def resume(self) -> None:
        """Draw again."""
        self.progress.start()

    def update(self) -> None:
        """Show the board as it is now."""
        for phase, state in self._phases:
            bar = self._ids[phase]
            if state.status is Status.WAITING:
                continue
            if phase not in self._started:
                self._started.add(phase)
                self.progress.start_task(bar)
            # rich draws a bar without a total as a pulse
            total = 1.0 if state.fraction is not None or state.status is not Status.RUNNING else None
            if self.progress.tasks[bar].total != total:
                self.progress.update(bar, total=total)
            text = _plain(self._board.text(phase))
            self.progress.update(bar, completed=state.fraction or 0.0, text=text)
            if state.status in (Status.DONE, Status.STOPPED):
                self.progress.stop_task(bar)


def _plain(text: str) -> str:
    """Return a server's text without control sequences of terminals."""
    return "".join(letter if letter.isprintable() else " " for letter in text[:_MOST_TEXT])
