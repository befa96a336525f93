"""Health, readiness and the description of the API."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from tunefarm_api.app import create_app
from tunefarm_app.settings import Settings
from tunefarm_db import schema
from tunefarm_tuning.core.errors import ConflictError


def test_a_server_without_its_broker_is_ready(stranger: TestClient) -> None:
    """Jobs are taken without it: they are in the database, and wait there."""
    assert stranger.get("/healthz").json()["status"] == "ok"
    answer = stranger.get("/readyz")
    assert answer.status_code == 200
    assert answer.json() == {
        "ready": True,
        "checks": {
            "database": "ok",
            "schema": "ok",
            "store": "ok",
            "broker": "does not answer: work starts when it answers",
        },
    }


def test_a_store_that_is_away(stranger: TestClient, settings: Settings) -> None:
    settings.store_dir.write_text("a file where the folder should be")
    answer = stranger.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["checks"]["store"] == "cannot be written"


def test_a_schema_of_another_time(stranger: TestClient, settings: Settings, tmp_path: Path) -> None:
    url = settings.database_url.get_secret_value()
    schema.downgrade(url, "base")
    answer = stranger.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["checks"]["schema"].startswith("outdated")
    with pytest.raises(ConflictError, match="tunefarm db upgrade"), TestClient(create_app(settings)):
        pass


def test_openapi_describes_everything(app: FastAPI, client: TestClient) -> None:
    document = client.get("/v1/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    for path, item in document["paths"].items():
        for method, operation in item.items():
            where = f"{method} {path}"
            assert operation["summary"], where
            if path.startswith("/v1"):
                assert operation["security"], where
                for status in ("401", "403", "422", "503"):
                    assert "application/problem+json" in operation["responses"][status]["content"], where
                    assert "application/json" not in operation["responses"][status]["content"], where
            for parameter in operation.get("parameters", []):
                if parameter["in"] != "path" and parameter["name"] != "if-none-match":
                    assert parameter.get("description"), f"{where}: {parameter['name']}"
    for name, described in document["components"]["schemas"].items():
        assert described.get("description") or name.startswith("Page"), name
        for field, schema_ in described.get("properties", {}).items():
            if described.get("type") == "object":
                assert schema_.get("description"), f"{name}.{field}"


def test_openapi_examples_are_valid(client: TestClient) -> None:
    import jsonschema

    document = client.get("/v1/openapi.json").json()
    checked = 0
    for described in document["components"]["schemas"].values():
        for example in described.get("examples", []):
            schema_: dict[str, Any] = {**described, "components": document["components"]}
            jsonschema.validate(example, schema_)
            checked += 1
    assert checked >= 5
