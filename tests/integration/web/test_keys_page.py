from __future__ import annotations

import re

import pytest
from page_browser import Browser, checked
from structlog.testing import capture_logs

from tunefarm_app.access.api_keys import create_api_key, list_api_keys, rotate_api_key, verify_api_key
from tunefarm_app.access.quotas import KeyLimits
from tunefarm_app.devices.enrolment import create_enrolment_token
from tunefarm_db.acting import Acting, act_as


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
    assert browser.post("/keys/none/limits").status_code == 404
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


def limits_of(farm, key_id: str) -> dict:
    (key,) = [key for key in list_api_keys(farm.services) if key.id == key_id]
    return key.limits


def test_a_key_is_made_with_limits(browser: Browser, farm) -> None:
    form = {"name": "ci", "scope-read": "on", "limit-bytes": "2,5", "limit-priority": "-3"}
    text = re.search(r'<pre id="key"[^>]*>(.*?)</pre>', browser.post("/keys", **form).text)[1]
    assert limits_of(farm, text.split("_")[1]) == {"bytes": 2_500_000, "priority": -3}


def test_limits_are_shown_with_what_is_used_and_changed(browser: Browser, farm) -> None:
    limits = KeyLimits(bytes=1_000_000, open_jobs=3)
    key, _ = create_api_key(farm.services, name="ci", scopes=["write"], limits=limits)
    with act_as(Acting(key_id=key.id, owner=key.id)), farm.services.uow.write() as repos:
        repos.models.add(name="net", sha256="ab" * 32, size_bytes=300_000)
    row = browser.page("/keys").element("tr", id=f"key-{key.id}")
    assert "megabytes: 0.3 of at most 1" in row.text
    assert "open jobs: 0 of at most 3" in row.text
    form = row.element("form", action=f"/keys/{key.id}/limits")
    values = {
        name: form.element("input", name=f"limit-{name}").attrs["value"]
        for name in ("bytes", "open_jobs", "device_minutes", "priority")
    }
    assert values == {"bytes": "1", "open_jobs": "3", "device_minutes": "", "priority": ""}
    changed = {"limit-bytes": "", "limit-open_jobs": "5", "limit-device_minutes": "90", "limit-priority": "0"}
    assert browser.post(f"/keys/{key.id}/limits", **changed).url.path == "/keys"
    assert limits_of(farm, key.id) == {"open_jobs": 5, "device_minutes": 90.0, "priority": 0}
    successor, _ = rotate_api_key(farm.services, key.id)
    assert (
        "minutes of search in 30 days" in browser.page("/keys").element("tr", id=f"key-{successor.id}").text
    )


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("bytes", "many", "megabytes must be a number from 0 to 1,000,000,000,"),
        ("bytes", "-1", "megabytes must be a number from 0"),
        ("open_jobs", "1.5", "open jobs must be a whole number from 0"),
        ("open_jobs", "nan", "open jobs must be a whole number from 0"),
        ("priority", "101", "priority must be a whole number from -100 to 100,"),
    ],
)
def test_a_limit_that_is_none_is_refused_by_its_label(
    browser: Browser, farm, name: str, value: str, rule: str
) -> None:
    """Before, the error named the field of the database, and its page had lost what was filled in."""
    key, _ = create_api_key(farm.services, name="ci", limits=KeyLimits(open_jobs=1))
    other, _ = create_api_key(farm.services, name="other", limits=KeyLimits(open_jobs=7))
    address = f"/keys/{key.id}/limits"
    answer = browser.post(address, **{"limit-device_minutes": "90", f"limit-{name}": value})
    assert answer.status_code == 422
    shown = checked(answer.text)
    told = shown.element("p", id="refused").text
    assert told.startswith(f"The limits were not set: maximum {rule}")
    assert f"or empty for no limit, and is '{value}'." in told
    form = shown.element("form", action=address)
    assert form.element("input", name=f"limit-{name}").attrs["value"] == value
    assert form.element("input", name="limit-device_minutes").attrs["value"] == "90"
    assert "open" in shown.element("details", id=f"limits-{key.id}").attrs
    of_other = shown.element("form", action=f"/keys/{other.id}/limits")
    assert of_other.element("input", name="limit-open_jobs").attrs["value"] == "7"
    assert limits_of(farm, key.id) == {"open_jobs": 1}
    assert browser.get(address).url.path == "/keys"


def test_a_limit_that_is_none_is_told_where_the_key_is_gone(browser: Browser, farm) -> None:
    key, _ = create_api_key(farm.services, name="gone")
    assert browser.post(f"/keys/{key.id}/revoke").url.path == "/keys"
    answer = browser.post(f"/keys/{key.id}/limits", **{"limit-open_jobs": "1.5"})
    assert answer.status_code == 422
    assert "open jobs must be a whole number from 0" in answer.text


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"name": " "}, "a key needs a name"),
        ({"name": "ci", "scope-write": ""}, "a key needs at least one scope: read, write, device, admin"),
        ({"name": "ci", "scope-write": "on", "limit-bytes": "2 GB"}, "maximum megabytes must be a number"),
    ],
)
def test_a_key_that_is_refused_is_shown_as_it_was_filled_in(
    browser: Browser, farm, changes: dict[str, str], rule: str
) -> None:
    before = len(list_api_keys(farm.services))
    form = {"scope-write": "on", "limit-open_jobs": "3", **changes}
    answer = browser.post("/keys", **{field: value for field, value in form.items() if value})
    assert answer.status_code == 422
    shown = checked(answer.text)
    told = shown.element("p", id="refused").text
    assert told.startswith("The key was not created: ")
    assert rule in told
    new = shown.element("form", action="/keys")
    assert new.element("input", name="name").attrs["value"] == form["name"]
    assert new.element("input", name="limit-open_jobs").attrs["value"] == "3"
    ticked = {box.attrs["name"] for box in new.all("input", type="checkbox") if "checked" in box.attrs}
    assert ticked == ({"scope-write"} if form["scope-write"] else set())
    assert len(list_api_keys(farm.services)) == before


def test_sessions_tokens_and_credentials_have_no_limits_of_their_own(browser: Browser, farm) -> None:
    token, _ = create_enrolment_token(farm.services)
    row = browser.page("/keys").element("tr", id=f"key-{token.id}")
    assert [form.attrs["action"] for form in row.all("form")] == [f"/keys/{token.id}/revoke"]
