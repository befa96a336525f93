"""What a peer without a key can make the API do, and what it is told when that is too much."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from tunefarm_api.app import create_app
from tunefarm_api.connections import MAX_HEADERS
from tunefarm_app.access import api_keys, browser_sessions
from tunefarm_app.settings import Settings

SAME_SITE = {"Sec-Fetch-Site": "same-origin"}
WRONG_KEY = f"tfk_{'0' * 16}_{'A' * 43}"


@pytest.fixture
def app(settings: Settings) -> FastAPI:
    return create_app(
        settings.model_copy(update={"stranger_rate": "8/minute", "attempt_rate": "3/minute"}), reconcile=False
    )


@pytest.fixture
def neighbour(app: FastAPI, stranger: TestClient) -> TestClient:
    """A client without a key at another address."""
    return TestClient(app, raise_server_exceptions=False, client=("192.0.2.8", 50000))


def assert_limited(response: Any) -> None:
    assert response.status_code == 429, response.text
    assert 1 <= int(response.headers["Retry-After"]) <= 60


@pytest.mark.parametrize(
    "path", ["/readyz", "/healthz", "/sign-in", "/static/base.css", "/jobs", "/v1/jobs", "/v1/devices/enrol"]
)
def test_an_address_asks_so_often(stranger: TestClient, neighbour: TestClient, path: str) -> None:
    first = [stranger.get(path, follow_redirects=False).status_code for _ in range(8)]
    assert 429 not in first
    assert_limited(stranger.get(path, follow_redirects=False))
    assert neighbour.get(path, follow_redirects=False).status_code == first[0]
    other = "/readyz" if path != "/readyz" and path != "/healthz" else "/v1/jobs"
    assert stranger.get(other).status_code in (200, 401, 503)


def test_sign_ins_are_refused_before_anything_is_looked_up(
    stranger: TestClient, neighbour: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_up = []
    real = browser_sessions.start_session
    monkeypatch.setattr(
        "tunefarm_api.web.sign_in.start_session", lambda *args: looked_up.append(1) or real(*args)
    )
    answers = [stranger.post("/sign-in", data={"key": WRONG_KEY}, headers=SAME_SITE) for _ in range(5)]
    assert [answer.status_code for answer in answers] == [403, 403, 403, 429, 429]
    assert_limited(answers[-1])
    assert len(looked_up) == 3
    assert neighbour.post("/sign-in", data={"key": WRONG_KEY}, headers=SAME_SITE).status_code == 403


def test_opening_links_counts_as_signing_in(
    app: FastAPI, stranger: TestClient, neighbour: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_up, refused = [], []
    real = browser_sessions.link_key
    monkeypatch.setattr("tunefarm_api.web.sign_in.link_key", lambda *args: looked_up.append(1) or real(*args))
    monkeypatch.setattr(app.state.auditor, "count_refusal", lambda _, problem: refused.append(problem))
    answers = [stranger.get("/sign-in", params={"link": WRONG_KEY}) for _ in range(4)]
    assert [answer.status_code for answer in answers] == [403, 403, 403, 429]
    assert len(looked_up) == 3
    assert refused == ["sign-in"] * 3 + ["rate-limited"]
    assert_limited(stranger.post("/sign-in", data={"key": WRONG_KEY}, headers=SAME_SITE))
    assert stranger.get("/sign-in").status_code == 200
    assert neighbour.get("/sign-in", params={"link": WRONG_KEY}).status_code == 403


@pytest.mark.parametrize(("method", "path"), [("GET", "/v1/jobs"), ("POST", "/v1/devices/enrol")])
def test_wrong_keys_and_tokens_are_attempts(
    client: TestClient, stranger: TestClient, method: str, path: str
) -> None:
    right = stranger.headers.pop("Authorization")
    wrong = {"Authorization": f"Bearer {WRONG_KEY}"}
    statuses = [stranger.request(method, path, headers=wrong).status_code for _ in range(4)]
    assert statuses == [401, 401, 401, 429]
    assert_limited(stranger.request(method, path, headers=wrong))
    # Devices with ended credentials keep nobody behind their address from signing in.
    assert stranger.post("/sign-in", data={"key": WRONG_KEY}, headers=SAME_SITE).status_code == 403
    # Who has a key is let in whatever somebody else at its address does.
    assert stranger.get("/v1/jobs", headers={"Authorization": right}).status_code == 200


def test_a_valid_key_is_no_attempt(client: TestClient) -> None:
    assert {client.get("/v1/jobs").status_code for _ in range(20)} == {200}


def test_a_key_that_is_none_costs_no_look_into_the_database(
    stranger: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_keys.hmac, "compare_digest", lambda *_: pytest.fail("it was looked up"))
    assert stranger.get("/v1/jobs", headers={"Authorization": "Bearer nonsense"}).status_code == 401


def test_more_headers_than_any_client_sends_are_refused(client: TestClient, problem: Any) -> None:
    few = {f"X-{number}": "v" for number in range(MAX_HEADERS - 20)}
    assert client.get("/v1/jobs", headers=few).status_code == 200
    many = {f"X-{number}": "v" for number in range(MAX_HEADERS)}
    assert problem(client.get("/v1/jobs", headers=many), 431, "too-many-headers")["limit"] == MAX_HEADERS


def test_no_rate_is_no_limit(settings: Settings) -> None:
    changes = {"stranger_rate": "", "attempt_rate": ""}
    with TestClient(create_app(settings.model_copy(update=changes), reconcile=False)) as anybody:
        assert {anybody.get("/v1/jobs").status_code for _ in range(50)} == {401}
