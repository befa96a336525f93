"""Which server a command talks to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tunefarm_tuning.core.errors import InvalidInputError, TransientError

if TYPE_CHECKING:
    from tunefarm.client import Client


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """What the options ``--url``, ``--api-key``, ``--api-key-file`` and ``--home`` (or their variables) say."""

    url: str | None
    api_key: str | None
    api_key_file: Path | None
    home: Path | None

    def find(self) -> tuple[str, str | None] | None:
        """Return URL and API key of the server that was named, else of the farm on this machine, else None.

        Raises:
            InvalidInputError: If the key file holds no key.
        """
        api_key = self.api_key
        if api_key is None and self.api_key_file is not None:
            api_key = read_key(self.api_key_file)
        if self.url is not None:
            return self.url, api_key
        from tunefarm.cli.farm.local_farm import running_farm

        found = running_farm(self.home)
        return None if found is None else (found.url, api_key or found.api_key)

    @contextmanager
    def connect(self) -> Iterator[Client]:
        """Connect a client for the time of the block.

        Raises:
            TransientError: If no server was named and none runs on this machine.
        """
        from tunefarm.client import Client

        found = self.find()
        if found is None:
            raise TransientError(
                "no farm runs on this machine and no server is named: "
                "start one with `tunefarm serve`, or give --url",
                code="no-server",
            )
        with Client(*found) as client:
            yield client


def read_key(path: Path) -> str:
    """Return the API key in a file."""
    key = path.read_text(encoding="utf-8").strip()
    if not key:
        raise InvalidInputError(f"{path} is empty: no API key", code="no-api-key")
    return key
