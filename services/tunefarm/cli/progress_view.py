"""Draw a `Board`: bars on a terminal, lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from tunefarm.cli.base.output import Output
from tunefarm.live.bars import Bars
from tunefarm.live.board import PHASES, Board, Phase, Status
from tunefarm_text import quantities

_LINE_EVERY_SEC = 10.0


class View(Protocol):
    """Shows a board. `update` is called after each change."""

    def update(self) -> None:
        """Show the board as it is now."""
        ...

    def pause(self) -> None:
        """Stop drawing until `resume`."""
        ...

    def resume(self) -> None:
        """Draw again."""
        ...


@contextmanager
def view(output: Output, board: Board, *, phases: Sequence[Phase] = PHASES) -> Iterator[View]:
    """Show some phases of `board` on standard error until the block ends."""
    if output.live:
        bars = Bars(output.stderr, board, phases)
        with bars.progress:
            yield bars
    else:
        yield _Lines(output, board, phases)


class _Lines:
    """A line when a phase begins or ends, and every ten seconds while a text changes."""

    def __init__(self, output: Output, board: Board, phases: Sequence[Phase]) -> None:
        self._output = output
        self._board = board
        self._phases = [(phase, board.phases[phase]) for phase in phases]
        self._printed: dict[Phase, tuple[Status, str]] = {}
        self._printed_at: dict[Phase, float] = {}

    def pause(self) -> None:
        pass

    def resume(self) -> None:
        pass

    def update(self) -> None:
        for phase, state in self._phases:
            if state.status is Status.WAITING:
                continue
            printed, now = self._printed.get(phase), time.monotonic()
            news = (state.status, self._board.text(phase))
            due = now - self._printed_at.get(phase, 0.0) >= _LINE_EVERY_SEC
            if printed == news or (printed is not None and printed[0] is state.status and not due):
                continue
            if printed is not None and printed[0] is Status.DONE is state.status:
                continue  # what came to be known later is in the result
            percent = (
                f" {quantities.percent(state.fraction)}"
                if state.status is Status.RUNNING and state.fraction is not None
                else ""
            )
            verb = {Status.RUNNING: "…", Status.DONE: " done", Status.STOPPED: " stopped"}[state.status]
            self._output.note(f"{phase.value}{verb}{percent}{': ' if news[1] else ''}{news[1]}")
            self._printed[phase], self._printed_at[phase] = news, now
