"""Pages of other origins, in a real browser in which somebody is signed in at the farm.

Another site, another port of the farm's host (to which the browser sends the farm's cookie), and a name that was bound again to the farm's
address: none changes anything, reads anything, frames a page, or leaves the browser signed in as somebody else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from api_server import ApiServer, api_server
from api_world import World
from app_farm import farm_settings, make_farm
from playwright.sync_api import Browser, BrowserContext, Error, Page
from real_browser import OtherSite, chromium, other_site
from sqlalchemy import text

from tunefarm_api.gate import LOOPBACK_HOSTS
from tunefarm_app.access.api_keys import create_api_key
from tunefarm_app.access.browser_sessions import make_link
from tunefarm_app.engines.replay import ReplayEngine

HOSTS = ("evil.example", "localhost", "127.0.0.1")
"""Of another site; and of two other origins, of which the last is of the same site as the farm."""

_FORM = """
([url, fields, type]) => {
  const form = document.createElement("form");
  form.method = "post"; form.action = url; form.enctype = type;
  for (const [name, value] of Object.entries(fields)) {
    const input = document.createElement("input");
    input.name = name; input.value = value; form.append(input);
  }
  const frame = document.createElement("iframe");
  frame.name = form.target = `result-${document.forms.length}`;
  document.body.append(frame, form);
  return new Promise((resolve) => { frame.onload = () => setTimeout(resolve, 50); form.submit(); });
}
"""

_READ = """
async ([url, options]) => {
  try {
    const answer = await fetch(url, options);
    return `${answer.type} ${answer.status} ${await answer.text()}`;
  } catch (error) { return "refused"; }
}
"""

_LOAD = """
([tag, name, url]) => new Promise((resolve) => {
  const element = document.createElement(tag);
  element[name] = url;
  if (tag === "link") element.rel = "stylesheet";
  element.onload = () => resolve("loaded");
  element.onerror = () => resolve("refused");
  document.body.append(element);
})
"""

_FRAME = """
(url) => new Promise((resolve) => {
  const frame = document.createElement("iframe");
  frame.src = url; frame.onload = () => setTimeout(resolve, 100);
  document.body.append(frame);
})
"""

_LISTEN = """
(url) => new Promise((resolve) => {
  const source = new EventSource(url, { withCredentials: true });
  source.addEventListener("hello", () => resolve("heard"));
  source.onerror = () => { source.close(); resolve("refused"); };
})
"""

_SOCKET = """
(url) => new Promise((resolve) => {
  const socket = new WebSocket(url);
  socket.onopen = () => resolve("open");
  socket.onerror = () => resolve("refused");
})
"""


@dataclass
class Victim:
    """Somebody who is signed in as an administrator, and opens other pages in the same browser."""

    context: BrowserContext
    world: World
    server: ApiServer
    site: OtherSite
    home: Page
    before: dict[str, int] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 0

    def visit(self, host: str) -> Page:
        page = self.context.new_page()
        page.goto(f"http://{host}:{self.site.port}/")
        return page

    def counts(self) -> dict[str, int]:
        with self.world.farm.services.uow.engine.begin() as connection:
            return {
                table: connection.execute(text(f"SELECT count(*) FROM {table}")).scalar_one()
                for table in ("api_keys", "webhooks", "jobs", "models", "devices", "sweeps", "steps")
            }

    def is_untouched(self) -> bool:
        """Return whether nothing was changed, and the victim is signed in as before."""
        self.home.goto(f"{self.url}/keys")
        assert self.home.get_by_role("heading", name="Keys", exact=True).count() == 1
        return self.counts() == self.before


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    rules = "MAP evil.example 127.0.0.1,MAP rebound.example 127.0.0.1"
    with chromium(f"--host-resolver-rules={rules}") as browser:
        yield browser


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    farm = make_farm(farm_settings(tmp_path_factory.mktemp("farm")), ReplayEngine())
    yield World(farm)
    farm.services.close()


@pytest.fixture
def hosts() -> frozenset[str] | None:
    """Hosts that the server takes: any, as beyond loopback where no ``--allow-host`` is given."""
    return None


@pytest.fixture
def victim(browser: Browser, world: World, hosts: frozenset[str] | None) -> Iterator[Victim]:
    context = browser.new_context()
    context.set_default_timeout(30_000)
    with api_server(world.farm, allowed_hosts=hosts) as server, other_site() as site:
        home = context.new_page()
        home.goto(f"{server.url}/sign-in")
        home.get_by_label("API key").fill(world.keys["admin"])
        home.get_by_role("button", name="Sign in").click()
        home.wait_for_url("**/jobs")
        victim = Victim(context, world, server, site, home)
        victim.before = victim.counts()
        yield victim
        context.close()
        assert server.faults == []


def forms(world: World) -> dict[str, dict[str, str]]:
    """Return forms that change something, by path."""
    known = world.known
    return {
        "/keys": {"name": "planted", "scope-admin": "on"},
        f"/keys/{known['key_id']}/revoke": {},
        "/webhooks": {"url": "https://8.8.8.8/planted"},
        f"/webhooks/{known['webhook_id']}/delete": {},
        f"/models/{known['model_id']}/jobs": {"trials": "8", "pool": "pool"},
        f"/models/{known['model_id']}/delete": {},
        f"/devices/{known['device_id']}/drain": {},
        "/devices/join": {"name": "planted", "pool": "pool"},
        "/sweeps": {"model": known["model_id"], "trials": "8"},
        "/sign-out": {"everywhere": "on"},
    }


@pytest.mark.matrix(every=3)
@pytest.mark.parametrize("host", HOSTS)
def test_no_form_of_another_origin_is_taken(host: str, victim: Victim) -> None:
    page = victim.visit(host)
    for path, fields in forms(victim.world).items():
        page.evaluate(_FORM, [victim.url + path, fields, "application/x-www-form-urlencoded"])
    for media_type in ("multipart/form-data", "text/plain"):
        page.evaluate(_FORM, [f"{victim.url}/keys", forms(victim.world)["/keys"], media_type])
    for path in forms(victim.world):
        for body in ("a=b", '{"name": "planted", "scopes": ["admin"]}'):
            options = {"method": "POST", "mode": "no-cors", "credentials": "include", "body": body}
            page.evaluate(_READ, [victim.url + path, options])
    assert victim.is_untouched()


@pytest.mark.matrix(every=3)
@pytest.mark.parametrize("host", HOSTS)
def test_nobody_is_signed_in_as_somebody_else(host: str, victim: Victim) -> None:
    """With the attacker's key, or a link of it: what the victim uploads then would be the attacker's."""
    services = victim.world.farm.services
    key, secret = create_api_key(services, name="attacker", scopes=["read"])
    link = make_link(services, key)
    victim.before = victim.counts()
    page = victim.visit(host)
    for fields in ({"key": secret}, {"link": link}):
        page.evaluate(_FORM, [f"{victim.url}/sign-in", fields, "application/x-www-form-urlencoded"])
    opened = victim.context.new_page()
    opened.goto(f"{victim.url}/sign-in?link={link}")
    assert opened.get_by_role("button", name="Continue").count() == 1
    assert opened.get_by_text("attacker").count() == 1
    assert victim.is_untouched()


@pytest.mark.exhaustive
@pytest.mark.parametrize("host", HOSTS)
def test_nothing_is_read_by_another_origin(host: str, victim: Victim) -> None:
    page, job = victim.visit(host), victim.world.known["job_id"]
    paths = (
        "/jobs",
        "/keys",
        f"/jobs/{job}/curve.json",
        f"/jobs/{job}/trace.json",
        f"/jobs/{job}/artifact",
        "/v1/jobs",
        "/v1/keys",
        "/v1/openapi.json",
        "/audit/export",
    )
    for path in paths:
        for options in (
            {"credentials": "include"},
            {"credentials": "include", "headers": {"Authorization": "Bearer x"}},
            {},
        ):
            assert page.evaluate(_READ, [victim.url + path, options]) == "refused", path
        opaque = page.evaluate(_READ, [victim.url + path, {"credentials": "include", "mode": "no-cors"}])
        assert opaque in ("refused", "opaque 0 "), path
    for tag, name in {"script": "src", "img": "src", "link": "href"}.items():
        for path in (f"/jobs/{job}/curve.json", f"/jobs/{job}/trace.json", "/jobs", "/static/live.js"):
            assert page.evaluate(_LOAD, [tag, name, victim.url + path]) == "refused", (tag, path)
    assert page.evaluate(_LISTEN, f"{victim.url}/live") == "refused"
    assert page.evaluate(_SOCKET, victim.url.replace("http", "ws") + "/live") == "refused"
    assert victim.is_untouched()


@pytest.mark.exhaustive
@pytest.mark.parametrize("host", HOSTS)
def test_no_page_is_framed_or_held(host: str, victim: Victim) -> None:
    page, known = victim.visit(host), victim.world.known
    job = known["job_id"]
    for path in (
        "/sign-in",
        "/jobs",
        "/keys",
        f"/jobs/{job}",
        f"/jobs/{job}/report",
    ):
        page.evaluate(_FRAME, victim.url + path)
        assert not [frame.url for frame in page.frames if victim.url in frame.url], path
        page.goto(page.url)
    with victim.context.expect_page() as opened:
        page.evaluate("(url) => { window.held = window.open(url) }", f"{victim.url}/jobs")
    opened.value.wait_for_load_state()
    assert page.evaluate("() => window.held.closed") is True, "it has a group of its own"
    assert opened.value.evaluate("() => window.opener") is None


@pytest.mark.matrix(every=2, each_value=False)
@pytest.mark.parametrize("hosts", [LOOPBACK_HOSTS, None], ids=["on loopback", "beyond"])
def test_a_name_that_was_bound_again_reaches_nothing(victim: Victim, hosts: frozenset[str] | None) -> None:
    """What the browser takes for a page of the attacker's own origin is the farm's server; it has no cookie of the farm's."""
    rebound = f"http://rebound.example:{victim.port}"
    page = victim.context.new_page()
    if hosts is not None:
        for path in (
            "/",
            "/jobs",
            "/sign-in",
            "/static/live.js",
            "/healthz",
            "/readyz",
            "/metrics",
            "/v1/jobs",
            "/x",
        ):
            answer = page.goto(rebound + path)
            assert answer is not None
            assert answer.status == 421, path
        assert page.evaluate(_READ, ["/sign-in", {"method": "POST", "body": "key=x"}]).startswith("basic 421")
        assert page.evaluate(_SOCKET, rebound.replace("http", "ws") + "/live") == "refused"
    else:
        page.goto(f"{rebound}/sign-in")
        for path in ("/jobs", "/keys", "/live", "/v1/jobs", "/v1/keys", "/metrics"):
            answer = page.evaluate(_READ, [path, {"credentials": "include"}])
            assert "Sign in" in answer or answer.startswith("basic 401"), (path, answer)
        for path, fields in forms(victim.world).items():
            if path != "/sign-out":
                page.evaluate(_FORM, [rebound + path, fields, "application/x-www-form-urlencoded"])
    assert victim.is_untouched()


