"""A job's page offers the signed statement beside the artifact: without it, a download cannot be verified."""

from __future__ import annotations

from pathlib import Path

import pytest
from app_farm import Farm, farm_settings
from page_browser import Browser
from signed_farm import finished_job, payload_of

from tunefarm_app.identity.signing import create_signing_key
from tunefarm_app.settings import Settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    key = tmp_path / "signing" / "key.pem"
    create_signing_key(key)
    return farm_settings(tmp_path, device_retry_sec=0.01, step_turn_sec=0.0, signing_key=key)


def test_the_statement_is_downloaded_from_the_page(browser: Browser, farm: Farm) -> None:
    job = finished_job(farm)
    path = f"/jobs/{job.id}/artifact.intoto.jsonl"
    assert browser.page(f"/jobs/{job.id}").element("a", href=path).text == "Signed statement"
    answer = browser.client.get(path)
    assert answer.headers["content-disposition"].endswith(".tunefarm.intoto.jsonl")
    assert payload_of(answer.text)["predicate"]["runDetails"]["metadata"]["invocationId"] == job.id


def test_an_artifact_that_was_never_signed_has_none(browser: Browser, farm: Farm) -> None:
    job = finished_job(farm)
    with farm.services.uow.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE artifacts SET envelope = NULL")
    path = f"/jobs/{job.id}/artifact.intoto.jsonl"
    assert browser.page(f"/jobs/{job.id}").all("a", href=path) == []
    assert browser.client.get(path).status_code == 404
