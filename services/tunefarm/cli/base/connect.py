"""Connect a command to a server: the given one, or the farm on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tunefarm.cli.base.option_group import OptionGroup
from tunefarm_tuning.core.errors import InvalidInputError, TransientError

if TYPE_CHECKING:
    from tunefarm.client import Client


_PANEL = "Server"

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Server(OptionGroup):
    """The server of a command, from the options or their environment variables."""

    url: Annotated[
        str | None,
        typer.Option(
            "--url",
            envvar="TUNEFARM_URL",
            metavar="URL",
            help="URL of the server; by default, the farm that `tunefarm serve` runs on this machine.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    api_key: Annotated[
        str | None,
        typer.Option(
            "--api-key",
            envvar="TUNEFARM_API_KEY",
            metavar="KEY",
            help="API key. Other users of this machine can see the command line: prefer the variable or a file.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    api_key_file: Annotated[
        Path | None,
        typer.Option(
            "--api-key-file",
            envvar="TUNEFARM_API_KEY_FILE",
            metavar="FILE",
            help="File with the API key.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    home: Home = None

    def find(self) -> tuple[str, str | None] | None:
        """Return URL and API key of the given server, else of the farm on this machine, else None.

        Raises:
            InvalidInputError: If the key file holds no key.
        """
        api_key = self.api_key
        if api_key is None and self.api_key_file is not None:
            api_key = read_key(self.api_key_file)
        if self.url is not None:
            return self.url, api_key
        from tunefarm.cli.base.local_farm import running_farm

        farm = running_farm(self.home)
        return None if farm is None else (farm.url, api_key or farm.api_key)

    @contextmanager
    def connect(self) -> Iterator[Client]:
        """Connect a client during the block.

        Raises:
            TransientError: If no server was named and none runs on this machine.
        """
        from tunefarm.client import Client

        address = self.find()
        if address is None:
            raise TransientError(
                "no farm runs on this machine and no server is configured: start one with `tunefarm serve`, "
                "or give --url",
                code="no-server",
            )
        with Client(*address) as client:
            yield client


def read_key(path: Path) -> str:
    """Return the API key in a file."""
    key = path.read_text(encoding="utf-8").strip()
    if not key:
        raise InvalidInputError(f"{path} is empty: no API key", code="no-api-key")
    return key
