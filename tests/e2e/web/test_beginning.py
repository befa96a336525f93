from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect
from replay_server import ReplayServer

from tunefarm_app.engines.scenario import Scenario


def test_from_a_dropped_file_to_a_job_that_ran(seat, server: ReplayServer) -> None:
    page = seat.sign_in()
    # The first page of a farm without jobs takes it.
    seat.drop(page, "dropped.onnx", Scenario(tasks=2, trial_sec=0.01).to_bytes())
    page.wait_for_url("**/models/mdl_*")
    expect(page.get_by_role("heading", name="dropped.onnx")).to_be_visible()
    # It is imported while one looks; then there is a form.
    expect(page.get_by_role("button", name="Start the job")).to_be_visible()
    seat.nothing_serious(page)
    expect(page.locator("#estimate")).to_contain_text("The pace is unknown")
    page.get_by_label("Time for the whole job").fill("")
    page.get_by_label("Maximum number of trials").fill("40")
    page.get_by_text("More options", exact=True).click()
    page.get_by_label("Tuner").select_option("random")
    page.get_by_role("button", name="Start the job").click()
    page.wait_for_url("**/jobs/job_*")
    expect(page.locator("#state")).to_contain_text("succeeded")
    page.get_by_label("Pages").get_by_role("link", name="Jobs").click()
    page.get_by_role("link", name="New job").click()
    page.get_by_role("link", name="dropped.onnx").click()
    expect(page.locator("#estimate")).to_contain_text("trials in 10 minutes")


def test_a_refused_form_is_not_sent_again_by_reload_or_back(seat, server: ReplayServer) -> None:
    page = seat.sign_in()
    seat.drop(page, "net.onnx", Scenario(tasks=1, trial_sec=0.01).to_bytes())
    page.wait_for_url("**/models/mdl_*")
    form = page.url
    page.get_by_label("Maximum number of trials").fill("99999999999999999999")
    page.get_by_role("button", name="Start the job").click()
    expect(page.get_by_role("alert")).to_contain_text("the number of trials must be at most")
    assert page.url == form + "/jobs"
    page.wait_for_load_state()  # the page's script has run
    page.reload()  # Chromium would ask whether to send the form again, and tell Playwright of a cache miss
    page.wait_for_url(form)
    page.get_by_label("Maximum number of trials").fill("99999999999999999999")
    page.get_by_role("button", name="Start the job").click()
    expect(page.get_by_role("alert")).to_contain_text("the number of trials must be at most")
    page.wait_for_load_state()
    page.get_by_label("Pages").get_by_role("link", name="Devices").click()
    page.wait_for_url("**/devices")
    page.go_back()
    page.wait_for_url(form)
    seat.complaints.clear()  # the browser's own lines about the status 422


@pytest.mark.exhaustive
def test_a_chosen_file_that_is_no_model(seat, server: ReplayServer, tmp_path: Path) -> None:
    page = seat.sign_in()
    page.goto(server.url + "/models")
    seat.nothing_serious(page)
    wrong = tmp_path / "picture.onnx"
    wrong.write_bytes(b"\x89PNG\r\n\x1a\n")
    page.get_by_label("Choose a model").set_input_files(wrong)
    expect(page.locator("#upload-error")).to_contain_text("this is not an ONNX file")
    expect(page.locator("#drop")).to_be_visible()
    seat.complaints.clear()  # the browser's own line about the status 422


@pytest.mark.exhaustive
def test_a_long_name_stays_within_its_page(seat, server: ReplayServer) -> None:
    page = seat.sign_in()
    page.goto(server.url + "/models")
    content = Scenario(tasks=1).to_bytes()
    names = ["L" * 240 + ".onnx", "\u202exnno.evil.onnx"]
    # With several files, each line stays and links to its model.
    page.get_by_label("Choose a model").set_input_files(
        [{"name": name, "mimeType": "", "buffer": content} for name in names]
    )
    links = page.locator("#uploads a")
    expect(links).to_have_count(2)
    width = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert width[0] <= width[1]
    assert links.nth(1).evaluate("link => getComputedStyle(link).unicodeBidi") == "isolate"
    # Nor does a name turn around what is said of it.
    page.get_by_label("Choose a model").set_input_files({"name": names[1], "mimeType": "", "buffer": b"PNG"})
    expect(page.locator("#upload-error bdi")).to_have_text(names[1])
    expect(page.locator("#upload-error")).to_contain_text("refused by the server")
    seat.complaints.clear()  # the browser's own line about the status 422


@pytest.mark.exhaustive
def test_tags_and_a_note_come_with_the_upload(seat, server: ReplayServer) -> None:
    page = seat.sign_in()
    page.goto(server.url + "/models")
    page.locator("#upload summary", has_text="Tags and note").click()
    page.locator("#upload-tags").fill("OCR customer-7")
    page.locator("#upload-note").fill("for us")
    seat.nothing_serious(page)
    file = {"name": "net.onnx", "mimeType": "", "buffer": Scenario(tasks=1).to_bytes()}
    page.get_by_label("Choose a model").set_input_files(file)
    expect(page.locator(".labels .tag")).to_have_text(["ocr", "customer-7"])
    expect(page.locator(".labels .noted")).to_have_text("for us")


def test_devices_are_quarantined_and_let_back(seat, server: ReplayServer) -> None:
    page = seat.sign_in()
    page.get_by_role("link", name="Devices", exact=True).click()
    seat.nothing_serious(page)
    page.locator("summary", has_text="Actions for node-1").click()
    page.get_by_label("Reason").fill("it hums")
    page.get_by_role("button", name="Quarantine").click()
    expect(page.get_by_role("row", name="node-1")).to_contain_text("quarantined by a person: it hums")
    page.locator("summary", has_text="Actions for node-1").click()
    page.get_by_role("button", name="Release").click()
    expect(page.get_by_role("row", name="node-1")).not_to_contain_text("it hums")
    page.locator("summary", has_text="Add a device").click()
    page.get_by_role("button", name="Create the command").click()
    expect(page.locator("#command")).to_contain_text("tunefarm device join --url http://127.0.0.1")
    seat.nothing_serious(page)
