"""A farm of this release on the database, store and backup of the previous release."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from api_server import api_server
from app_farm import Farm, farm_settings, make_farm

from tunefarm.client import Client
from tunefarm_app.operations.backup import check_backup
from tunefarm_app.operations.reconcile import reap
from tunefarm_db import schema
from tunefarm_db.states.job import JobState
from tunefarm_db.values import ModelState


def test_the_database_keeps_its_rows(farm_folder: Path, facts: Any) -> None:
    path = farm_folder / "farm.db"
    schema.upgrade(f"sqlite:///{path}")
    with sqlite3.connect(path) as connection:
        rows = {
            table: connection.execute(f'SELECT count(*) FROM "{table}"').fetchone()[0]
            for table in facts["rows"]
        }
    connection.close()
    assert rows == facts["rows"]


def test_the_database_in_postgresql_keeps_its_rows(postgres_url: str, facts: Any) -> None:
    schema.upgrade(postgres_url)
    with psycopg.connect(postgres_url) as connection:
        rows = {
            table: connection.execute(f'SELECT count(*) FROM "{table}"'.encode()).fetchone()[0]
            for table in facts["rows"]
        }
    assert rows == facts["rows"]


def test_the_backup_is_one(copies: Path, facts: Any) -> None:
    backup = check_backup(copies / "farm.backup")
    assert backup.rows >= sum(facts["rows"][table] for table in ("jobs", "trials", "records", "events"))
    assert backup.missing == ()


@pytest.mark.matrix(every=3, each_value=False)
def test_unfinished_jobs_go_on_to_their_end(old_farm: Farm, facts: Any) -> None:
    """A worker was killed in a job's third round: its round is done again, and no trial is lost or counted twice."""
    jobs = facts["jobs"]
    before = {name: old_farm.trials(job_id) for name, job_id in jobs.items()}
    assert {name: len(trials) for name, trials in before.items()} == facts["trials"]
    assert {name: old_farm.job(job_id).state.value for name, job_id in jobs.items()} == facts["states"]
    with old_farm.services.uow.read() as repos:
        in_flight = repos.steps.in_flight(jobs["running"])
    assert [set(rounds) >= {"position", "trials", "asked"} for rounds in in_flight.values()] == [True]
    let_leases_end(old_farm)
    assert len(reap(old_farm.services)) == 1
    for name in ("node-1", "node-2"):
        old_farm.add_device(name, "pool")
    old_farm.run_until_quiet()
    for name, trials in (("running", 32), ("queued", 8)):
        job = old_farm.job(jobs[name])
        assert (job.state, job.trials) == (JobState.SUCCEEDED, trials)
    after = old_farm.trials(jobs["running"])
    assert after[: len(before["running"])] == before["running"]
    assert len({(trial.position, trial.config_key) for trial in after}) == len(after)
    events = old_farm.events(jobs["running"])
    assert events[: len(facts["events"]["running"])] == facts["events"]["running"]
    assert events[-1] == "finished"
    for name in ("finished", "lost", "cancelled", "paused"):
        assert old_farm.job(jobs[name]).state.value == facts["states"][name]
        assert old_farm.events(jobs[name]) == facts["events"][name]


def let_leases_end(farm: Farm) -> None:
    from sqlalchemy import text

    farm.end_leases()
    with farm.services.uow.write() as repos:
        repos._connection.execute(text("UPDATE devices SET lease_until = 1 WHERE lease_until IS NOT NULL"))


@pytest.mark.matrix(every=3, each_value=False)
def test_paused_and_failed_jobs_are_taken_up_again(old_farm: Farm, facts: Any) -> None:
    old_farm.add_device("node-1", "pool")
    old_farm.add_device("node-3", "spare")
    with api_server(old_farm) as server, Client(server.url, facts["keys"]["admin"]) as client:
        client.jobs.resume(facts["jobs"]["paused"])
        client.jobs.retry(facts["jobs"]["lost"])
        old_farm.run_until_quiet()
        for name, trials in (("paused", 24), ("lost", 16)):
            job = client.jobs.get(facts["jobs"][name])
            assert (job.state, job.trials) == ("succeeded", trials)
        assert server.faults == []


