from __future__ import annotations

import re

import pytest
from page_browser import ORIGIN, Browser, checked
from sqlalchemy import text

from tunefarm_app.access.api_keys import create_api_key, revoke_api_key, verify_api_key
from tunefarm_app.access.browser_sessions import make_link, session_key, start_session

PAGES = [
    "/",
    "/jobs",
    "/jobs/job_x",
    "/jobs/job_x/curve.json",
    "/live",
    "/jobs?state=tuning",
    "/models",
    "/devices",
    "/records",
]


@pytest.mark.parametrize("path", PAGES)
def test_strangers_are_asked_to_sign_in(stranger: Browser, path: str) -> None:
    answer = stranger.client.get(path, headers={"Accept": "text/html"}, follow_redirects=False)
    assert answer.status_code == 303
    assert answer.headers["location"].startswith("/sign-in")
    script = stranger.client.get(path, headers={"Accept": "application/json"})
    assert script.status_code == 401
    assert script.json()["code"] == "unauthenticated"
    htmx = stranger.client.get(path, headers={"HX-Request": "true"}, follow_redirects=False)
    assert (htmx.status_code, htmx.headers["hx-redirect"]) == (401, "/sign-in")


@pytest.mark.parametrize("path", ["/compare", "/nonsense?x=1", "/docs", "/jobs/compare/x/y/z"])
def test_an_address_without_a_page_is_told_and_leads_back(browser: Browser, path: str) -> None:
    answer = browser.get(path)
    assert answer.status_code == 404
    page = checked(answer.text)
    assert "No such page" in answer.text
    assert f"no page at {path.partition('?')[0]}" in answer.text
    assert page.all("a", href="/jobs"), "the pages of somebody who has signed in"
    assert "Back to the jobs" in answer.text
    assert browser.get("/").status_code == 200


def test_strangers_are_told_that_an_address_has_no_page(stranger: Browser) -> None:
    answer = stranger.client.get("/compare", headers={"Accept": "text/html"}, follow_redirects=False)
    assert answer.status_code == 404
    assert "Back to the jobs" in answer.text
    assert not checked(answer.text).all("a", href="/audit")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    for headers in (
        {"Accept": "application/json"},
        {"Accept": "text/html", "Authorization": "Bearer tfk_x"},
    ):
        script = stranger.client.get("/compare", headers=headers)
        assert (script.status_code, script.json()["code"]) == (401, "unauthenticated")


def test_a_key_signs_in_and_leads_to_where_one_wanted_to_go(stranger: Browser, key: str) -> None:
    redirected = stranger.get("/jobs?state=tuning")
    form = checked(redirected.text).element("form")
    (where,) = form.all("input", name="next")
    assert where.attrs["value"] == "/jobs?state=tuning"
    answer = stranger.post(form.attrs["action"], key=f" {key} ", next=where.attrs["value"])
    assert (answer.status_code, answer.url.path, answer.url.query) == (200, "/jobs", b"state=tuning")
    assert "the owner" in answer.text


def test_the_cookie_is_out_of_reach_for_scripts_and_other_sites(stranger: Browser, key: str) -> None:
    answer = stranger.client.post(
        "/sign-in", data={"key": key}, headers={"Origin": ORIGIN}, follow_redirects=False
    )
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "path=/" in cookie
    assert "secure" not in cookie
    assert key.lower() not in cookie
    https = stranger.client.post(
        "https://testserver/sign-in",
        data={"key": key},
        headers={"Origin": "https://testserver"},
        follow_redirects=False,
    )
    assert "secure" in https.headers["set-cookie"].lower()


def test_over_https_no_other_host_of_the_domain_sets_the_cookie(stranger: Browser, farm, key: str) -> None:
    """A browser takes a cookie of this name from this host alone; one of the plain name counts for nothing there."""
    signed_in = stranger.client.post(
        "https://testserver/sign-in",
        data={"key": key},
        headers={"Origin": "https://testserver"},
        follow_redirects=False,
    )
    name, _, rest = signed_in.headers["set-cookie"].partition("=")
    assert name == "__Host-tunefarm_session"
    assert {"Path=/", "Secure", "HttpOnly"} <= set(rest.split("; "))
    assert "domain" not in rest.lower()
    stranger.client.cookies.clear()
    text = start_session(farm.services, key)
    for cookie, url, page in (
        (name, "https://testserver", "/jobs"),
        ("tunefarm_session", "https://testserver", "/sign-in"),
        (name, "http://testserver", "/jobs"),  # a proxy that keeps the scheme to itself
        ("tunefarm_session", "http://testserver", "/jobs"),
    ):
        answer = stranger.client.get(
            f"{url}/jobs", headers={"Cookie": f"{cookie}={text}", "Accept": "text/html"}
        )
        assert answer.url.path == page, (cookie, url)


