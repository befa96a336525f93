"""The farm on this machine: the one place of the command that knows `tunefarm.embedded`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tunefarm.cli.output import Output


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalFarm:
    url: str
    api_key: str | None


def running_farm(home: Path | None) -> LocalFarm | None:
    """Return the farm that runs in `home`, None where none does."""
    return None


@contextmanager
def started_farm(out: Output, home: Path | None) -> Iterator[LocalFarm]:
    raise NotImplementedError
    yield


def database_url(home: Path | None) -> str:
    raise NotImplementedError
