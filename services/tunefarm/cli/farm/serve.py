"""``tunefarm serve``: run a whole farm on this machine. ``tunefarm dashboard``: print a link that signs a browser in."""

from __future__ import annotations

import sys
import webbrowser
from contextlib import suppress
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated

import typer

from tunefarm.cli.base.connect import Home, Server
from tunefarm.cli.base.edge import Terminated
from tunefarm.cli.base.local_farm import started_farm
from tunefarm.cli.base.output import Output
from tunefarm_text import quantities
from tunefarm_tuning.core.errors import InvalidInputError

if TYPE_CHECKING:
    from tunefarm.embedded import EmbeddedFarm

_ITS_OWN = frozenset({"database_url", "broker_url", "store_dir", "gateway", "gateway_dir", "signing_key"})
"""Settings that the embedded farm chooses itself."""


def serve(
    out: Output,
    host: Annotated[
        str,
        typer.Option(
            "--host",
            help="Address that the API and the gateway listen on. On any but 127.0.0.1, others in the network can try keys.",
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Port of the API; 0 takes a free port.")
    ] = 8000,
    device_key: Annotated[
        str, typer.Option("--device-key", help="Pool that this machine joins as a device.")
    ] = "local",
    target: Annotated[
        str,
        typer.Option(
            "--target",
            help="Target of this machine; its CPU by default. `cuda`: its GPUs, each a device.",
        ),
    ] = "host",
    concurrency: Annotated[
        int | None,
        typer.Option(
            "--concurrency", "-c", min=1, metavar="N", help="Number of steps that the worker runs at once."
        ),
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--setting",
            metavar="NAME=VALUE",
            help="A setting of the API and the worker, like ROUND_SIZE=16. Can be given several times.",
        ),
    ] = None,
    home: Home = None,
) -> None:
    """Run a farm on this machine until Ctrl-C: API, worker, gateway, a device and their services.

    All its data is in the folder --home; the next start continues there. The first start creates an API key. Commands
    of the same user find the farm by themselves.
    """
    from tunefarm.embedded import FarmOptions

    options = FarmOptions(
        host=host,
        port=port,
        device_key=device_key,
        target=target,
        concurrency=concurrency,
        settings=_settings(setting or []),
    )
    with started_farm(out, home, options) as farm:
        _announce(out, farm)
        with suppress(KeyboardInterrupt, Terminated):  # the normal end of a server
            farm.wait()


def _announce(out: Output, farm: EmbeddedFarm) -> None:
    """Say where the farm is, and how to begin."""
    if out.json:
        facts = {
            "url": farm.url,
            "home": str(farm.home.path),
            "key_file": str(farm.home.key_file),
            "logs": str(farm.home.log_dir),
            "device_key": farm.device_key,
        }
        out.data({**facts, "dashboard": sign_in_url(farm.url, farm.api_key)})
        return
    out.text(f"the farm answers at {farm.url}", style="bold")
    out.text(f"API key  {farm.home.key_file}")
    out.text(f"logs     {farm.home.log_dir}")
    out.text("try      tunefarm tune model.onnx")
    if sys.stdout.isatty():
        out.text("or the dashboard with this link, which is valid once:")
        out.text(sign_in_url(farm.url, farm.api_key))
        out.text("`tunefarm dashboard` prints another one")
    else:  # a log, which others may read
        out.text("or the dashboard: `tunefarm dashboard` prints a link that signs a browser in")
    out.text("Ctrl-C stops the farm")


def sign_in_url(url: str, api_key: str) -> str:
    """Return a link that signs a browser in."""
    from tunefarm.client import Client

    with Client(url, api_key) as client:
        return client.keys.sign_in_link().url


def _settings(texts: list[str]) -> dict[str, str]:
    settings: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise InvalidInputError(
                f"--setting {text} cannot be read: write it like ROUND_SIZE=16", code="bad-setting"
            )
        settings[name.upper().removeprefix("TUNEFARM_")] = value
    if settings:
        _check_names(settings)
    return settings


def _check_names(settings: dict[str, str]) -> None:
    """Refuse settings that API and worker would silently ignore.

    Raises:
        InvalidInputError: ``bad-setting``.
    """
    from tunefarm_app.settings import OLDER_NAMES, Settings

    known = [name.upper() for name in Settings.model_fields if name not in _ITS_OWN]
    for name in settings:
        if name not in known and name.lower() not in OLDER_NAMES:
            near = get_close_matches(name, known, n=2) or ["ROUND_SIZE"]
            raise InvalidInputError(
                f"--setting {name} is unknown or cannot be given here: write it like {' or '.join(near)}",
                code="bad-setting",
            )


def dashboard(
    out: Output,
    server: Server,
    open_browser: Annotated[
        bool, typer.Option("--open", help="Also open the link in this machine's browser.")
    ] = False,
) -> None:
    """Print a link that signs a browser in to the dashboard, once, within 15 minutes.

    The browser gets the rights of this command's API key.
    """
    with server.connect() as client:
        link = client.keys.sign_in_link()
    if open_browser:
        webbrowser.open(link.url)
    out.result({"url": link.url, "expires_at": link.expires_at}, link.url)
    if not out.json:
        out.note(f"valid once, until {quantities.local_time(link.expires_at)}")
