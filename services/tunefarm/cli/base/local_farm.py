"""Start or find the farm on this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tunefarm.cli.base.extras import require
from tunefarm.cli.base.output import Output

if TYPE_CHECKING:
    from tunefarm.embedded import EmbeddedFarm, FarmEvent, FarmOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalFarm:
    """The address of a farm."""

    url: str
    api_key: str


def running_farm(home: Path | None) -> LocalFarm | None:
    """Return the farm that runs in `home` (None: the user's own folder); None if none runs."""
    from tunefarm.embedded.home import FarmHome

    endpoint = FarmHome(home).running()
    return None if endpoint is None else LocalFarm(url=endpoint.url, api_key=endpoint.api_key)


@contextmanager
def started_farm(
    out: Output,
    home: Path | None,
    options: FarmOptions | None = None,
    *,
    on_event: Callable[[FarmEvent], None] | None = None,
) -> Iterator[EmbeddedFarm]:
    """Run a farm during the block; it is ready when the block begins.

    Raises:
        InvalidInputError: ``not-installed`` if the parts of a farm are not.
        ConflictError: ``farm-running`` if one runs in that folder.
        TransientError: ``farm-failed`` if it does not come up.
    """
    require("embedded")
    from tunefarm.embedded import EmbeddedFarm

    with EmbeddedFarm(home, options, on_event=on_event or _teller(out)) as farm:
        farm.wait_ready()
        yield farm


def _teller(out: Output) -> Callable[[FarmEvent], None]:
    """Return a listener that prints when parts of the farm start, and when one dies."""

    def tell(event: FarmEvent) -> None:
        if event.kind == "died":
            out.warning(f"{event.message}; its log is {event.data.get('log', '')}")
        elif event.kind in ("up", "starting") and event.part:
            out.note(f"farm: {event.part} {'is up' if event.kind == 'up' else 'starts'}", style="dim")
        elif event.kind == "stopping":
            out.note("farm: stopping", style="dim")

    return tell


def database_url(home: Path | None) -> str:
    """Return the URL of the database of the farm in `home`."""
    from tunefarm.embedded.home import FarmHome

    return FarmHome(home).database_url
