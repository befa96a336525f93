"""API keys over HTTP: created, shown once, listed, revoked."""

from __future__ import annotations

import json
from typing import Any

import pytest
import structlog
from starlette.testclient import TestClient
from structlog.testing import capture_logs

from tunefarm_app.access import api_keys
from tunefarm_app.access.api_keys import create_api_key
from tunefarm_app.runtime.composition import Services


def test_a_key_is_shown_once_and_good_until_it_is_revoked(
    client: TestClient, problem: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The module's own may have been bound for good to the settings of an earlier test of this process.
    monkeypatch.setattr(api_keys, "log", structlog.get_logger())
    with capture_logs() as log:
        answer = client.post("/v1/keys", json={"name": "ci", "scopes": ["write", "read", "read"]})
        assert answer.status_code == 201, answer.text
        created = answer.json()
        assert (created["name"], created["scopes"], created["revoked_at"]) == ("ci", ["read", "write"], None)
        mine = {"Authorization": f"Bearer {created['key']}"}
        assert client.get("/v1/jobs", headers=mine).status_code == 200
        problem(client.get("/v1/keys", headers=mine), 403, "forbidden")
        own, listed = client.get("/v1/keys").json()["items"]
        assert (listed["id"], listed["name"]) == (created["id"], "ci")
        assert listed["last_used_at"] is not None
        assert listed.keys() == own.keys() == created.keys() - {"key"}

        revoked = client.post(f"/v1/keys/{created['id']}/revoke").json()
        assert revoked["revoked_at"] is not None
        assert client.post(f"/v1/keys/{created['id']}/revoke").json() == revoked
        problem(client.get("/v1/jobs", headers=mine), 401, "unauthenticated")
    entries = {entry["event"]: entry for entry in log if entry["event"].startswith("api key")}
    for event in ("api key created", "api key revoked"):
        assert (entries[event]["api_key_id"], entries[event]["by_key_id"]) == (created["id"], own["id"])
    assert created["key"].rpartition("_")[2] not in json.dumps(log, default=str)


def test_the_last_key_for_admin_stays(client: TestClient, services: Services, problem: Any) -> None:
    (own,) = client.get("/v1/keys").json()["items"]
    create_api_key(services, name="reader", scopes=["read"])
    problem(client.post(f"/v1/keys/{own['id']}/revoke"), 409, "last-admin-key")
    other, text = create_api_key(services, name="another", scopes=["admin"])
    assert client.post(f"/v1/keys/{own['id']}/revoke").status_code == 200
    client.headers["Authorization"] = f"Bearer {text}"
    problem(client.post(f"/v1/keys/{other.id}/revoke"), 409, "last-admin-key")
    assert client.post(f"/v1/keys/{own['id']}/revoke").status_code == 200  # is revoked already


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"name": "x", "scopes": ["everything"]}, "unknown-scope"),
        ({"name": "x", "scopes": []}, "invalid-request"),
        ({"name": "x"}, "invalid-request"),
        ({"name": "", "scopes": ["read"]}, "invalid-request"),
        ({"name": "x" * 101, "scopes": ["read"]}, "invalid-request"),
        ({"name": "x", "scopes": ["read"], "key": "tfk_mine"}, "invalid-request"),
    ],
)
def test_what_is_no_key(client: TestClient, problem: Any, body: dict[str, Any], code: str) -> None:
    problem(client.post("/v1/keys", json=body), 422, code)
    assert len(client.get("/v1/keys").json()["items"]) == 1


def test_a_key_that_is_not_there(client: TestClient, problem: Any) -> None:
    problem(client.post("/v1/keys/none/revoke"), 404, "key-not-found")
