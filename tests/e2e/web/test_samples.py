from __future__ import annotations

import io

import numpy as np
import pytest
from playwright.sync_api import Page, Route, expect
from replay_server import ReplayServer

from tunefarm_app.engines.scenario import Scenario


def npz(dtype: type) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, x=np.ones((3, 1, 8), dtype))
    return buffer.getvalue()


@pytest.mark.exhaustive
def test_samples_are_sent_with_the_form_of_a_job(seat, server: ReplayServer) -> None:
    page = seat.sign_in()
    seat.drop(page, "net.onnx", Scenario(tasks=1, trial_sec=0.01).to_bytes())
    page.wait_for_url("**/models/mdl_*")
    expect(page.get_by_role("button", name="Start the job")).to_be_visible()
    field = page.get_by_label("or upload a file")
    field.focus()  # as a person's click does: the page does not renew a form whose field is in use
    field.set_input_files({"name": "wrong.npz", "mimeType": "", "buffer": npz(np.float64)})
    expect(page.locator("#samples-said")).to_contain_text(
        "wrong.npz was refused: the array of input 'x' is float64"
    )
    field.set_input_files({"name": "text.npz", "mimeType": "", "buffer": b"hello"})
    expect(page.locator("#samples-said")).to_contain_text(
        "text.npz was refused: the samples are not a .npz file"
    )
    seat.complaints.clear()  # the browser's own line about the status 422
    field.set_input_files({"name": "day.npz", "mimeType": "", "buffer": npz(np.float32)})
    expect(page.locator("#samples-said")).to_have_text("day.npz fits the model.")
    expect(page.locator("#samples option:checked")).to_have_text("day.npz: 3 sample sets")
    expect(page.locator("#its-samples tbody tr")).to_have_count(2)
    seat.nothing_serious(page)
    page.get_by_label("Maximum number of trials").fill("8")
    page.get_by_role("button", name="Start the job").click()
    page.wait_for_url("**/jobs/job_*")
    expect(page.locator("#state")).to_contain_text("succeeded")
    expect(page.get_by_text("1 file of samples")).to_be_visible()


def choose_and_start_at_once(seat, content: bytes) -> Page:
    """Choose a file, and start the job before the answer about the file is back."""
    page = seat.sign_in()
    seat.drop(page, "net.onnx", Scenario(tasks=1, trial_sec=0.01).to_bytes())
    page.wait_for_url("**/models/mdl_*")
    expect(page.get_by_role("button", name="Start the job")).to_be_visible()

    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/samples?name=*", hold)
    page.get_by_label("Maximum number of trials").fill("8")
    field = page.get_by_label("or upload a file")
    field.focus()
    field.set_input_files({"name": "day.npz", "mimeType": "", "buffer": content})
    expect(page.locator("#samples-said")).to_contain_text("Sending day.npz")
    page.get_by_role("button", name="Start the job").click()
    expect(page.locator("#samples-said")).to_contain_text("The job starts when it fits the model.")
    while not held:
        page.wait_for_timeout(50)
    held[0].continue_()
    return page


@pytest.mark.exhaustive
def test_a_job_waits_for_the_check_of_its_samples(seat, server: ReplayServer) -> None:
    page = choose_and_start_at_once(seat, npz(np.float32))
    page.wait_for_url("**/jobs/job_*")
    expect(page.get_by_text("1 file of samples")).to_be_visible()


def test_no_job_starts_if_its_samples_are_refused(seat, server: ReplayServer) -> None:
    page = choose_and_start_at_once(seat, npz(np.float64))
    expect(page.locator("#samples-said")).to_contain_text("No job was started.")
    assert "/models/mdl_" in page.url
    page.get_by_role("button", name="Start the job").click()  # now it is what the form shows: no samples
    page.wait_for_url("**/jobs/job_*")
    seat.complaints.clear()  # the browser's own line about the status 422