@pytest.mark.matrix(every=3, each_value=False)
def test_everything_can_be_read_through_the_api(old_farm: Farm, facts: Any, tmp_path: Path) -> None:
    with api_server(old_farm) as server, Client(server.url, facts["keys"]["admin"]) as client:
        states = {name: client.jobs.get(job_id).state for name, job_id in facts["jobs"].items()}
        assert states == facts["states"]
        for name, job_id in facts["jobs"].items():
            assert [event.kind for event in client.jobs.events(job_id)] == facts["events"][name]
            assert len(list(client.jobs.trials(job_id))) == facts["trials"][name]
            assert client.jobs.tasks(job_id) or name not in ("finished", "running")
        job_id = facts["jobs"]["finished"]
        assert client.jobs.report(job_id)["coverage"]["tasks"] == 2
        assert "matmul_0" in client.jobs.source(job_id, 0)
        client.jobs.save_records(job_id, tmp_path / "records")
        assert len((tmp_path / "records").read_text(encoding="utf-8").splitlines()) >= 24
        assert client.jobs.download(job_id, tmp_path / "artifact").stat().st_size > 0
        client.jobs.save_report(job_id, tmp_path / "report.html")
        assert client.models.get(facts["failed_model"]).state == "failed"
        assert {device.name for device in client.devices.list()} == {"node-1", "node-2", "node-3", "node-4"}
        node = next(device for device in client.devices.list() if device.name == "node-1")
        assert client.devices.get(node.id).peak is not None
        assert len(list(client.webhooks.deliveries(facts["webhook"]))) == facts["rows"]["webhook_deliveries"]
        assert {key.name for key in client.keys.list()} >= {"read", "write", "admin"}
        assert client.records.list(limit=100).items
        again = client.jobs.create(
            facts["model"], device_key="pool", trials=24, seed=1, tuner="xgb", idempotency_key="once"
        )
        assert again.id == job_id, "the job was submitted under this key before"
        assert server.faults == []


@pytest.mark.matrix(every=3, each_value=False)
def test_pages_show_it(old_farm: Farm, facts: Any) -> None:
    pages = ["/jobs", "/devices", "/models", "/webhooks", "/records", "/keys"]
    pages += [f"/jobs/{job_id}" for job_id in facts["jobs"].values()]
    with (
        api_server(old_farm) as server,
        httpx.Client(
            base_url=server.url, follow_redirects=True, headers={"Origin": server.url}, timeout=60
        ) as browser,
    ):
        assert browser.post("/sign-in", data={"key": facts["keys"]["admin"]}).status_code == 200
        answers = {page: browser.get(page) for page in pages}
        assert {page: answer.status_code for page, answer in answers.items()} == dict.fromkeys(pages, 200)
        assert all(job_id in answers["/jobs"].text for job_id in facts["jobs"].values())
        assert "node-1" in answers["/devices"].text
        assert server.faults == []


def test_an_upload_that_was_cut_off_goes_on(farm_folder: Path, facts: Any) -> None:
    farm = make_farm(farm_settings(farm_folder))
    path = f"/v1/uploads/{facts['upload']['id']}"
    headers = {"Tus-Resumable": "1.0.0", "Authorization": f"Bearer {facts['keys']['admin']}"}
    try:
        with (
            api_server(farm) as server,
            httpx.Client(base_url=server.url, headers=headers, timeout=60) as client,
        ):
            offset = client.head(path).headers["upload-offset"]
            assert offset == "8"
            part = {"Content-Type": "application/offset+octet-stream", "Upload-Offset": offset}
            answer = client.patch(path, content=facts["upload"]["rest"].encode(), headers=part)
            assert (answer.status_code, server.faults) == (204, [])
            model_id = client.get(path).json()["model_id"]
        farm.run_until_quiet()
        assert farm.model(model_id).state is ModelState.READY
    finally:
        farm.services.close()


@pytest.mark.matrix(every=3, each_value=False)
def test_keys_keep_their_scopes(old_farm: Farm, facts: Any) -> None:
    with api_server(old_farm) as server:
        answers = {
            scope: httpx.get(
                f"{server.url}/v1/jobs", headers={"Authorization": f"Bearer {text}"}, timeout=60
            ).status_code
            for scope, text in facts["keys"].items()
        }
        refused = httpx.post(
            f"{server.url}/v1/jobs",
            json={},
            headers={"Authorization": f"Bearer {facts['keys']['read']}"},
            timeout=60,
        )
    assert answers == {"read": 200, "write": 403, "admin": 200}
    assert refused.status_code == 403
