"""Texts of strangers, and of a worker that was taken over, run nothing on any page: as markup, as scripts, as links."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from api_server import ApiServer, api_server
from api_world import World
from app_farm import farm_settings, make_farm
from page_tree import read_page
from playwright.sync_api import Page
from real_browser import chromium
from sqlalchemy import text

from tunefarm_app.engines.replay import ReplayEngine

MARK = "pwned"
PAYLOAD = (
    f'"\'><img src=x onerror="{MARK}=1"><script>{MARK}=1</script><svg/onload={MARK}=1>'
    f"<a href=javascript:{MARK}=1 autofocus onfocus={MARK}=1>x</a></title></textarea></style>"
    f"<iframe srcdoc='<script>parent.{MARK}=1</script>'></iframe><base href=//evil.example/>"
    "{{7*191}}${7*191}<meta http-equiv=refresh content='0;url=//evil.example'>"
)
URL = f"https://8.8.8.8/?{PAYLOAD.replace(' ', '/')}"

COLUMNS: dict[str, tuple[str, ...]] = {
    "api_keys": ("name", "account"),
    "artifacts": ("name",),
    "calibrations": ("reason",),
    "device_changes": ("event", "reason"),
    "devices": ("name", "device_model", "reason", "rpc_key", "tracker_host"),
    "job_tasks": ("name",),
    "jobs": ("note", "stop_reason"),
    "models": ("name", "note"),
    "network_timings": ("name", "device"),
    "records": ("message", "tuner", "device_model"),
    "sample_files": ("name",),
    "sweep_cells": ("model_name",),
    "sweeps": ("note",),
    "trials": ("message", "outcome"),
    "uploads": ("name",),
    "webhook_deliveries": ("error", "kind"),
    "webhooks": ("url", "disabled_reason"),
    "workloads": ("name",),
}
"""Columns of texts that pages show."""

DOCUMENTS: dict[str, tuple[str, ...]] = {
    "artifacts": ("manifest", "report"),
    "device_peaks": ("peak",),
    "devices": ("info", "target"),
    "events": ("data",),
    "jobs": ("error", "tags", "target"),
    "models": ("error", "inputs", "outputs", "operators", "tags"),
    "records": ("extra",),
    "steps": ("error",),
    "sweeps": ("tags",),
    "workloads": ("args",),
}
"""Columns of documents of JSON that pages show."""

STRUCTURE = re.compile(
    r"kind|state|outcome|dtype|code|key|id|type|ids|sha256|precision|unit|level|method|tuner|quality|verdict|format|.*_(key|id|at|sha256|kind)"
)
"""Members whose texts are words of ours: a page of others would fail, and show nothing."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A farm, in each text of which stands the attack."""
    farm = make_farm(farm_settings(tmp_path_factory.mktemp("farm")), ReplayEngine())
    world = World(farm)
    with farm.services.uow.engine.begin() as connection:
        for table, columns in COLUMNS.items():
            for column in columns:
                own = " || rowid" if (table, column) in (("devices", "name"), ("models", "name")) else ""
                payload = URL if column == "url" else PAYLOAD
                connection.execute(text(f"UPDATE {table} SET {column} = :payload{own}"), {"payload": payload})
        for table, columns in DOCUMENTS.items():
            for column in columns:
                rows = connection.execute(
                    text(f"SELECT rowid, {column} FROM {table} WHERE {column} IS NOT NULL")
                )
                for rowid, document in rows.all():
                    hostile = json.dumps(poisoned(json.loads(document)))
                    connection.execute(
                        text(f"UPDATE {table} SET {column} = :document WHERE rowid = :rowid"),
                        {"document": hostile, "rowid": rowid},
                    )
    yield world
    farm.services.close()


def poisoned(value: Any) -> Any:
    """Return a document with the attack in the place of each text."""
    if isinstance(value, dict):
        return {
            name: child if STRUCTURE.fullmatch(name) and isinstance(child, str) else poisoned(child)
            for name, child in value.items()
        }
    if isinstance(value, list):
        return [poisoned(child) for child in value]
    return PAYLOAD if isinstance(value, str) else value