def test_farms_on_one_host_have_cookies_of_their_own(stranger: Browser, key: str) -> None:
    names = set()
    for port in (8000, 8001):
        host = f"testserver:{port}"
        answer = stranger.client.post(
            "/sign-in",
            data={"key": key},
            headers={"Host": host, "Origin": f"http://{host}"},
            follow_redirects=False,
        )
        names.add(answer.headers["set-cookie"].partition("=")[0])
    assert names == {"tunefarm_session_8000", "tunefarm_session_8001"}


@pytest.mark.parametrize("where", ["//evil.example", "https://evil.example", "/\\evil.example", "/\tx", ""])
def test_signing_in_leads_nowhere_else(stranger: Browser, key: str, where: str) -> None:
    answer = stranger.client.post(
        "/sign-in", data={"key": key, "next": where}, headers={"Origin": ORIGIN}, follow_redirects=False
    )
    assert answer.headers["location"] == "/"


def test_a_wrong_key_is_told(stranger: Browser) -> None:
    answer = stranger.sign_in("tfk_nothing")
    assert answer.status_code == 403
    assert "not a key of this farm" in checked(answer.text).element(role="alert").text
    assert "set-cookie" not in answer.headers


def test_a_link_signs_in_once(stranger: Browser, farm, key: str) -> None:
    link = make_link(farm.services, verify_api_key(farm.services, key))
    page = checked(stranger.get(f"/sign-in?link={link}").text)
    assert page.element("button").text == "Continue"
    # It says with whose key, and no script presses the button: else a link of somebody else's would sign in unseen.
    owner = verify_api_key(farm.services, key)
    assert f"with the API key {owner.name} ( {owner.id} )" in page.element("form").text
    assert "<script" not in stranger.get(f"/sign-in?link={link}").text
    # Looking at it uses nothing up.
    form = checked(stranger.get(f"/sign-in?link={link}").text).element("form")
    assert (
        stranger.post("/sign-in", link=form.element("input", name="link").attrs["value"]).url.path == "/jobs"
    )
    stranger.client.cookies.clear()
    for again in (stranger.post("/sign-in", link=link), stranger.get(f"/sign-in?link={link}")):
        assert again.status_code == 403
        assert "was used already" in again.text


def test_a_link_is_no_key_and_a_session_starts_no_other(farm, key: str) -> None:
    owner = verify_api_key(farm.services, key)
    link = make_link(farm.services, owner)
    assert session_key(farm.services, link) is None
    session = start_session(farm.services, key)
    assert session_key(farm.services, session).id == owner.id
    assert start_session(farm.services, session) is None
    assert session_key(farm.services, key) is None
    assert session_key(farm.services, "") is None


def test_signing_out_ends_the_session(browser: Browser) -> None:
    cookies = dict(browser.client.cookies)
    assert browser.post("/sign-out").url.path == "/sign-in"
    assert not browser.client.cookies
    browser.client.cookies.update(cookies)
    assert browser.get("/jobs").url.path == "/sign-in"


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_signing_out_ends_the_sessions_of_both_cookies(
    stranger: Browser, farm, key: str, scheme: str
) -> None:
    """A browser that came by a proxy that keeps the scheme to itself may have one of each."""
    names = ("__Host-tunefarm_session", "tunefarm_session")
    sessions = {name: start_session(farm.services, key) for name in names}
    answer = stranger.client.post(
        f"{scheme}://testserver/sign-out",
        headers={
            "Cookie": "; ".join(f"{name}={text}" for name, text in sessions.items()),
            "Origin": f"{scheme}://testserver",
        },
        follow_redirects=False,
    )
    assert answer.status_code == 303
    assert [session_key(farm.services, text) for text in sessions.values()] == [None, None]
    deleted = [line for line in answer.headers.get_list("set-cookie") if "Max-Age=0" in line]
    assert tuple(line.partition("=")[0] for line in deleted) == names
    assert ["Secure" in line for line in deleted] == [True, False]  # else browsers refuse the first


