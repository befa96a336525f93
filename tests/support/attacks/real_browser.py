"""A real Chromium, and pages of other origins that are open in it beside the farm's."""

from __future__ import annotations

import http.server
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from playwright.sync_api import Browser, sync_playwright

NO_BROWSER = "no chromium on the PATH: apt-get install chromium, or set TUNEFARM_TEST_CHROMIUM to one"


@contextmanager
def chromium(*arguments: str) -> Iterator[Browser]:
    """Run a browser for the time of the block; skip the test where there is none."""
    path = os.environ.get("TUNEFARM_TEST_CHROMIUM") or shutil.which("chromium")
    if path is None:
        pytest.skip(NO_BROWSER)
    # Chromium's own sandbox refuses to run as root, as containers do.
    own = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=[*own, *arguments])
        yield browser
        browser.close()


@dataclass
class OtherSite:
    """A web server of somebody else's, which serves one page.

    Attributes:
        port: Where it listens, on all addresses of loopback.
        page: What it answers with.
        cookies: The cookies that browsers sent it, by the host that they asked for.
    """

    port: int = 0
    page: str = ""
    cookies: dict[str, str] = field(default_factory=dict)


@contextmanager
def other_site() -> Iterator[OtherSite]:
    """Serve such a page for the time of the block."""
    site = OtherSite()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            site.cookies[self.headers["Host"].partition(":")[0]] = self.headers.get("Cookie", "")
            body = site.page.encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        site.port = server.server_address[1]
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            yield site
        finally:
            server.shutdown()
            serving.join()
