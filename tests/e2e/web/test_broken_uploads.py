"""Uploads from a browser: a killed server, a reloaded page, several files at once, and their buttons."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from api_process import WAIT_SEC, Api, running_api
from playwright.sync_api import Page, Route, expect
from waiting import wait_until

from tunefarm_app.engines.scenario import Scenario

CONTENT = b"\x08\x0a\0" + os.urandom(24 << 20)
BYTES_PER_SEC = 1 << 20
LONG_MS = 240_000


class Killable:
    """The API as a process without workers, so that uploads stay as they are."""

    def __init__(self, folder: Path, processes: ExitStack) -> None:
        self._folder, self._processes = folder, processes
        self._api = self._start(0)
        self.url, self.api_key = self._api.url, self._api.key

    def _start(self, port: int) -> Api:
        return self._processes.enter_context(running_api(self._folder, port=port))

    def kill(self) -> None:
        self._api.process.kill()
        self._api.process.wait(WAIT_SEC)

    def start_again(self) -> None:
        self._api = self._start(int(self.url.rpartition(":")[2]))

    def uploads(self) -> list[dict[str, Any]]:
        with self._api.client() as looking:
            uploads: list[dict[str, Any]] = looking.get("/v1/uploads").json()["items"]
            return uploads

    def half_there(self) -> bool:
        """Whether a part of the one upload is kept, and not all of it."""
        return [upload["state"] for upload in self.uploads() if upload["offset_bytes"]] == ["open"]

    def check_finished(self) -> None:
        (upload,) = self.uploads()
        assert upload["state"] == "finished"
        with self._api.client() as looking:
            model = looking.get(f"/v1/models/{upload['model_id']}").json()
        assert model["sha256"] == hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Killable]:
    with ExitStack() as processes:
        yield Killable(tmp_path / "farm", processes)


def forgive(seat: Any, *texts: str) -> None:
    """Forget the browser's complaints about a server that was away, and about these statuses."""
    seat.forgive_restart()
    seat.complaints[:] = [
        complaint for complaint in seat.complaints if not any(text in complaint for text in texts)
    ]


def slow_down(page: Page, bytes_per_sec: int) -> None:
    """Let the page send so fast; -1 as fast as it can."""
    page.context.new_cdp_session(page).send(
        "Network.emulateNetworkConditions",
        {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": bytes_per_sec},
    )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "large.onnx"
    path.write_bytes(CONTENT)
    return path


@pytest.mark.exhaustive
def test_the_server_is_killed_on_the_way(seat: Any, server: Killable, file: Path) -> None:
    page = seat.sign_in()
    slow_down(page, BYTES_PER_SEC)
    page.get_by_label("Choose a model").set_input_files(file)
    wait_until(server.half_there, "a part to be kept")
    server.kill()
    expect(page.get_by_text("Interrupted")).to_be_visible()
    # Pressed too early, it does no harm: it goes on trying by itself.
    page.get_by_role("button", name="Resume large.onnx").click()
    expect(page.get_by_text("Interrupted")).to_be_visible()
    slow_down(page, -1)
    server.start_again()
    page.wait_for_url("**/models/mdl_*", timeout=LONG_MS)
    expect(page.get_by_role("heading", name="large.onnx")).to_be_visible()
    server.check_finished()
    forgive(seat)


@pytest.mark.exhaustive
def test_after_a_reload_the_same_file_goes_on(seat: Any, server: Killable, file: Path) -> None:
    page = seat.sign_in()
    slow_down(page, BYTES_PER_SEC)
    page.get_by_label("Choose a model").set_input_files(file)
    wait_until(server.half_there, "a part to be kept")
    page.reload()
    slow_down(page, -1)
    page.get_by_label("Choose a model").set_input_files(file)
    page.wait_for_url("**/models/mdl_*", timeout=LONG_MS)
    server.check_finished()
    # Where the server has not yet learned that the page is gone, or learned it between two questions of the new one.
    forgive(seat, "423", "409")


def refuse_parts(page: Page, detail: str) -> None:
    problem = json.dumps({"status": 507, "code": "store-full", "detail": detail})

    def answer(route: Route) -> None:
        if route.request.method == "PATCH":
            route.fulfill(status=507, content_type="application/problem+json", body=problem)
        else:
            route.continue_()

    page.route("**/models/uploads/*", answer)


@pytest.mark.exhaustive
def test_a_person_resumes_and_stops(seat: Any, tmp_path: Path) -> None:
    page = seat.sign_in()
    refuse_parts(page, "this farm's store is full")
    file = tmp_path / "net.onnx"
    file.write_bytes(Scenario(tasks=2).to_bytes())
    chooser = page.get_by_label("Choose a model")
    chooser.set_input_files(file)
    status = page.get_by_role("status").filter(has_text="The sent part is kept")
    expect(status).to_contain_text("this farm's store is full")
    seat.nothing_serious(page)
    page.get_by_role("button", name="Stop net.onnx").press("Enter")
    expect(page.get_by_role("button", name="Stop net.onnx")).to_have_count(0)
    expect(chooser).to_be_focused()
    chooser.set_input_files(file)
    resume = page.get_by_role("button", name="Resume net.onnx")
    expect(resume).to_be_visible()
    page.unroute_all()
    resume.press("Enter")
    page.wait_for_url("**/models/mdl_*")
    forgive(seat, "507")


@pytest.mark.exhaustive
def test_several_files_at_once(seat: Any, tmp_path: Path) -> None:
    page = seat.sign_in()
    files = [tmp_path / "net-1.onnx", tmp_path / "net-2.onnx"]
    for seed, file in enumerate(files):
        file.write_bytes(Scenario(seed=seed).to_bytes())
    wrong = tmp_path / "picture.onnx"
    wrong.write_bytes(b"\x89PNG\r\n\x1a\n")
    page.get_by_label("Choose a model").set_input_files([files[0], wrong, files[1]])
    expect(page.get_by_role("link", name="Open net-1.onnx")).to_be_visible()
    expect(page.locator("#upload-error")).to_contain_text("picture.onnx: refused by the server")
    last = page.get_by_role("link", name="Open net-2.onnx")
    expect(last).to_be_visible()
    seat.nothing_serious(page)
    last.click()
    page.wait_for_url("**/models/mdl_*")
    expect(page.get_by_role("heading", name="net-2.onnx")).to_be_visible()
    forgive(seat, "422")


def test_what_is_dropped_twice_is_one_model(seat: Any) -> None:
    content = Scenario(tasks=1).to_bytes()
    pages = set()
    page = seat.sign_in()
    for _ in range(2):
        page.goto(f"{seat.server.url}/models")
        seat.drop(page, "same.onnx", content)
        page.wait_for_url("**/models/mdl_*")
        pages.add(page.url)
    assert len(pages) == 1
