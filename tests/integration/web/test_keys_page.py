from __future__ import annotations

import re

from page_browser import Browser
from structlog.testing import capture_logs

from tunefarm_app.access.api_keys import create_api_key, verify_api_key
from tunefarm_app.devices.enrolment import create_enrolment_token


def test_a_key_is_made_and_shown_once(browser: Browser, farm) -> None:
    with capture_logs() as log:
        answer = browser.post("/keys", **{"name": "ci <b>", "scope-read": "on", "scope-write": "on"})
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"
    text = re.search(r'<pre id="key"[^>]*>(.*?)</pre>', answer.text)[1]
    key = verify_api_key(farm.services, text)
    assert key is not None
    assert key.scopes == ["read", "write"]
    assert text not in str(log)
    listed = browser.get("/keys").text
    assert key.id in listed
    assert text.rpartition("_")[2] not in listed
    assert "ci &lt;b&gt;" in listed
    row = browser.page("/keys").element("tr", id=f"key-{key.id}").text
    assert "read, write" in row
    assert "never" not in row, "it was just looked at"


def test_what_makes_no_key(browser: Browser, farm) -> None:
    for form in ({"name": "x"}, {"scope-read": "on"}, {"name": "x" * 101, "scope-read": "on"}):
        assert browser.post("/keys", **form).status_code == 422
    assert browser.post("/keys", **{"name": "x", "scope-enrol": "on"}).status_code == 422


def test_revoking(browser: Browser, farm, key: str) -> None:
    other, text = create_api_key(farm.services, name="other", scopes=["read"])
    own = key.split("_")[1]
    assert "your current key" in browser.page("/keys").element("tr", id=f"key-{own}").text
    assert browser.post(f"/keys/{own}/revoke").status_code == 409, "the last one for admin"
    assert browser.post(f"/keys/{other.id}/revoke").url.path == "/keys"
    assert verify_api_key(farm.services, text) is None
    row = browser.page("/keys").element("tr", id=f"key-{other.id}")
    assert "revoked" in row.text
    assert row.all("form") == []
    assert browser.post("/keys/none/revoke").status_code == 404
    create_api_key(farm.services, name="another owner")
    browser.post(f"/keys/{own}/revoke")
    assert browser.client.get("/keys").status_code == 401, "the session went with its key"


def test_sessions_and_tokens_are_there_too(browser: Browser, farm, key: str) -> None:
    create_enrolment_token(farm.services)
    create_api_key(farm.services, name="node", scopes=["device"])
    text = browser.page("/keys").element("main").text
    assert f"the rights of the key {key.split('_')[1]}, in a browser" in text
    assert "enrol one machine as a device" in text


def test_only_who_may(stranger: Browser, farm) -> None:
    other, _ = create_api_key(farm.services, name="other")
    stranger.sign_in(create_api_key(farm.services, name="tunes", scopes=["read", "write"])[1])
    assert stranger.get("/keys").status_code == 403
    assert stranger.post("/keys", **{"name": "x", "scope-admin": "on"}).status_code == 403
    assert stranger.post(f"/keys/{other.id}/revoke").status_code == 403
