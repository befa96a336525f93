"""``tunefarm dashboard`` against the real API."""

from __future__ import annotations

import json
from typing import Any

import httpx

from tunefarm.client import Client


def sign_in(url: str) -> httpx.Response:
    """Press the button of the page that a link leads to; a link that was used has none."""
    server, _, link = url.partition("/sign-in?link=")
    headers = {"Origin": server}
    with httpx.Client(follow_redirects=True, timeout=60) as browser:
        page = browser.get(url)
        if page.status_code != 200:
            return page
        return browser.post(f"{server}/sign-in", data={"link": link}, headers=headers)


def test_a_link_signs_a_browser_in_once(run: Any, farm: Any) -> None:
    url = run("dashboard").stdout.strip()
    assert url.startswith(f"{farm.url}/sign-in?link=tfk_")
    assert sign_in(url).url == f"{farm.url}/jobs"
    assert sign_in(url).status_code == 403
    assert set(json.loads(run("dashboard", "--json").stdout)) == {"url", "expires_at"}


def test_it_may_do_what_the_commands_key_may_do(run: Any, farm: Any) -> None:
    page = sign_in(run("dashboard", TUNEFARM_API_KEY=farm.new_key("read")).stdout.strip())
    assert "New job" not in page.text
    run("dashboard", TUNEFARM_API_KEY=farm.new_key("device"), code=5)


def test_from_python(client: Client) -> None:
    link = client.keys.sign_in_link()
    assert link.url not in repr(link)
    assert sign_in(link.url).status_code == 200