def age(farm, hours: float, *columns: str) -> None:
    """Let browser sessions be older by some hours."""
    with farm.services.uow.engine.begin() as connection:
        for column in columns:
            statement = f"UPDATE api_keys SET {column} = {column} - :sec WHERE name = 'browser session'"
            connection.execute(text(statement), {"sec": hours * 3600})


def test_a_session_that_is_used_lasts_until_its_absolute_end(browser: Browser, farm) -> None:
    for _ in range(3):
        assert browser.get("/jobs").url.path == "/jobs"
        age(farm, 3.9, "created_at", "last_used_at", "expires_at")
    assert browser.get("/jobs").url.path == "/jobs"
    age(farm, 0.4, "created_at", "last_used_at", "expires_at")
    assert browser.get("/jobs").url.path == "/sign-in"


def test_a_session_that_nobody_uses_ends(browser: Browser, farm) -> None:
    browser.get("/jobs")
    age(farm, 4.1, "last_used_at")
    assert browser.get("/jobs").url.path == "/sign-in"
    (session,) = browser.client.cookies.values()
    assert session_key(farm.services, session) is None


def test_a_page_that_renews_itself_is_no_use(browser: Browser, farm) -> None:
    browser.get("/jobs")
    age(farm, 3.9, "last_used_at")
    assert browser.client.get("/jobs", headers={"HX-Request": "true"}).status_code == 200
    age(farm, 0.2, "last_used_at")
    assert browser.client.get("/jobs", headers={"HX-Request": "true"}).status_code == 401
    assert browser.get("/jobs").url.path == "/sign-in"


def test_a_change_that_a_page_sends_is_use(browser: Browser, farm) -> None:
    browser.get("/jobs")
    age(farm, 3.9, "last_used_at")
    browser.client.post("/jobs/job_x/cancel", headers={"Origin": ORIGIN, "HX-Request": "true"})
    age(farm, 0.2, "last_used_at")
    assert browser.get("/jobs").url.path == "/jobs"


def test_the_cookie_ends_with_the_session(stranger: Browser, key: str) -> None:
    answer = stranger.client.post(
        "/sign-in", data={"key": key}, headers={"Origin": ORIGIN}, follow_redirects=False
    )
    assert "max-age=43200" in answer.headers["set-cookie"].lower()


def test_signing_out_everywhere_ends_all_sessions_and_links_of_the_key(
    browser: Browser, farm, key: str
) -> None:
    owner = verify_api_key(farm.services, key)
    elsewhere, link = start_session(farm.services, key), make_link(farm.services, owner)
    other = start_session(farm.services, create_api_key(farm.services, name="another")[1])
    assert browser.post("/sign-out", everywhere="1").url.path == "/sign-in"
    assert session_key(farm.services, elsewhere) is None
    assert start_session(farm.services, link) is None
    assert session_key(farm.services, other) is not None
    assert browser.sign_in(key).status_code == 200


def test_revoking_a_key_revokes_its_sessions_and_links_for_good(browser: Browser, farm, key: str) -> None:
    create_api_key(farm.services, name="another")
    owner = verify_api_key(farm.services, key)
    session, link = start_session(farm.services, key), make_link(farm.services, owner)
    revoke_api_key(farm.services, owner.id)
    with farm.services.uow.engine.begin() as connection:  # as a restored backup may
        connection.execute(text("UPDATE api_keys SET revoked_at = NULL WHERE id = :id"), {"id": owner.id})
    assert verify_api_key(farm.services, key) is not None
    assert session_key(farm.services, session) is None
    assert start_session(farm.services, link) is None


def test_a_session_ends_with_its_key(browser: Browser, farm, key: str) -> None:
    create_api_key(farm.services, name="another")
    revoke_api_key(farm.services, verify_api_key(farm.services, key).id)
    assert browser.get("/jobs").url.path == "/sign-in"


