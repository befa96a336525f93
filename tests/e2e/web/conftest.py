"""A real Chromium with the real API: most tests use a replayed farm, one a farm that compiles."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import pytest
import real_browser
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, expect
from replay_server import ReplayServer, replay_server

PATIENCE_MS = 60_000

_DROP = """
([selector, name, base64]) => {
  const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  const transfer = new DataTransfer();
  transfer.items.add(new File([bytes], name));
  const target = document.querySelector(selector);
  for (const kind of ["dragenter", "dragover", "drop"]) {
    target.dispatchEvent(new DragEvent(kind, { dataTransfer: transfer, bubbles: true, cancelable: true }));
  }
}
"""


class Farm(Protocol):
    """Whatever serves the dashboard."""

    @property
    def url(self) -> str: ...

    @property
    def api_key(self) -> str: ...


@dataclass
class Seat:
    """A user at a browser. The browser's complaints are kept, and fail the test at its end."""

    context: BrowserContext
    server: Farm
    complaints: list[str] = field(default_factory=list)

    def open(self, path: str = "/jobs") -> Page:
        page = self.context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on(
            "console",
            lambda message: self.complaints.append(message.text) if message.type == "error" else None,
        )
        page.goto(self.server.url + path)
        return page

    def nothing_serious(self, page: Page) -> None:
        """Check with axe that there is no serious obstacle for accessibility."""
        violations = Axe().run(page).response["violations"]
        serious = [violation for violation in violations if violation["impact"] in ("serious", "critical")]
        assert serious == [], [
            (violation["id"], [node["html"] for node in violation["nodes"]]) for violation in serious
        ]

    def sign_in(self) -> Page:
        page = self.open("/sign-in")
        page.get_by_label("API key").fill(self.server.api_key)
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url("**/jobs")
        return page

    def drop(self, page: Page, name: str, content: bytes) -> None:
        """Drop a file on the page's field for models."""
        page.evaluate(_DROP, ["#drop", name, base64.b64encode(content).decode()])

    def forgive_restart(self) -> None:
        """Forget the browser's complaints about a server that was away."""
        self.complaints[:] = [complaint for complaint in self.complaints if "net::ERR_" not in complaint]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """A browser of one file's tests: as long as it lives, no other test of the process can have one, or an event loop."""
    expect.set_options(timeout=PATIENCE_MS)
    with real_browser.chromium() as browser:
        yield browser


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ReplayServer]:
    with replay_server(tmp_path, step_turn_sec=0.0, step_chain_sec=0.0) as server:
        server.add_device("node-1")
        yield server


@pytest.fixture(params=[{}], ids=["plain"])
def seat(request: pytest.FixtureRequest, chromium: Browser, server: Farm) -> Iterator[Seat]:
    context = chromium.new_context(**{"viewport": {"width": 1280, "height": 800}, **request.param})
    seat = Seat(context, server)
    yield seat
    context.close()
    assert seat.complaints == [], "\n".join(seat.complaints)