@pytest.mark.exhaustive
def test_no_file_is_shown_as_a_page(victim: Victim) -> None:
    """What a stranger sent is downloaded, or shown as text that runs nothing."""
    known = victim.world.known
    job = known["job_id"]
    page = victim.context.new_page()
    for path in (f"/jobs/{job}/artifact", f"/jobs/{job}/records.jsonl", "/records/export"):
        with pytest.raises(Error, match=r"Download is starting|net::ERR_ABORTED"):
            page.goto(victim.url + path)
    for path in (
        f"/jobs/{job}/log.txt",
        f"/jobs/{job}/report",
        f"/jobs/{job}/tasks/0/source/schedule/download",
    ):
        with victim.context.expect_event(
            "response", lambda answer, path=path: answer.url.endswith(path)
        ) as heard:
            try:
                page.goto(victim.url + path)
            except Error:  # a download
                continue
        headers: Any = heard.value.all_headers()
        assert headers["x-content-type-options"] == "nosniff"
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src" not in policy.replace("script-src 'self'", "") or "sandbox" in policy


@pytest.mark.exhaustive
def test_the_cookie_goes_to_every_port_of_the_host(victim: Victim) -> None:
    """What is not promised (docs/security.md): browsers know no ports of cookies. Another name gets none."""
    for host in HOSTS:
        victim.visit(host)
    assert victim.site.cookies["evil.example"] == victim.site.cookies["localhost"] == ""
    assert "tunefarm_session" in victim.site.cookies["127.0.0.1"]


def test_the_pages_of_this_test_are_there(tmp_path: Path, victim: Victim) -> None:
    """Else the refusals above would say nothing: the victim's own page reads, listens and sends."""
    own = victim.home
    own.goto(f"{victim.url}/keys")
    assert tmp_path.is_dir()
    for path in ("/jobs", f"/jobs/{victim.world.known['job_id']}/curve.json"):
        assert own.evaluate(_READ, [path, {}]).startswith("basic 200"), path
    assert own.evaluate(_LISTEN, "/live") == "heard"
    for path, fields in forms(victim.world).items():
        if path in ("/webhooks", "/keys"):
            body = "&".join(f"{name}={value}" for name, value in fields.items())
            options = {
                "method": "POST",
                "body": body,
                "headers": {"Content-Type": "application/x-www-form-urlencoded"},
            }
            assert own.evaluate(_READ, [path, options]).startswith("basic 200"), path
    after = victim.counts()
    assert after["api_keys"] == victim.before["api_keys"] + 1
    assert after["webhooks"] == victim.before["webhooks"] + 1
