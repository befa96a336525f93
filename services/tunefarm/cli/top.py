"""``tunefarm top``: a live overview of the farm."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Generic, TypeVar

import typer

from tunefarm.cli.base.connect import Server
from tunefarm.cli.base.output import Output, make_table
from tunefarm.cli.farm_snapshot import DeviceLine, FarmSnapshot, JobLine, Watcher
from tunefarm_text import quantities
from tunefarm_tuning.core.untrusted_text import clean

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

L = TypeVar("L")

_BAR = 10
_FEW = 4
"""Minimum number of lines per list, even on a low terminal."""

_OVERHEAD_LINES = 13


def top(
    out: Output,
    server: Server,
    every: Annotated[
        float, typer.Option("--every", min=0.2, metavar="SEC", help="Seconds between updates.")
    ] = 2.0,
    once: Annotated[
        bool, typer.Option("--once", help="Print once and end. The default if the output is not a terminal.")
    ] = False,
) -> None:
    """Show the farm's jobs, devices with the jobs that hold them, and trials per minute, until Ctrl-C.

    With --json, or if standard output is not a terminal, it prints once and ends.
    """
    with server.connect() as client:
        watcher = Watcher(client)
        snapshot = watcher.look()
        if out.json:
            out.data(snapshot.as_json())
        elif once or not sys.stdout.isatty() or os.environ.get("TERM") == "dumb":
            out.stdout.print(draw(snapshot, width=out.stdout.width if sys.stdout.isatty() else None))
        else:
            with suppress(KeyboardInterrupt):  # its normal end
                _watch(out, watcher, snapshot, every)


def _watch(out: Output, watcher: Watcher, snapshot: FarmSnapshot, every_sec: float) -> None:
    from rich.live import Live

    from tunefarm.client import UnavailableError

    trouble = ""
    with Live(console=out.stdout, screen=True, auto_refresh=False) as live:
        while True:
            live.update(
                draw(snapshot, width=out.stdout.width, height=out.stdout.height, trouble=trouble),
                refresh=True,
            )
            time.sleep(every_sec)
            try:
                snapshot, trouble = watcher.look(), ""
            except UnavailableError as error:
                trouble = error.detail


def draw(
    snapshot: FarmSnapshot, *, width: int | None = None, height: int | None = None, trouble: str = ""
) -> RenderableType:
    """Return the screen's contents.

    Args:
        snapshot: The farm.
        width: Columns of the terminal; None where lines may be of any length.
        height: Lines of the terminal; None for as many as it takes.
        trouble: Why the snapshot is not up to date; empty if it is.
    """
    from rich.console import Group
    from rich.text import Text

    jobs, devices = [*snapshot.jobs, *snapshot.ended], list(snapshot.devices)
    shown_jobs, shown_devices = len(jobs), len(devices)
    if height is not None:
        room = max(height - _OVERHEAD_LINES, 2 * _FEW)
        shown_devices = min(len(devices), max(room // 2, room - len(jobs)))
        shown_jobs = min(len(jobs), room - shown_devices)
    parts: list[RenderableType] = [
        Text(_headline(snapshot), style="bold"),
        Text(clean(f"{trouble}; trying again", 300) if trouble else "", style="red"),
        _table(_JOB_COLUMNS, jobs[:shown_jobs], width),
        Text(_more(len(jobs) - shown_jobs, "jobs", is_cut=snapshot.is_cut)),
        _table(_DEVICE_COLUMNS, devices[:shown_devices], width),
        Text(_more(len(devices) - shown_devices, "devices")),
    ]
    return Group(*(part for part in parts if not isinstance(part, Text) or part.plain))


def _headline(snapshot: FarmSnapshot) -> str:
    queue = snapshot.queue
    at_work = sum(line.device.state == "leased" for line in snapshot.devices)
    return " · ".join(
        (
            snapshot.url,
            datetime.fromtimestamp(snapshot.time).astimezone().strftime("%H:%M:%S"),
            f"jobs: {queue['at_work']} at work, {queue['waiting']} waiting, {queue['paused']} paused",
            f"devices: {at_work} of {len(snapshot.devices)} at work",
            f"{snapshot.trials_per_min:.0f} trials per minute",
        )
    )


@dataclass(frozen=True, slots=True)
class _Column(Generic[L]):
    """A column of a list: its name, its cell, and the least width of a terminal that shows it."""

    name: str
    cell: Callable[[L], object]
    from_width: int = 0


def _table(columns: Sequence[_Column[L]], lines: Sequence[L], width: int | None) -> Table:
    shown = [column for column in columns if width is None or width >= column.from_width]
    rows = [[column.cell(line) for column in shown] for line in lines]
    return make_table([column.name for column in shown], rows, one_line=width is not None)


def _bar(line: JobLine) -> str:
    share = _share(line)
    return "" if share is None else f"{'█' * round(_BAR * share):░<{_BAR}}"


def _share(line: JobLine) -> float | None:
    return 1.0 if line.job.state == "succeeded" else line.progress


_JOB_COLUMNS: tuple[_Column[JobLine], ...] = (
    _Column("job", lambda line: line.job.id),
    _Column("model", lambda line: line.model, 110),
    _Column("state", lambda line: line.job.state),
    _Column("", _bar, 140),
    _Column(">done", lambda line: quantities.percent(_share(line))),
    _Column(">trials", lambda line: line.job.trials),
    _Column(">failed", lambda line: line.job.failures, 140),
    _Column(
        ">per min",
        lambda line: quantities.NONE if line.trials_per_min is None else f"{line.trials_per_min:.0f}",
        90,
    ),
    _Column(">best", lambda line: line.job.best_text),
    _Column("devices", lambda line: line.job.waiting or ", ".join(line.devices) or quantities.NONE),
)
_DEVICE_COLUMNS: tuple[_Column[DeviceLine], ...] = (
    _Column("device", lambda line: line.device.name),
    _Column("pool", lambda line: line.device.device_key),
    _Column("model", lambda line: line.device.device_model, 110),
    _Column("state", lambda line: line.device.state),
    _Column("working for", lambda line: line.work or line.device.reason or quantities.NONE),
)


def _more(count: int, noun: str, *, is_cut: bool = False) -> str:
    if is_cut:
        return f"… and more {noun}"
    return f"… and {count} more {noun}" if count else ""
