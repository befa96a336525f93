from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hook_receiver import Receiver, hook_receiver, is_signed
from playwright.sync_api import Route, expect
from replay_server import ReplayServer, replay_server

from tunefarm_app.access.api_keys import create_api_key
from tunefarm_app.webhooks.sender import Patience, WebhookSender

expect.set_options(timeout=60_000)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ReplayServer]:
    """A farm that tells webhooks on this machine, too."""
    with replay_server(tmp_path, webhook_allow_private=True) as server:
        sender = WebhookSender(server.services, every_sec=0.05, patience=Patience(first_sec=3600.0))
        sender.start()
        try:
            yield server
        finally:
            sender.stop()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with hook_receiver() as receiver:
        yield receiver


def answer_late(route: Route) -> None:
    answer = route.fetch(max_redirects=0)
    time.sleep(2.5)
    route.fulfill(response=answer)


@pytest.mark.exhaustive
def test_a_webhook_from_its_beginning_to_its_end(seat, server: ReplayServer, receiver: Receiver) -> None:
    page = seat.sign_in()
    page.get_by_role("link", name="Webhooks", exact=True).click()
    page.get_by_text("Kinds of event (all by default)").click()
    seat.nothing_serious(page)
    page.get_by_label("URL").fill(receiver.url)
    page.get_by_label("finished", exact=True).check()
    page.get_by_role("button", name="Register").click()
    secret = page.locator("#secret").inner_text()
    assert secret.startswith("whsec_")
    seat.nothing_serious(page)
    page.get_by_role("link", name="Done").click()
    page.get_by_role("button", name="Send a test").click()
    # No reload: the page hears of it.
    expect(page.locator("#deliveries")).to_contain_text("delivered")
    assert is_signed(receiver.requests[0], secret)
    receiver.answer = lambda _request: 500
    page.get_by_role("button", name="Send a test").click()
    expect(page.locator("#deliveries")).to_contain_text("the receiver answered 500")
    expect(page.locator("#webhook-head")).to_contain_text("failing")
    seat.nothing_serious(page)
    page.locator("summary", has_text="Disable").click()
    page.get_by_role("button", name="Disable the webhook").click()
    expect(page.locator("#webhook-head")).to_contain_text("disabled by a person")
    page.route("**/delete", answer_late)
    page.locator("summary", has_text="Delete").click()
    page.get_by_role("button", name="Delete the webhook").click()
    # Meanwhile the page hears of the deletion, and must not ask for what it deleted.
    expect(page.locator("#webhooks")).to_contain_text("There are no webhooks yet.")


def test_a_key_is_made_used_and_revoked(seat, server: ReplayServer) -> None:
    page = seat.sign_in()
    page.get_by_role("link", name="Keys", exact=True).click()
    seat.nothing_serious(page)
    page.get_by_label("Name").fill("a reader")
    page.get_by_role("button", name="Create the key").click()
    key = page.locator("#key").inner_text()
    seat.nothing_serious(page)
    page.get_by_role("link", name="Done").click()
    row = page.locator(f"#key-{key.split('_')[1]}")
    expect(row).to_contain_text("never")
    row.locator("summary", has_text="Revoke").click()
    row.get_by_role("button", name="Revoke the key").click()
    expect(row).to_contain_text("revoked")


def test_a_wrong_limit_is_mended_where_it_was_entered(seat, server: ReplayServer) -> None:
    key, _ = create_api_key(server.services, name="ci")
    page = seat.sign_in()
    page.goto(f"{server.url}/keys")
    row = page.locator(f"#key-{key.id}")
    row.locator("summary", has_text="Limits").click()
    row.get_by_label("Maximum open jobs").fill("2.5")
    row.get_by_label("Maximum megabytes").fill("100")
    row.get_by_role("button", name="Set the limits").click()
    expect(row.get_by_role("alert")).to_contain_text("maximum open jobs must be a whole number")
    seat.complaints.clear()  # the browser's own line about the status 422
    expect(row.get_by_label("Maximum megabytes")).to_have_value("100")
    seat.nothing_serious(page)
    row.get_by_label("Maximum open jobs").fill("2")
    row.get_by_role("button", name="Set the limits").click()
    expect(row).to_contain_text("open jobs: 0 of at most 2")
    page.set_viewport_size({"width": 390, "height": 800})
    session = page.get_by_role("row").filter(has_text="in a browser").first
    assert session.evaluate("row => row.getBoundingClientRect().height") < 200, (
        "rights are not cut into syllables"
    )
