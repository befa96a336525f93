"""The routes of signed results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from tunefarm_api.app import create_app
from tunefarm_app.access.api_keys import create_api_key
from tunefarm_app.identity.signing import create_signing_key, public_path, rotate_signing_key
from tunefarm_app.runtime.composition import Services
from tunefarm_app.settings import Settings
from tunefarm_db.tables import ArtifactRow, table_of


def test_a_farm_that_does_not_sign(client: TestClient, finished_job: dict[str, Any], problem: Any) -> None:
    assert client.get("/v1/signing-keys").json() == {"items": [], "next_cursor": None}
    problem(client.get(f"/v1/jobs/{finished_job['id']}/artifact.intoto.jsonl"), 404, "not-signed")


def test_the_envelope_of_an_artifact(
    client: TestClient, services: Services, finished_job: dict[str, Any], problem: Any
) -> None:
    with services.uow.engine.begin() as connection:
        connection.execute(table_of(ArtifactRow).update().values(envelope='{"payload":""}\n'))
    path = f"/v1/jobs/{finished_job['id']}/artifact.intoto.jsonl"
    answer = client.get(path)
    assert (answer.status_code, answer.text) == (200, '{"payload":""}\n')
    assert answer.headers["content-type"].startswith("application/jsonl")
    assert answer.headers["content-disposition"].endswith("n%C3%A9t.tunefarm.intoto.jsonl")
    assert client.get(path, params={"sha256": finished_job["artifact_sha256"]}).text == answer.text
    problem(client.get(path, params={"sha256": "0" * 64}), 404, "artifact-replaced")
    assert client.get(path, params={"sha256": "nonsense"}).status_code == 422


def test_a_job_without_an_artifact(client: TestClient, job: dict[str, Any], problem: Any) -> None:
    for query in ({}, {"so_far": True}):
        problem(client.get(f"/v1/jobs/{job['id']}/artifact.intoto.jsonl", params=query), 409, "no-artifact")
    problem(client.get("/v1/jobs/job_none/artifact.intoto.jsonl"), 404, "job-not-found")


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "signing" / "key.pem"
    create_signing_key(path)
    return path


def test_the_keys(settings: Settings, services: Services, key: Path, problem: Any) -> None:
    rotate_signing_key(key)
    key.unlink()  # it is not the API's
    _, text = create_api_key(services, name="reader", scopes=["read"])
    app = create_app(settings.model_copy(update={"signing_key": key}), reconcile=False)
    with TestClient(app, headers={"Authorization": f"Bearer {text}"}) as client:
        keys = client.get("/v1/signing-keys").json()["items"]
        assert [item["is_current"] for item in keys] == [True, False]
        written = public_path(key).read_text()
        assert all(item["public_key"] in written and item["id"] in written for item in keys)
        public_path(key).write_text("nonsense")
        refused = client.get("/v1/signing-keys")
        problem(refused, 503, "signing-keys-unavailable")
        assert str(key.parent) not in refused.text, "the server's folders are none of a client's business"


def test_a_farm_that_requires_signatures_hands_out_nothing_else(
    settings: Settings,
    client: TestClient,
    services: Services,
    finished_job: dict[str, Any],
    key: Path,
    problem: Any,
) -> None:
    """Whichever worker made it: one that was started without the key, for example."""
    path = f"/v1/jobs/{finished_job['id']}/artifact"
    assert client.get(path).status_code == 200
    strict = settings.model_copy(update={"signing_key": key, "require_signatures": True})
    with TestClient(create_app(strict, reconcile=False), headers=client.headers) as signed:
        problem(signed.get(path), 409, "artifact-unsigned")
        with services.uow.engine.begin() as connection:
            connection.execute(table_of(ArtifactRow).update().values(envelope='{"payload":""}\n'))
        assert signed.get(path).status_code == 200