@pytest.fixture(scope="module")
def server(world: World) -> Iterator[ApiServer]:
    with api_server(world.farm) as server:
        yield server


def pages(world: World) -> list[str]:
    known = world.known
    with world.farm.services.uow.read() as repos:
        record = repos.records.query(limit=1).items[0].id
    with world.farm.services.uow.engine.begin() as connection:
        jobs = (
            connection.execute(text("SELECT id FROM jobs ORDER BY created_at DESC LIMIT 6")).scalars().all()
        )
    job, model = known["job_id"], known["model_id"]
    return [
        "/jobs",
        *(f"/jobs/{one_job}" for one_job in jobs),
        f"/jobs/{job}/report",
        f"/jobs/{job}/tasks/0",
        f"/jobs/{job}/tasks/0/source/schedule",
        f"/jobs/{job}/log.txt",
        f"/jobs/compare?job={jobs[0]}&job={jobs[-1]}",
        "/models",
        f"/models/{model}",
        "/devices",
        f"/devices/{known['device_id']}",
        "/records",
        f"/records/{record}",
        "/sweeps",
        "/sweeps/new",
        f"/sweeps/{known['sweep_id']}",
        f"/sweeps/{known['sweep_id']}/report",
        "/webhooks",
        f"/webhooks/{known['webhook_id']}",
        "/keys",
        "/audit",
    ]


def test_no_page_has_a_stranger_s_markup(server: ApiServer, world: World) -> None:
    with httpx.Client(base_url=server.url, timeout=60, headers={"Accept": "text/html"}) as client:
        origin = {"Origin": server.url}
        assert client.post("/sign-in", data={"key": world.keys["admin"]}, headers=origin).status_code == 303
        shown = 0
        for path in pages(world):
            answer = client.get(path, follow_redirects=True)
            assert answer.status_code in (200, 404, 409), (path, answer.status_code, answer.text[-500:])
            if not answer.headers["content-type"].startswith("text/html"):
                assert answer.headers["x-content-type-options"] == "nosniff"
                continue
            shown += MARK in answer.text
            assert "1337" not in answer.text, path
            for element in read_page(answer.text).walk():
                assert not [name for name in element.attrs if name.startswith("on")], (path, element)
                assert element.tag not in ("iframe", "base", "object", "embed"), (path, element)
                if element.tag == "script":
                    assert element.attrs["src"].startswith("/static/")
                for name in ("href", "src", "action", "formaction", "xlink:href"):
                    assert (
                        not str(element.attrs.get(name, ""))
                        .lower()
                        .strip()
                        .startswith(("javascript", "data:text", "//"))
                    ), path
    assert shown > 10, "else the attack stands nowhere"
    assert server.faults == []


@pytest.mark.exhaustive
def test_nothing_runs_in_a_real_browser(server: ApiServer, world: World) -> None:
    with chromium() as browser:
        context = browser.new_context()
        context.set_default_timeout(30_000)
        page = context.new_page()
        complaints: list[str] = []
        page.on("console", lambda message: complaints.append(message.text))
        page.on("dialog", lambda dialog: complaints.append(dialog.message))
        page.goto(f"{server.url}/sign-in")
        page.get_by_label("API key").fill(world.keys["admin"])
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url("**/jobs")
        for path in pages(world):
            if path.endswith(".txt"):
                continue  # a download
            page.goto(server.url + path)
            page.wait_for_timeout(300)  # charts and parts are loaded
            assert page.url.startswith(server.url), (path, page.url)
            assert page.evaluate(f"() => typeof window.{MARK}") == "undefined", path
            assert _is_clean(page), path
        context.close()
    assert [text for text in complaints if "Content Security Policy" in text] == []
    assert server.faults == []


def _is_clean(page: Page) -> bool:
    return page.locator("img[src=x], svg[onload], iframe, base, a[href^=javascript], [onfocus]").count() == 0
