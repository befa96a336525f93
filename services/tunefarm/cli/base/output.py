"""Write a command's results to standard output, and everything else to standard error."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, TypeVar

from tunefarm.cli.base.references import is_whole_id
from tunefarm_text import quantities
from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.core.output_file import output_file, writing
from tunefarm_tuning.core.untrusted_text import clean

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from tunefarm.client.results.reading import Answer

T = TypeVar("T", bound="Answer")

_WIDTH_WITHOUT_TERMINAL = 200
_ROOM = 13
"""Terminal columns for each column of a table with which whole ids leave room for the others."""
_UNBOUNDED = 10_000
"""Terminal columns that no table fills."""
_LAST = 6
"""Characters of an id that a narrow table shows, as pages do; commands take them."""
_ID = re.compile(r"[a-z]{3}_[0-9a-z]{26}")


class Output:
    """The output of a command.

    Attributes:
        json: Standard output carries JSON alone: one object, or one a line where a command says so.
        debug: Errors show where they came from.
    """

    def __init__(self, *, json: bool = False, debug: bool = False) -> None:
        self.json = json
        self.debug = debug

    @cached_property
    def stdout(self) -> Console:
        """The console for results."""
        return _console(stderr=False)

    @cached_property
    def stderr(self) -> Console:
        """The console for everything except results."""
        return _console(stderr=True)

    @property
    def live(self) -> bool:
        """Whether progress may redraw itself: standard error is a terminal that allows it."""
        return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"

    def data(self, value: Any) -> None:
        """Print one JSON value on a line of its own."""
        sys.stdout.write(json.dumps(value, separators=(",", ":"), default=str) + "\n")
        sys.stdout.flush()

    def text(self, line: str = "", *, style: str = "") -> None:
        """Print a line of the result."""
        self.stdout.print(clean(line, 4000), style=style or None, soft_wrap=True)

    def note(self, line: str, *, style: str = "") -> None:
        """Print a message that is not part of the result."""
        self.stderr.print(clean(line, 4000), style=style or None, soft_wrap=True)

    def warning(self, line: str) -> None:
        """Print a warning."""
        self.note(f"warning: {line}", style="yellow")

    def result(self, data: Any, text: str) -> None:
        """Print a result: JSON under ``--json``, a line otherwise."""
        if self.json:
            self.data(data)
        else:
            self.text(text)

    def first(self, items: Iterable[T], limit: int) -> list[T]:
        """Return so many of the items at most, and say so if there are more."""
        return list(self.each_of_first(items, limit))

    def each_of_first(self, items: Iterable[T], limit: int) -> Iterator[T]:
        """Yield the same as they arrive."""
        for number, item in enumerate(items):
            if number == limit:
                self.note(f"only the first {limit:,} are listed: --limit {2 * limit} lists more")
                return
            yield item

    def items(
        self,
        items: Iterable[T],
        columns: Mapping[str, Callable[[T], object]],
        *,
        json_lines: bool = False,
        optional: Sequence[str] = (),
    ) -> None:
        """Print answers of the server: a table with a row for each, or JSON as the server sent it.

        Args:
            items: Answers.
            columns: The table's columns, and each one's cell of an item.
            json_lines: Print JSON as a line for each item in place of one array.
            optional: Columns that a narrow terminal does without, the first of them first.
        """
        if not self.json:
            rows = [[cell(item) for cell in columns.values()] for item in items]
            self.table(tuple(columns), rows, optional=optional)
            if not rows:
                self.note("nothing to list: there are no items, or none match")
        elif json_lines:
            for item in items:
                self.data(item.raw)
        else:
            self.data([item.raw for item in items])

    def table(
        self,
        columns: Sequence[str],
        rows: Iterable[Sequence[object]],
        *,
        title: str | None = None,
        optional: Sequence[str] = (),
    ) -> None:
        """Print a table. A column whose name begins with ``>`` is aligned to the right.

        Cells are shown as they are: no markup, no control characters. In a terminal that is too narrow, ids are their last
        characters, if commands take these: an id in three lines cannot be copied, and leaves no room for the others.
        With `optional`, such a terminal also does without columns: empty ones, then those of `optional`, the first of them
        first, until the others fit. A line names those that had something to show.
        """
        whole_ids = self.stdout.width >= _ROOM * len(columns)
        cells = [list(row) if whole_ids else [_short_id(cell) for cell in row] for row in rows]
        left_out: list[str] = []
        if optional:
            columns, cells, left_out = _narrowed(self.stdout, columns, cells, optional, whole_ids=whole_ids)
        self.stdout.print(make_table(columns, cells, title=title, whole_ids=whole_ids))
        if left_out:
            self.note(f"this terminal is too narrow for: {', '.join(left_out)}; --json has all")


def _narrowed(
    console: Console,
    columns: Sequence[str],
    rows: list[list[object]],
    optional: Sequence[str],
    *,
    whole_ids: bool,
) -> tuple[list[str], list[list[object]], list[str]]:
    """Return those columns of a table that fit into the console, their cells, and the names of columns left out with content."""

    def is_empty(column: str) -> bool:
        position = columns.index(column)
        return all(row[position] in ("", quantities.NONE) for row in rows)

    def shown(names: Sequence[str]) -> tuple[list[str], list[list[object]]]:
        positions = [columns.index(name) for name in names]
        cells = [[row[position] for position in positions] for row in rows]
        return [_folded(name, [row[i] for row in cells]) for i, name in enumerate(names)], cells

    kept, left_out = list(columns), []
    for column in sorted((name for name in optional if name in columns), key=is_empty, reverse=True):
        headers, cells = shown(kept)
        table = make_table(headers, cells, whole_ids=whole_ids)
        if (
            console.measure(table, options=console.options.update(max_width=_UNBOUNDED)).maximum
            <= console.width
        ):
            break
        kept.remove(column)
        if not is_empty(column):
            left_out.append(column.lstrip(">"))
    return *shown(kept), left_out


def _folded(header: str, cells: Sequence[object]) -> str:
    """Return a column's header with line breaks where it would be wider than the column's cells."""
    width = max([*(len(str(cell)) for cell in cells), *map(len, header.split())], default=0)
    return "\n".join(textwrap.wrap(header, width)) if header else header


def _short_id(cell: object) -> object:
    return f"…{cell[-_LAST:]}" if isinstance(cell, str) and is_whole_id(cell) else cell


def make_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    title: str | None = None,
    one_line: bool = False,
    whole_ids: bool = False,
) -> Table:
    """Return a table as `Output.table` prints it; with `one_line`, as wide as the terminal and with each row cut to a line.

    With `whole_ids`, an id keeps to one line, at the cost of the other columns.
    """
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False, title_style="bold")
    table.expand = one_line
    cells = [[clean(str(cell), 300) for cell in row] for row in rows]
    for position, column in enumerate(columns, start=1):
        right = column.startswith(">")
        # An id in two lines cannot be copied.
        holds_ids = whole_ids and any(_ID.fullmatch(row[position - 1]) for row in cells)
        table.add_column(
            column.lstrip(">"),
            justify="right" if right else "left",
            overflow="ellipsis" if one_line else "fold",
            no_wrap=one_line or holds_ids,
            ratio=1 if one_line and position == len(columns) else None,
        )
    for row in cells:
        table.add_row(*row)
    return table


def _console(*, stderr: bool) -> Console:
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else _WIDTH_WITHOUT_TERMINAL
    return Console(file=stream, width=width, markup=False, highlight=False, emoji=False)


def write_whole(path: Path, text: str) -> None:
    """Write the text to a temporary file and rename it, so that nobody sees a part. An older file is replaced.

    Raises:
        InvalidInputError: ``cannot-write``.
    """
    with output_file(path) as temporary, writing(path):
        temporary.write_text(text, encoding="utf-8")


def artifact_file(output: Path) -> tuple[Path, str | None]:
    """Return the folder and the artifact's name that ``--output`` means: ``out/net.tunefarm`` names both, any other path a folder."""
    if output.suffix == ".tunefarm" and not output.is_dir():
        return output.parent, output.name
    return output, None


def check_folder(folder: Path) -> None:
    """Create a folder for results if it is missing, and check that files can be written into it.

    Raises:
        InvalidInputError: ``bad-output``.
    """
    if folder.suffix == ".tunefarm" and not folder.is_dir():
        raise InvalidInputError(
            f"--output {folder}: several artifacts need a folder, --output {folder.parent}, not one file's name",
            code="bad-output",
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except FileExistsError as error:
        raise InvalidInputError(
            f"--output {folder}: this is a file, but it must be a folder", code="bad-output"
        ) from error
    except OSError as error:
        raise InvalidInputError(
            f"--output {folder}: files cannot be written into this folder: {error.strerror}",
            code="bad-output",
        ) from error


@contextmanager
def without_log() -> Iterator[None]:
    """Log nothing during the block, because the command prints the same."""
    import structlog

    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        yield
    finally:
        structlog.configure(**before)
