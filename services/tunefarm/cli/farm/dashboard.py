"""``tunefarm dashboard``: print a link that signs a browser in."""

from __future__ import annotations

import webbrowser
from typing import Annotated

import typer

from tunefarm.cli.base.connect import Server
from tunefarm.cli.base.output import Output
from tunefarm_text import quantities


def dashboard(
    out: Output,
    server: Server,
    open_browser: Annotated[
        bool, typer.Option("--open", help="Open it in this machine's browser as well.")
    ] = False,
) -> None:
    """Print a link to the dashboard that signs a browser in, once, within a quarter of an hour.

    The browser may do then what the API key of this command may do.
    """
    with server.connect() as client:
        link = client.keys.sign_in_link()
    if open_browser:
        webbrowser.open(link.url)
    out.result({"url": link.url, "expires_at": link.expires_at}, link.url)
    if not out.json:
        out.note(f"good once, until {quantities.local_time(link.expires_at)}")
