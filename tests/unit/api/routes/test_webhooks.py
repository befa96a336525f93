"""Webhooks over HTTP: registered, shown without their secret, tested, deleted."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hook_receiver import hook_receiver
from starlette.testclient import TestClient
from structlog.testing import capture_logs
from waiting import wait_until

from tunefarm_api.app import create_app
from tunefarm_app.access.api_keys import create_api_key
from tunefarm_app.runtime.composition import Services
from tunefarm_app.settings import Settings

URL = "https://8.8.8.8/hooks/token"


def create_webhook(client: TestClient, **more: Any) -> dict[str, Any]:
    answer = client.post("/v1/webhooks", json={"url": URL, **more})
    assert answer.status_code == 201, answer.text
    webhook: dict[str, Any] = answer.json()
    return webhook


def test_the_secret_is_shown_once(client: TestClient, job: dict[str, Any]) -> None:
    with capture_logs() as log:
        webhook = create_webhook(client, kinds=["failed", "finished", "failed"], job_id=job["id"])
    secret = webhook.pop("secret")
    assert secret.startswith("whsec_")
    assert (webhook["url"], webhook["kinds"], webhook["job_id"]) == (URL, ["finished", "failed"], job["id"])
    assert client.get("/v1/webhooks").json() == {"items": [webhook], "next_cursor": None}
    assert client.get(f"/v1/webhooks/{webhook['id']}").json() == webhook
    (entry,) = (entry for entry in log if entry["event"] == "webhook created")
    assert entry["host"] == "8.8.8.8"
    assert secret not in json.dumps(log, default=str)
    assert URL not in json.dumps(log, default=str)


def test_deliveries_are_listed(client: TestClient, job: dict[str, Any], problem: Any) -> None:
    webhook = create_webhook(client)
    path = f"/v1/webhooks/{webhook['id']}"
    assert client.post(f"/v1/jobs/{job['id']}/cancel").status_code < 300
    sent = client.post(f"{path}/test")
    assert sent.status_code == 202
    test, finished = client.get(f"{path}/deliveries").json()["items"]
    assert test == sent.json() == client.get(f"{path}/deliveries/{test['id']}").json()
    assert (finished["kind"], finished["job_id"], finished["state"]) == ("finished", job["id"], "pending")
    part = client.get(f"{path}/deliveries?limit=1").json()
    assert client.get(f"{path}/deliveries?cursor={part['next_cursor']}").json()["items"] == [finished]
    assert client.get(f"{path}/deliveries?state=delivered").json()["items"] == []
    problem(client.get(f"{path}/deliveries?state=lost"), 422, "invalid-request")
    problem(client.get(f"{path}/deliveries?cursor=x"), 422, "invalid-cursor")
    problem(client.get(f"{path}/deliveries/none"), 404, "delivery-not-found")
    other = create_webhook(client)
    problem(client.get(f"/v1/webhooks/{other['id']}/deliveries/{test['id']}"), 404, "delivery-not-found")
    assert client.delete(path).status_code == 204
    problem(client.get(path), 404, "webhook-not-found")
    problem(client.get(f"{path}/deliveries"), 404, "webhook-not-found")


def test_a_disabled_one_is_enabled(client: TestClient, services: Services, problem: Any) -> None:
    webhook = create_webhook(client)
    path = f"/v1/webhooks/{webhook['id']}"
    with services.uow.write() as repos:
        repos.webhooks.disable(webhook["id"], "it did not answer")
    assert client.get(path).json()["disabled_reason"] == "it did not answer"
    problem(client.post(f"{path}/test"), 409, "webhook-disabled")
    assert client.post(f"{path}/disable").json()["disabled_reason"] == "it did not answer"
    assert client.post(f"{path}/enable").json()["disabled_at"] is None
    assert client.post(f"{path}/test").status_code == 202
    assert client.post(f"{path}/disable").json()["disabled_reason"] == "disabled by a person"
    (given_up,) = client.get(f"{path}/deliveries").json()["items"]
    assert (given_up["state"], given_up["error"]) == ("failed", "the webhook is disabled")
    problem(client.post("/v1/webhooks/none/disable"), 404, "webhook-not-found")


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"url": "http://127.0.0.1/"}, 422, "webhook-address"),
        ({"url": "http://169.254.169.254/latest/meta-data"}, 422, "webhook-address"),
        ({"url": "gopher://8.8.8.8/"}, 422, "webhook-url"),
        ({"url": URL, "kinds": ["everything"]}, 422, "unknown-kind"),
        ({"url": URL, "job_id": "job_none"}, 404, "job-not-found"),
        ({"url": URL, "secret": "whsec_mine"}, 422, "invalid-request"),
        ({}, 422, "invalid-request"),
    ],
)
def test_what_is_refused(
    client: TestClient, problem: Any, body: dict[str, Any], status: int, code: str
) -> None:
    problem(client.post("/v1/webhooks", json=body), status, code)
    assert client.get("/v1/webhooks").json()["items"] == []


def test_it_takes_the_scope_write(client: TestClient, services: Services, problem: Any) -> None:
    path = f"/v1/webhooks/{create_webhook(client)['id']}"
    client.headers["Authorization"] = f"Bearer {create_api_key(services, name='r', scopes=['read'])[1]}"
    for method, url in (
        ("GET", "/v1/webhooks"),
        ("POST", "/v1/webhooks"),
        ("GET", path),
        ("DELETE", path),
        ("POST", f"{path}/test"),
        ("POST", f"{path}/enable"),
        ("POST", f"{path}/disable"),
        ("GET", f"{path}/deliveries"),
    ):
        problem(client.request(method, url, json={"url": URL}), 403, "forbidden")


def test_the_api_process_tells_them(settings: Settings) -> None:
    app = create_app(settings.model_copy(update={"webhook_allow_private": True}))
    with hook_receiver() as receiver, TestClient(app) as client:
        token = create_api_key(app.state.services, name="test", scopes=["write"])[1]
        client.headers["Authorization"] = f"Bearer {token}"
        webhook = client.post("/v1/webhooks", json={"url": receiver.url}).json()
        path = f"/v1/webhooks/{webhook['id']}"
        sent = f"{path}/deliveries/{client.post(f'{path}/test').json()['id']}"
        delivery = wait_until(
            lambda: (now := client.get(sent).json())["state"] != "pending" and now,
            "the delivery",
            within_sec=90,
        )
        assert (delivery["state"], delivery["attempts"], delivery["status"]) == ("delivered", 1, 200)
        assert receiver.ids() == [delivery["id"]]
