"""Draw a `Board`: bars on a terminal, lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from tunefarm.cli.board import PHASES, Board, Phase, Status
from tunefarm.cli.output import Output

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_LINE_EVERY_SEC = 10.0


class View(Protocol):
    """Shows a board. `update` is called after each change."""

    def update(self) -> None: ...

    def pause(self) -> None:
        """Leave the terminal alone until `resume`."""
        ...

    def resume(self) -> None: ...


@contextmanager
def view(output: Output, board: Board, *, phases: Sequence[Phase] = PHASES) -> Iterator[View]:
    """Show some phases of `board` on standard error until the block ends."""
    if output.live:
        bars = _Bars(output, board, phases)
        with bars.progress:
            yield bars
    else:
        yield _Lines(output, board, phases)


class _Lines:
    """A line when a phase begins or ends, and every ten seconds while a text changes."""

    def __init__(self, output: Output, board: Board, phases: Sequence[Phase]) -> None:
        self._output = output
        self._phases = [(phase, board.phases[phase]) for phase in phases]
        self._said: dict[Phase, tuple[Status, str]] = {}
        self._said_at: dict[Phase, float] = {}

    def pause(self) -> None:
        pass

    def resume(self) -> None:
        pass

    def update(self) -> None:
        for phase, state in self._phases:
            if state.status is Status.WAITING:
                continue
            said, now = self._said.get(phase), time.monotonic()
            news = (state.status, state.text)
            due = now - self._said_at.get(phase, 0.0) >= _LINE_EVERY_SEC
            if said == news or (said is not None and said[0] is state.status and not due):
                continue
            percent = (
                f" {state.fraction:.0%}"
                if state.status is Status.RUNNING and state.fraction is not None
                else ""
            )
            verb = {Status.RUNNING: "…", Status.DONE: " done", Status.STOPPED: " stopped"}[state.status]
            self._output.note(f"{phase.value}{verb}{percent}{': ' if state.text else ''}{state.text}")
            self._said[phase], self._said_at[phase] = news, now


class _Bars:
    """A bar per phase."""

    def __init__(self, output: Output, board: Board, phases: Sequence[Phase]) -> None:
        from rich.progress import BarColumn, Progress, Task, TextColumn, TimeElapsedColumn
        from rich.progress_bar import ProgressBar

        class EmptyUntilStarted(BarColumn):
            """A bar that does not pulse while it waits for its turn."""

            def render(self, task: Task) -> ProgressBar:
                return super().render(task) if task.started else ProgressBar(total=1.0, width=self.bar_width)

        self._phases = [(phase, board.phases[phase]) for phase in phases]
        self.progress: Progress = Progress(
            TextColumn("{task.description:<8}", markup=False),
            EmptyUntilStarted(bar_width=24),
            TimeElapsedColumn(),
            TextColumn("{task.fields[text]}", markup=False),
            console=output.stderr,
        )
        self._ids: dict[Phase, TaskID] = {
            phase: self.progress.add_task(phase.value, total=1.0, start=False, text="") for phase in phases
        }
        self._started: set[Phase] = set()

    def pause(self) -> None:
        self.progress.stop()

    def resume(self) -> None:
        self.progress.start()

    def update(self) -> None:
        from tunefarm_tuning.untrusted_text import clean

        for phase, state in self._phases:
            bar = self._ids[phase]
            if state.status is Status.WAITING:
                continue
            if phase not in self._started:
                self._started.add(phase)
                self.progress.start_task(bar)
            # A bar without a total pulses.
            total = 1.0 if state.fraction is not None or state.status is not Status.RUNNING else None
            if self.progress.tasks[bar].total != total:
                self.progress.update(bar, total=total)
            self.progress.update(bar, completed=state.fraction or 0.0, text=clean(state.text, 200))
            if state.status in (Status.DONE, Status.STOPPED):
                self.progress.stop_task(bar)