def test_a_session_is_no_key_of_the_api(browser: Browser) -> None:
    assert browser.client.get("/v1/jobs").status_code == 401
    (session,) = browser.client.cookies.values()
    answer = browser.client.get("/v1/jobs", headers={"Authorization": f"Bearer {session}"})
    assert answer.status_code == 403


def test_a_key_is_no_session(stranger: Browser, key: str) -> None:
    answer = stranger.client.get("/jobs", headers={"Authorization": f"Bearer {key}"}, follow_redirects=False)
    assert answer.status_code == 401


@pytest.mark.matrix(every=2, each_value=False)
@pytest.mark.parametrize(
    ("headers", "fine"),
    [
        ({"Origin": ORIGIN}, True),
        ({"Origin": "https://testserver"}, True),
        ({"Sec-Fetch-Site": "same-origin"}, True),
        ({"Sec-Fetch-Site": "same-origin", "Origin": "https://name-behind-a-proxy"}, True),
        ({}, False),
        ({"Origin": "null"}, False),
        ({"Origin": "http://evil.example"}, False),
        ({"Origin": "http://testserver.evil.example"}, False),
        ({"Origin": "http://testserver:81"}, False),
        ({"Sec-Fetch-Site": "cross-site", "Origin": ORIGIN}, False),
        ({"Sec-Fetch-Site": "same-site", "Origin": ORIGIN}, False),
        ({"Sec-Fetch-Site": "none"}, False),
    ],
)
def test_only_our_pages_change_anything(browser: Browser, headers: dict[str, str], fine: bool) -> None:
    for path in ("/sign-in", "/jobs/job_x/cancel", "/sign-out"):
        answer = browser.client.post(path, headers=headers, follow_redirects=False)
        forbidden = answer.status_code == 403 and "not sent by a page" in answer.text
        assert forbidden is not fine, (path, answer.status_code)


def test_scopes_hold_for_pages_too(stranger: Browser, farm) -> None:
    assert (
        stranger.sign_in(create_api_key(farm.services, name="a device", scopes=["device"])[1]).status_code
        == 403
    )
    assert (
        stranger.sign_in(create_api_key(farm.services, name="looks", scopes=["read"])[1]).status_code == 200
    )
    answer = stranger.post("/jobs/job_x/cancel")
    assert answer.status_code == 403
    assert "scope write" in checked(answer.text).element("main").text


def test_answers_keep_a_browser_safe(browser: Browser) -> None:
    for path in ("/jobs", "/sign-in", "/static/app.js", "/jobs/none"):
        headers = browser.get(path).headers
        policy = headers["content-security-policy"]
        assert "unsafe" not in policy
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin"
    assert browser.get("/jobs").headers["cache-control"] == "no-store"
    assert "content-security-policy" not in browser.client.get("/healthz").headers


def test_errors_are_pages_for_people_and_problems_for_scripts(browser: Browser) -> None:
    answer = browser.get("/jobs/job_none")
    assert answer.status_code == 404
    page = checked(answer.text)
    assert page.element("h1").text == "Job not found"
    assert "There is no such job: job_none." in page.element("main").text
    assert answer.headers["x-request-id"] in page.element("main").text
    script = browser.client.get("/jobs/job_none")
    assert script.headers["content-type"] == "application/problem+json"
    assert checked(browser.get("/jobs?page=0").text).element("h1").text == "Invalid request"
    assert browser.get("/static/nothing.js").status_code == 404


def test_files_are_kept_by_browsers_until_they_change(stranger: Browser) -> None:
    page = stranger.get("/sign-in").text
    (url,) = set(re.findall(r"/static/base\.css\?v=[0-9a-f]+", page))
    answer = stranger.get(url)
    assert answer.headers["content-type"].startswith("text/css")
    assert "immutable" in answer.headers["cache-control"]
    old = stranger.get("/static/base.css?v=old")
    assert old.headers["cache-control"] == "public, no-cache"
    assert stranger.get("/static/base.css", **{"If-None-Match": old.headers["etag"]}).status_code == 304
    for name in ("../app.py", "..%2fapp.py", "vendor", ""):
        assert stranger.get(f"/static/{name}").status_code in (401, 404)
