"""The page of the audit log."""

from __future__ import annotations

from page_browser import Browser
from sqlalchemy import text

from tunefarm_app.access.api_keys import create_api_key


def test_the_log_shows_who_did_what(browser: Browser, farm) -> None:
    browser.post("/keys", **{"name": "ci <b>", "scope-read": "on"})
    assert browser.page("/audit").all("time")
    answer = browser.get("/audit").text
    assert "key-created" in answer
    assert "signed-in" in answer
    assert "ci &lt;b&gt;" in answer
    assert "<b>" not in answer
    assert "browser" in answer


def test_filters_and_bad_input(browser: Browser, farm) -> None:
    browser.post("/keys", **{"name": "ci", "scope-read": "on"})
    shown = browser.get("/audit?action=key-created").text
    assert 'id="entry-' in shown
    assert "No entry matches." in browser.get("/audit?action=key-revoked").text
    assert "No entry matches." in browser.get("/audit?actor=%3Cscript%3E").text
    assert "<script>" not in browser.get("/audit?actor=%3Cscript%3E").text
    assert 'id="entry-' in browser.get("/audit?action=nonsense").text, "an unknown action is no filter"
    assert browser.get("/audit?cursor=x").status_code == 422


def test_older_entries(browser: Browser, farm) -> None:
    for number in range(60):
        create_api_key(farm.services, name=f"k{number}", scopes=["read"])
    first = browser.get("/audit?action=key-created").text
    assert "Older" in first
    link = first.partition('href="/audit?actor=&amp;action=key-created')[2].partition('"')[0]
    older = browser.get("/audit?action=key-created" + link.replace("&amp;", "&")).text
    assert 'id="entry-1"' in older


def test_check_and_export(browser: Browser, farm) -> None:
    assert "entries are correct" in browser.get("/audit?check=true").text
    exported = browser.get("/audit/export")
    assert exported.headers["content-disposition"] == 'attachment; filename="audit.jsonl"'
    assert '"signed-in"' in exported.text
    with farm.services.uow.engine.begin() as connection:
        connection.execute(text("DROP TRIGGER audit_log_no_update"))
        connection.execute(text("UPDATE audit_log SET via = 'x' WHERE seq = 1"))
    assert "The log is broken at entry 1" in browser.get("/audit?check=true").text


def test_what_cannot_be_sealed_is_told(browser: Browser, farm) -> None:
    assert "not in the log yet" not in browser.get("/audit").text
    with farm.services.uow.engine.begin() as connection:
        connection.execute(
            text("CREATE TRIGGER stuck BEFORE INSERT ON audit_log BEGIN SELECT RAISE(ABORT, 'no'); END")
        )
    create_api_key(farm.services, name="k", scopes=["read"])
    assert "not in the log yet: 1, the oldest from" in browser.get("/audit").text
