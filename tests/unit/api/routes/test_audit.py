"""Who did what: each route that changes something is in the log, or is listed here with the reason why not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fastapi import FastAPI
from sqlalchemy import text
from starlette.routing import BaseRoute, Route
from starlette.testclient import TestClient

from tunefarm_api.paths import is_page
from tunefarm_app.access.api_keys import create_api_key
from tunefarm_app.runtime.composition import Services
from tunefarm_text.audit_chain import ChainCheck

NOTED = {
    ("DELETE", "/v1/devices/{device_id}"): "device-removed",
    ("DELETE", "/v1/models/{model_id}"): "model-deleted",
    ("DELETE", "/v1/models/{model_id}/samples/{samples_id}"): "samples-deleted",
    ("DELETE", "/v1/webhooks/{webhook_id}"): "webhook-deleted",
    ("PATCH", "/v1/jobs/{job_id}"): "job-changed",
    ("PATCH", "/v1/keys/{key_id}"): "key-changed",
    ("PATCH", "/v1/models/{model_id}"): "model-changed",
    ("PATCH", "/v1/uploads/{upload_id}"): "model-submitted",
    ("POST", "/v1/audit/prune"): "audit-pruned",
    ("POST", "/v1/devices"): "device-registered",
    ("POST", "/v1/devices/credential"): "key-rotated",
    ("POST", "/v1/devices/enrol"): "device-enrolled",
    ("POST", "/v1/devices/tokens"): "token-created",
    ("POST", "/v1/devices/{device_id}/certificate"): "device-certified",
    ("POST", "/v1/devices/{device_id}/drain"): "device-drained",
    ("POST", "/v1/devices/{device_id}/quarantine"): "device-quarantined",
    ("POST", "/v1/devices/{device_id}/release"): "device-released",
    ("POST", "/v1/jobs"): "job-submitted",
    ("POST", "/v1/jobs/{job_id}/again"): "job-submitted",
    ("POST", "/v1/jobs/{job_id}/cancel"): "job-cancelled",
    ("POST", "/v1/jobs/{job_id}/compile"): "job-submitted",
    ("POST", "/v1/jobs/{job_id}/finish"): "job-finished",
    ("POST", "/v1/jobs/{job_id}/measure"): "job-measured",
    ("POST", "/v1/jobs/{job_id}/pause"): "job-paused",
    ("POST", "/v1/jobs/{job_id}/resume"): "job-resumed",
    ("POST", "/v1/jobs/{job_id}/retry"): "job-retried",
    ("POST", "/v1/keys"): "key-created",
    ("POST", "/v1/keys/{key_id}/revoke"): "key-revoked",
    ("POST", "/v1/keys/{key_id}/rotate"): "key-rotated",
    ("POST", "/v1/models"): "model-submitted",
    ("POST", "/v1/models/{model_id}/bind"): "model-submitted",
    ("POST", "/v1/models/{model_id}/samples"): "samples-added",
    ("POST", "/v1/records"): "records-imported",
    ("POST", "/v1/records/purge"): "records-purged",
    ("POST", "/v1/sign-in-links"): "link-created",
    ("POST", "/v1/sweeps"): "sweep-submitted",
    ("POST", "/v1/sweeps/{sweep_id}/cancel"): "sweep-cancelled",
    ("POST", "/v1/webhooks"): "webhook-created",
    ("POST", "/v1/webhooks/{webhook_id}/disable"): "webhook-disabled",
    ("POST", "/v1/webhooks/{webhook_id}/enable"): "webhook-enabled",
    ("POST", "/v1/webhooks/{webhook_id}/test"): "webhook-tested",
}
NOT_NOTED = {
    (
        "POST",
        "/v1/devices/{device_id}/heartbeat",
    ): "every few seconds; changes of state are in the device's history",
    ("POST", "/v1/jobs/check"): "changes nothing",
    ("POST", "/v1/uploads"): "an upload without its last part is nothing; its last part is noted",
    ("DELETE", "/v1/uploads/{upload_id}"): "the same",
}


def changing_routes(app: FastAPI) -> set[tuple[str, str]]:
    def walk(routes: list[BaseRoute]) -> Any:
        for route in routes:
            if isinstance(route, Route):
                yield from ((method, route.path) for method in route.methods or ())
            else:
                for context in route.effective_route_contexts():  # type: ignore[attr-defined]
                    yield from ((method, context.path) for method in context.methods)

    return {
        (method, path)
        for method, path in walk(list(app.routes))
        if method not in ("GET", "HEAD", "OPTIONS") and not is_page(path)
    }


def test_every_changing_route_is_noted_or_listed(app: FastAPI) -> None:
    assert changing_routes(app) == NOTED.keys() | NOT_NOTED.keys()


def entries(client: TestClient, **query: Any) -> list[dict[str, Any]]:
    answer = client.get("/v1/audit", params={"limit": 500, **query})
    assert answer.status_code == 200, answer.text
    items: list[dict[str, Any]] = answer.json()["items"]
    return items


def test_what_each_route_leaves_in_the_log(
    client: TestClient, services: Services, finished_job: dict[str, Any], ready_model: Any
) -> None:
    """Nearly all of `NOTED`, in one life of a farm."""
    own_id = client.headers["Authorization"].split("_")[1]
    done: set[tuple[str, str]] = {("POST", "/v1/devices"), ("POST", "/v1/jobs")}

    def call(method: str, path: str, *ids: str, status: int = 200, **more: Any) -> Any:
        concrete = path
        for name in ids:
            concrete = concrete[: concrete.index("{")] + name + concrete[concrete.index("}") + 1 :]
        before = entries(client)[0]["seq"]
        answer = client.request(method, concrete, **more)
        assert answer.status_code == status, (path, answer.text)
        since = [entry for entry in entries(client) if entry["seq"] > before]
        assert NOTED[method, path] in {entry["action"] for entry in since}, path
        assert {(entry["actor"], entry["via"], entry["address"]) for entry in since} == {
            (own_id, "api", "192.0.2.7")
        }
        done.add((method, path))
        return answer.json() if answer.content else None

    key = call("POST", "/v1/keys", json={"name": "ci", "scopes": ["read"]}, status=201)
    assert entries(client)[0]["details"] == {"name": "ci", "scopes": ["read"]}
    assert key["key"] not in json.dumps(entries(client))
    call("PATCH", "/v1/keys/{key_id}", key["id"], json={"limits": {"open_jobs": 3}})
    call("POST", "/v1/keys/{key_id}/rotate", key["id"], json={}, status=201)
    call("POST", "/v1/keys/{key_id}/revoke", key["id"])
    call("POST", "/v1/sign-in-links", status=201)

    device = client.get("/v1/devices").json()["items"][0]["id"]
    for order in ("drain", "release", "quarantine"):
        call("POST", f"/v1/devices/{{device_id}}/{order}", device, json={})
    token = call("POST", "/v1/devices/tokens", json={"device_key": "lab"}, status=201)
    enrolled = client.post(
        "/v1/devices/enrol",
        json={"name": "node-2", "device_key": "lab"},
        headers={"Authorization": f"Bearer {token['token']}"},
    )
    assert enrolled.status_code == 201, enrolled.text
    assert (entries(client)[0]["action"], entries(client)[0]["actor"]) == ("device-enrolled", token["id"])
    done.add(("POST", "/v1/devices/enrol"))
    credential = enrolled.json()["api_key"]
    with services.uow.engine.begin() as connection:
        connection.execute(text("UPDATE api_keys SET expires_at = NULL WHERE device_name = 'node-2'"))
    renewed = client.post("/v1/devices/credential", headers={"Authorization": f"Bearer {credential}"})
    assert renewed.status_code == 201, renewed.text
    assert entries(client)[0]["action"] == "key-rotated"
    assert renewed.json()["api_key"] not in json.dumps(entries(client))
    done.add(("POST", "/v1/devices/credential"))

    call("PATCH", "/v1/models/{model_id}", ready_model.id, json={"tags": ["x"]})
    uploaded = call(
        "POST",
        "/v1/models",
        content=b"\x08\x0a" + bytes(300),
        headers={"Content-Type": "application/octet-stream"},
        status=202,
    )
    call("DELETE", "/v1/models/{model_id}", uploaded["id"], status=204)

    newest = entries(client)[0]
    answer = client.post("/v1/audit/prune", json={"to": newest["seq"], "hash": newest["hash"]})
    assert (answer.status_code, answer.json()["code"]) == (422, "audit-too-young")
    answer = client.post("/v1/audit/prune", json={"to": 10_000, "hash": newest["hash"]})
    assert (answer.status_code, answer.json()["code"]) == (409, "audit-head-differs")

    client.post(f"/v1/devices/{device}/release", json={})
    call("POST", "/v1/jobs/{job_id}/measure", finished_job["id"], status=202)
    job = client.post("/v1/jobs", json={"model_id": ready_model.id, "budget": {"trials": 9}}).json()["id"]
    assert entries(client)[0]["subject"] == job
    call("PATCH", "/v1/jobs/{job_id}", job, json={"priority": 3})
    call("PATCH", "/v1/jobs/{job_id}", job, json={"note": "mine"})
    assert entries(client)[0]["details"] == {"labels": ["note"]}
    for same in ({"note": "mine"}, {"priority": 3}, {"priority": 3, "note": "mine"}, {}):
        before = entries(client)[0]["seq"]
        assert client.patch(f"/v1/jobs/{job}", json=same).status_code in (200, 422)
        assert entries(client)[0]["seq"] == before, "nothing has changed"
    for order in ("pause", "resume", "finish", "cancel"):
        call("POST", f"/v1/jobs/{{job_id}}/{order}", job)

    sweep = call(
        "POST", "/v1/sweeps", json={"model_ids": [ready_model.id], "budget": {"trials": 9}}, status=201
    )
    call("POST", "/v1/sweeps/{sweep_id}/cancel", sweep["id"])

    call("POST", "/v1/records", content=b"", headers={"Content-Type": "application/jsonl"})
    call("POST", "/v1/records/purge", json={"device_id": device})
    call("DELETE", "/v1/devices/{device_id}", device, status=204)
    missing = NOTED.keys() - done
    assert missing == {
        ("POST", "/v1/audit/prune"),
        ("DELETE", "/v1/models/{model_id}/samples/{samples_id}"),
        ("POST", "/v1/models/{model_id}/samples"),
        ("PATCH", "/v1/uploads/{upload_id}"),
        ("POST", "/v1/devices/{device_id}/certificate"),
        ("POST", "/v1/jobs/{job_id}/again"),
        ("POST", "/v1/jobs/{job_id}/compile"),
        ("POST", "/v1/jobs/{job_id}/retry"),
        ("POST", "/v1/models/{model_id}/bind"),
        *((method, path) for method, path in NOTED if "webhooks" in path),
    }, "these need more of a farm than this test has"
    assert client.get("/v1/audit/check").json()["broken"] is None


def test_what_changes_nothing_is_not_noted(
    client: TestClient, finished_job: dict[str, Any], ready_model: Any
) -> None:
    """A command repeats a request whose answer it lost."""
    job, other = (
        client.post("/v1/jobs", json={"model_id": ready_model.id, "budget": {"trials": 9}}).json()["id"]
        for _ in range(2)
    )
    sweep = client.post("/v1/sweeps", json={"model_ids": [ready_model.id], "budget": {"trials": 9}}).json()
    key = client.post("/v1/keys", json={"name": "ci", "scopes": ["read"]}).json()["id"]
    hook = client.post("/v1/webhooks", json={"url": "https://8.8.8.8/hook"}).json()["id"]
    requests: list[tuple[str, str, dict[str, Any]]] = [
        ("POST", f"/v1/jobs/{job}/finish", {}),
        ("POST", f"/v1/jobs/{job}/cancel", {}),
        ("POST", f"/v1/jobs/{other}/cancel", {}),
        ("POST", f"/v1/sweeps/{sweep['id']}/cancel", {}),
        ("POST", f"/v1/keys/{key}/revoke", {}),
        ("PATCH", f"/v1/models/{ready_model.id}", {"tags": ["x"]}),
        ("POST", f"/v1/webhooks/{hook}/disable", {}),
        ("POST", f"/v1/webhooks/{hook}/enable", {}),
    ]
    for method, path, body in requests:
        seen = [entries(client)[0]["seq"]]
        for _ in range(3):
            answer = client.request(method, path, json=body)
            assert answer.status_code == 200, (path, answer.text)
            seen.append(entries(client)[0]["seq"])
        assert seen[0] < seen[1] == seen[2] == seen[3], path


def test_downloads_and_refusals(
    client: TestClient, app: FastAPI, services: Services, finished_job: dict[str, Any]
) -> None:
    reader, text_ = create_api_key(services, name="reader", scopes=["read"])
    as_reader = {"Authorization": f"Bearer {text_}"}
    path = f"/v1/jobs/{finished_job['id']}/artifact"
    assert client.get(path, headers=as_reader).status_code == 200
    assert client.head(path, headers=as_reader).status_code == 200
    etag = {"If-None-Match": f'"{finished_job["artifact_sha256"]}"'}
    assert client.get(path, headers={**as_reader, **etag}).status_code == 304
    assert (
        client.post("/v1/keys", json={"name": "x", "scopes": ["admin"]}, headers=as_reader).status_code == 403
    )
    assert client.get("/v1/jobs", headers={"Authorization": "Bearer tfk_" + "0" * 60}).status_code == 401
    assert (
        client.post("/sign-in", data={"key": "wrong"}, headers={"Origin": "http://testserver"}).status_code
        == 403
    )
    app.state.auditor.write()
    (downloaded,) = entries(client, action="downloaded")
    assert (downloaded["actor"], downloaded["subject"]) == (reader.id, finished_job["id"])
    assert downloaded["details"] == {"what": "artifact"}, "neither HEAD nor 304 is a download"
    refused = {(entry["details"]["what"], entry["actor"]) for entry in entries(client, action="refused")}
    assert refused == {("forbidden", reader.id), ("unauthenticated", None), ("sign-in", None)}
    assert entries(client, actor=reader.id, action="downloaded") == [downloaded]


@pytest.mark.parametrize("job_id", ["job_" + "x" * 6000, "%00", "job_nosuch", "%1b%5b31m"])
@pytest.mark.parametrize("prefix", ["/v1", ""])
def test_only_what_there_is_can_be_downloaded(
    client: TestClient, app: FastAPI, job_id: str, prefix: str
) -> None:
    if not prefix:
        key = client.headers.pop("Authorization").split()[1]
        signed_in = client.post("/sign-in", data={"key": key}, headers={"Origin": "http://testserver"})
        assert signed_in.status_code == 200
        client.headers["Authorization"] = f"Bearer {key}"
    answer = client.get(f"{prefix}/jobs/{job_id}/records.jsonl")
    assert answer.status_code in (404, 422)
    app.state.auditor.write()
    assert entries(client, action="downloaded") == []


def test_a_download_of_records_is_noted(
    client: TestClient, app: FastAPI, finished_job: dict[str, Any]
) -> None:
    assert client.get(f"/v1/jobs/{finished_job['id']}/records.jsonl").status_code == 200
    app.state.auditor.write()
    (entry,) = entries(client, action="downloaded")
    assert (entry["subject"], entry["details"]) == (finished_job["id"], {"what": "records"})


def test_a_check_says_what_waits(client: TestClient, services: Services) -> None:
    checked = client.get("/v1/audit/check").json()
    assert (checked["waiting"], checked["waiting_since"]) == (0, None)
    with services.uow.engine.begin() as connection:
        connection.execute(
            text("CREATE TRIGGER stuck BEFORE INSERT ON audit_log BEGIN SELECT RAISE(ABORT, 'no'); END")
        )
    created = client.post("/v1/keys", json={"name": "k", "scopes": ["read"]}).json()
    checked = client.get("/v1/audit/check").json()
    assert (checked["waiting"], checked["broken"]) == (1, None)
    assert checked["waiting_since"] == pytest.approx(created["created_at"], abs=60)
    metrics = client.get("/metrics").text
    assert "tunefarm_audit_unsealed 1.0" in metrics
    assert "tunefarm_audit_oldest_unsealed_seconds" in metrics


def test_the_export_is_whole_and_can_be_checked_elsewhere(client: TestClient, app: FastAPI) -> None:
    for number in range(5):
        client.post("/v1/keys", json={"name": f"k{number}", "scopes": ["read"]})
    answer = client.get("/v1/audit.jsonl")
    assert answer.headers["content-type"].startswith("application/jsonl")
    lines = [json.loads(line) for line in answer.text.splitlines()]
    check = ChainCheck()
    for line in lines:
        assert check.take(line)
    assert check.end() is None
    server = client.get("/v1/audit/check").json()
    assert server["seq"] >= check.seq
    head = f"{check.seq}:{check.hash}"
    assert client.get("/v1/audit/check", params={"head": head}).json()["broken"] is None
    rest = client.get("/v1/audit.jsonl", params={"after": 4}).text.splitlines()
    assert json.loads(rest[0]) == lines[4]
    app.state.auditor.write()
    assert entries(client, action="downloaded")[0]["details"]["what"] == "audit log"


def test_a_broken_chain_is_told_with_its_place(client: TestClient, services: Services) -> None:
    for number in range(5):
        client.post("/v1/keys", json={"name": f"k{number}", "scopes": ["read"]})
    assert client.get("/v1/audit/check").json()["broken"] is None
    with services.uow.engine.begin() as connection:
        connection.execute(text("DROP TRIGGER audit_log_no_update"))
        connection.execute(text("UPDATE audit_log SET actor = NULL WHERE seq = 3"))
    checked = client.get("/v1/audit/check").json()
    assert checked["seq"] == 2
    assert checked["broken"]["seq"] == 3


@pytest.mark.parametrize(
    "query", [{"action": "nonsense"}, {"cursor": "x"}, {"cursor": "-1"}, {"limit": "0"}, {"actor": "x" * 101}]
)
def test_bad_questions(client: TestClient, query: dict[str, str], problem: Any) -> None:
    problem(client.get("/v1/audit", params=query), 422, "invalid-request")


@pytest.mark.parametrize("head", ["", "x", "1:ab", "1:" + "zz" * 32])
def test_bad_heads(client: TestClient, head: str, problem: Any) -> None:
    problem(client.get("/v1/audit/check", params={"head": head}), 422, "invalid-input")


def test_pages_of_the_list(client: TestClient) -> None:
    for number in range(5):
        client.post("/v1/keys", json={"name": f"k{number}", "scopes": ["read"]})
    seen: list[int] = []
    cursor = None
    while True:
        part = client.get(
            "/v1/audit", params={"limit": 2, **({} if cursor is None else {"cursor": cursor})}
        ).json()
        seen += [entry["seq"] for entry in part["items"]]
        cursor = part["next_cursor"]
        if cursor is None:
            break
    assert seen == sorted(seen, reverse=True)
    assert seen[-1] == 1
    assert len(set(seen)) == len(seen) >= 5
