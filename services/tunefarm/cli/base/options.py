"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tunefarm_text.job_terms import HELP

_PANEL = "Server"
_BUDGET = "Budget: the limit that is reached first ends the search"

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar="TUNEFARM_URL",
        metavar="URL",
        help="Where the API answers. Without it, the farm that `tunefarm serve` runs on this machine.",
        rich_help_panel=_PANEL,
    ),
]
ApiKey = Annotated[
    str | None,
    typer.Option(
        "--api-key",
        envvar="TUNEFARM_API_KEY",
        metavar="KEY",
        help="API key. Other users of this machine can read it off the command line: prefer the variable or a file.",
        rich_help_panel=_PANEL,
    ),
]
ApiKeyFile = Annotated[
    Path | None,
    typer.Option(
        "--api-key-file",
        envvar="TUNEFARM_API_KEY_FILE",
        metavar="FILE",
        help="File that holds the API key.",
        rich_help_panel=_PANEL,
    ),
]
Home = Annotated[
    Path | None,
    typer.Option(
        "--home",
        envvar="TUNEFARM_HOME",
        metavar="DIR",
        help="Folder of the farm on this machine: database, store, key, logs.",
        rich_help_panel=_PANEL,
    ),
]
Shape = Annotated[
    list[str] | None,
    typer.Option(
        "--shape",
        metavar="NAME=D,D,…",
        help="Shape of an input with dynamic dimensions, like x=1,3,224,224. Can be given several times.",
    ),
]
Minutes = Annotated[
    float | None, typer.Option("--minutes", "-m", help=HELP["minutes"], rich_help_panel=_BUDGET)
]
Seconds = Annotated[float | None, typer.Option("--seconds", help=HELP["seconds"], rich_help_panel=_BUDGET)]
Trials = Annotated[
    int | None,
    typer.Option("--trials", help=HELP["trials"], rich_help_panel=_BUDGET),
]
Patience = Annotated[
    int | None,
    typer.Option("--patience", help=HELP["patience"], rich_help_panel=_BUDGET),
]
MinGain = Annotated[
    float | None,
    typer.Option(
        "--min-gain",
        help=HELP["min_gain"],
        rich_help_panel=_BUDGET,
    ),
]
Priority = Annotated[
    str | None,
    typer.Option(
        "--priority",
        metavar="PRIORITY",
        help=HELP["priority"],
    ),
]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, help="Show at most so many.")]


def wall_sec_of(minutes: float | None, seconds: float | None) -> float | None:
    """Return the time that both options give together; None where neither is given."""
    return None if minutes is None and seconds is None else 60.0 * (minutes or 0.0) + (seconds or 0.0)


def as_priority(text: str | None) -> int | str | None:
    """Return a priority as the server takes it: a number, or a name."""
    try:
        return None if text is None else int(text)
    except ValueError:
        return text
