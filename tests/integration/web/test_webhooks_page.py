from __future__ import annotations

import re
from typing import Any

import pytest
from page_browser import Browser, checked
from structlog.testing import capture_logs

from tunefarm_api.web.live import changes, look
from tunefarm_app.access.api_keys import create_api_key
from tunefarm_app.webhooks.request import Attempt
from tunefarm_app.webhooks.sender import Patience, settle
from tunefarm_db.values import Webhook

URL = "https://8.8.8.8/hooks?token=<b>"


@pytest.fixture
def webhook(farm) -> Webhook:
    with farm.services.uow.write() as repos:
        return repos.webhooks.add(url=URL, kinds=["finished"], job_id=None, secret="whsec_c2VjcmV0")


def attempt(farm, delivery_id: str, error: str, wait_sec: float = 3600.0) -> None:
    with farm.services.uow.write() as repos:
        claimed = repos.deliveries.claim(delivery_id, 60.0)
        assert claimed is not None
        tried = Attempt(status=500 if error else 200, error=error, latency_sec=0.25)
        settle(repos, claimed, tried, Patience(first_sec=wait_sec))


def webhooks(farm) -> tuple[Webhook, ...]:
    with farm.services.uow.read() as repos:
        listed: tuple[Webhook, ...] = repos.webhooks.list()
    return listed


def cells(browser: Browser, path: str, row_id: str) -> list[str]:
    return [
        cell.text for cell in browser.page(path).element("tr", id=row_id).all() if cell.tag in ("th", "td")
    ]


def test_one_is_registered_and_its_secret_is_shown_once(browser: Browser, farm) -> None:
    assert "There are no webhooks yet." in browser.page("/webhooks").element("main").text
    job = farm.submit(farm.ready_model(), device_key=farm.add_device().device_key)
    form = {"url": f" {URL} ", "kind-finished": "on", "kind-device-trouble": "on", "job": job.id}
    with capture_logs() as log:
        answer = browser.post("/webhooks", **form)
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"
    (webhook,) = webhooks(farm)
    assert (webhook.url, webhook.kinds, webhook.job_id) == (URL, ["device-trouble", "finished"], job.id)
    assert re.search(r'<pre id="secret"[^>]*>(.*?)</pre>', answer.text)[1] == webhook.secret
    assert webhook.secret not in str(log)
    for path in ("/webhooks", f"/webhooks/{webhook.id}"):
        text = browser.get(path).text
        assert webhook.secret not in text
        assert "&lt;b&gt;" in text
        assert browser.page(path).element("main")


@pytest.mark.parametrize(
    ("form", "status", "complaint"),
    [
        ({"url": "http://169.254.169.254/"}, 422, "not public"),
        ({"url": "gopher://8.8.8.8/"}, 422, "invalid for a webhook"),
        ({}, 422, "invalid for a webhook"),
        ({"url": URL, "job": "job_none"}, 404, "no such job"),
    ],
)
def test_what_is_refused(browser: Browser, farm, form: dict[str, str], status: int, complaint: str) -> None:
    answer = browser.post("/webhooks", **form, **{"kind-failed": "on"})
    assert answer.status_code == status
    shown = checked(answer.text)
    assert complaint in shown.element("p", id="refused").text
    for field in ("url", "job"):
        assert shown.element("input", name=field).attrs["value"] == form.get(field, ""), "as it was filled in"
    ticked = [box.attrs["name"] for box in shown.all("input", type="checkbox") if "checked" in box.attrs]
    assert ticked == ["kind-failed"]
    assert webhooks(farm) == ()


def test_how_it_does(browser: Browser, farm, webhook: Webhook) -> None:
    assert cells(browser, "/webhooks", webhook.id)[1:4] == ["✓ good", "finished", "0"]
    browser.post(f"/webhooks/{webhook.id}/test")
    with farm.services.uow.read() as repos:
        (delivery,) = repos.deliveries.due(5)
    path = f"/webhooks/{webhook.id}"
    assert cells(browser, path, delivery)[1:5] == ["◷ pending", "0", "–", "soon"]
    attempt(farm, delivery, "the receiver answered 500")
    _, state, attempts, answer, next_try, _ = cells(browser, path, delivery)
    assert (state, attempts, answer) == ("◷ pending", "1", "500 after 250 ms the receiver answered 500")
    assert next_try.endswith("UTC")
    assert "! failing" in cells(browser, "/webhooks", webhook.id)[1]
    assert "The last attempt failed." in browser.page(path).element(id="webhook-head").text
    browser.post(f"/webhooks/{webhook.id}/test")
    with farm.services.uow.read() as repos:
        (second,) = repos.deliveries.due(5)
    attempt(farm, second, "")
    assert cells(browser, path, second)[1:5] == ["✓ delivered", "1", "200 after 250 ms", "–"]
    assert [row.attrs["id"] for row in browser.page(f"{path}?state=delivered").all("tr") if row.attrs] == [
        second
    ]
    assert "No delivery is in this state" in browser.page(f"{path}?state=failed").text
    assert len(browser.page(f"{path}?state=").all("tr")) == 3


