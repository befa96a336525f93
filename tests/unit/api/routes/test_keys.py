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
from tunefarm_db.values import Model


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


def test_limits_are_set_shown_and_kept(client: TestClient, problem: Any) -> None:
    limits = {"bytes": 10**9, "open_jobs": 2, "device_minutes": 60.5, "priority": -1}
    key = client.post("/v1/keys", json={"name": "ci", "scopes": ["write"], "limits": limits}).json()
    assert key["limits"] == limits
    successor = client.post(f"/v1/keys/{key['id']}/rotate", json={}).json()
    assert successor["account"] == key["id"]
    changed = client.patch(f"/v1/keys/{successor['id']}", json={"limits": {"open_jobs": 3}}).json()
    assert changed["limits"] == {"bytes": None, "open_jobs": 3, "device_minutes": None, "priority": None}
    assert client.patch(f"/v1/keys/{key['id']}", json={}).json()["limits"] == changed["limits"]
    shown = {entry["id"]: entry["limits"] for entry in client.get("/v1/keys").json()["items"]}
    assert shown[key["id"]] == shown[successor["id"]] == changed["limits"]
    problem(client.patch("/v1/keys/none", json={"limits": {}}), 404, "key-not-found")
    for bad in ({"bytes": -1}, {"open_jobs": 1.5}, {"device_minutes": "x"}, {"priority": 101}, {"more": 1}):
        problem(client.patch(f"/v1/keys/{key['id']}", json={"limits": bad}), 422, "invalid-request")


def test_a_refusal_names_the_limit_and_the_way_out(
    client: TestClient, services: Services, ready_model: Model, device: Any, problem: Any
) -> None:
    key = client.post(
        "/v1/keys",
        json={
            "name": "ci",
            "scopes": ["read", "write"],
            "limits": {"bytes": 300, "open_jobs": 1, "priority": 0},
        },
    ).json()
    as_key = {"Authorization": f"Bearer {key['key']}"}
    job = {"model_id": ready_model.id, "budget": {"trials": 9}}
    assert client.post("/v1/jobs", json=job, headers=as_key).json()["owner"] == key["id"]
    refused = client.post("/v1/jobs", json=job, headers=as_key)
    document = problem(refused, 429, "quota-open-jobs")
    assert (document["limit"], document["used"], refused.headers["Retry-After"]) == (1, 1, "60")
    problem(client.post("/v1/jobs", json={**job, "priority": 1}, headers=as_key), 403, "quota-priority")
    terms = {"budget": job["budget"]}
    problem(client.post("/v1/jobs/check", json=terms, headers=as_key), 429, "quota-open-jobs")
    high = {**terms, "priority": 1}
    problem(client.post("/v1/jobs/check", json=high, headers=as_key), 403, "quota-priority")
    upload = {**as_key, "Content-Type": "application/octet-stream"}
    assert client.post("/v1/models", content=b"\x08\x0a" + bytes(200), headers=upload).status_code == 202
    document = problem(
        client.post("/v1/models", content=b"\x08\x0a" + bytes(100), headers=upload), 403, "quota-bytes"
    )
    assert (document["limit"], document["used"]) == (300, 202)
    stream = iter([b"\x08\x0a" + bytes(90), bytes(90)])
    problem(client.post("/v1/models", content=stream, headers=upload), 403, "quota-bytes")
    tus = {**as_key, "Tus-Resumable": "1.0.0", "Upload-Length": "99"}
    problem(client.post("/v1/uploads", headers=tus), 403, "quota-bytes")
    assert client.post("/v1/uploads", headers={**tus, "Upload-Length": "98"}).status_code == 201
    problem(client.post("/v1/models", content=b"\x08\x0a", headers=upload), 403, "quota-bytes")
