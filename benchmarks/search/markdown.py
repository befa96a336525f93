"""Print tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    return "\n".join([line(head), "|---" * len(head) + "|", *map(line, rows)])


def line(row: Sequence[str]) -> str:
    """Return a row of a Markdown table."""
    return "| " + " | ".join(row) + " |"


def print_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a Markdown table whose rows take long to come, each when it is there."""
    print(table(head, []), flush=True)
    for row in rows:
        print(line(row), flush=True)