def test_orders(browser: Browser, farm, webhook: Webhook) -> None:
    path = f"/webhooks/{webhook.id}"

    def orders() -> list[str]:
        return [
            form.attrs["action"].rpartition("/")[2] for form in browser.page(path).element("main").all("form")
        ]

    assert orders() == ["test", "disable", "delete", webhook.id]
    browser.post(f"{path}/disable")
    assert orders() == ["enable", "delete", webhook.id]
    assert "disabled by a person" in browser.page(path).element("main").text
    assert "❚❚ off" in cells(browser, "/webhooks", webhook.id)[1]
    assert browser.post(f"{path}/test").status_code == 409
    browser.post(f"{path}/enable")
    assert webhooks(farm)[0].disabled_at is None
    assert browser.post(f"{path}/explode").status_code == 422
    assert browser.post(f"{path}/delete").url.path == "/webhooks"
    assert webhooks(farm) == ()
    assert browser.get(path).status_code == 404
    assert browser.post(f"{path}/enable").status_code == 404


def test_a_long_log_comes_in_parts(browser: Browser, farm, webhook: Webhook) -> None:
    with farm.services.uow.write() as repos:
        ids = [repos.deliveries.queue_test(webhook.id).id for _ in range(60)]
    first = browser.page(f"/webhooks/{webhook.id}?state=pending")
    shown = [row.attrs["id"] for row in first.all("tr") if row.attrs]
    older = browser.page(first.element("a", rel="next").attrs["href"].replace("&amp;", "&"))
    shown += [row.attrs["id"] for row in older.all("tr") if row.attrs]
    assert shown == sorted(ids, reverse=True)
    assert browser.get(f"/webhooks/{webhook.id}?cursor=x").status_code == 422


def test_only_who_may(stranger: Browser, farm, webhook: Webhook) -> None:
    stranger.sign_in(create_api_key(farm.services, name="looks", scopes=["read"])[1])
    assert "Webhooks" not in stranger.page("/jobs").element("header").text
    path = f"/webhooks/{webhook.id}"
    assert [stranger.get(page_path).status_code for page_path in ("/webhooks", path)] == [403, 403]
    for page_path in ("/webhooks", f"{path}/test", f"{path}/delete", f"{path}/disable"):
        assert stranger.post(page_path, url=URL).status_code == 403
    stranger.sign_in(create_api_key(farm.services, name="tunes", scopes=["read", "write"])[1])
    assert "Webhooks" in stranger.page("/jobs").element("header").text
    assert "Keys" not in stranger.page("/jobs").element("header").text
    assert stranger.get(path).status_code == 200


def test_no_other_site_registers_one(browser: Browser, farm, webhook: Webhook) -> None:
    for headers in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {}):
        for path in ("/webhooks", f"/webhooks/{webhook.id}/delete", "/keys"):
            assert browser.client.post(path, data={"url": URL}, headers=headers).status_code == 403
    assert len(webhooks(farm)) == 1


def test_pages_hear_of_it(farm, webhook: Webhook) -> None:
    """Every shown change of a webhook notifies open pages."""
    topic = f"webhook:{webhook.id}"

    def changed_by(act: Any) -> set[str]:
        before = look(farm.services, {})
        act()
        return {topic for topic in changes(before, look(farm.services, {})) if not topic.startswith("job")}

    def in_database(use: Any) -> Any:
        def act() -> None:
            with farm.services.uow.write() as repos:
                use(repos)

        return act

    assert changed_by(lambda: None) == set()
    assert changed_by(in_database(lambda repos: repos.deliveries.queue_test(webhook.id))) == {topic}
    with farm.services.uow.read() as repos:
        (delivery,) = repos.deliveries.due(1)
    assert changed_by(lambda: attempt(farm, delivery, "no", wait_sec=-1.0)) == {topic}
    assert changed_by(lambda: attempt(farm, delivery, "")) == {topic}
    assert changed_by(in_database(lambda repos: repos.webhooks.disable(webhook.id, "x"))) == {topic}
    assert changed_by(in_database(lambda repos: repos.webhooks.delete(webhook.id))) == {topic}
    assert changed_by(lambda: create_api_key(farm.services, name="x")) == {"keys"}
