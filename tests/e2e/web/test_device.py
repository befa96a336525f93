"""A device's page in a real Chromium: its charts, its buttons, and its live updates."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect
from replay_server import ReplayServer

from tunefarm.client import Client, JobHandle
from tunefarm_app.devices.register import heartbeat
from tunefarm_db.values import CalibrationOutcome, NewCalibration


def give_it_a_history(server: ReplayServer) -> str:
    with server.services.uow.read() as repos:
        (device,) = repos.devices.list().items
    agent = {"state": "serving", "load": [1.5], "temperature_celsius": 61.0, "clock_mhz": 3410}
    heartbeat(server.services, device.id, info={"cores": 2, "agent": agent})
    with server.services.uow.write() as repos:
        for took_sec in (0.002, 0.0021, 0.0035):
            drifts = took_sec > 0.003
            repos.device_history.add_calibration(
                device.id,
                NewCalibration(
                    outcome=CalibrationOutcome.DRIFT if drifts else CalibrationOutcome.CLEAN,
                    reason="its clock drifts" if drifts else "",
                    time_sec=took_sec,
                    reference_sec=0.002,
                ),
            )
    return device.id


def run_a_job(server: ReplayServer, tmp_path_factory: pytest.TempPathFactory) -> JobHandle:
    model = server.write_model(tmp_path_factory.mktemp("models") / "net.onnx", tasks=2)
    with Client(server.url, server.api_key) as client:
        job = client.tune(model, trials=16)
        job.wait(timeout_sec=120)
        return job


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "seat",
    [
        pytest.param({}, marks=pytest.mark.exhaustive),
        {"viewport": {"width": 390, "height": 800}, "color_scheme": "dark"},
    ],
    indirect=True,
    ids=["plain", "narrow"],
)
def test_a_device_from_the_list_to_quarantine(
    seat, server: ReplayServer, tmp_path_factory: pytest.TempPathFactory
) -> None:
    device_id = give_it_a_history(server)
    page = seat.sign_in()
    page.goto(f"{server.url}/devices")
    page.get_by_role("link", name="node-1").click()
    page.wait_for_url(f"**/devices/{device_id}")
    expect(page.locator("#use-chart canvas")).to_be_visible()
    expect(page.locator("#temperature canvas")).to_be_visible()
    expect(page.locator("#clock canvas")).to_be_visible()
    expect(page.locator("#calibration-chart canvas")).to_be_visible()
    seat.nothing_serious(page)
    page.get_by_text("The last calibrations as a table").click()
    expect(page.get_by_role("cell", name=re.compile("its clock drifts"))).to_be_visible()
    page.get_by_text("As a table", exact=True).click()
    expect(page.get_by_role("cell", name="3.41 GHz")).to_be_visible()

    job = run_a_job(server, tmp_path_factory)
    # It follows the farm by itself, and leaves open what the reader has opened.
    expect(page.locator("#measured").get_by_role("link", name="matmul_0").first).to_be_visible()
    expect(page.get_by_role("cell", name="3.41 GHz")).to_be_visible()
    expect(page.locator("#head")).to_contain_text(re.compile(r"16\s*trials in"))

    page.get_by_role("link", name="hour", exact=True).click()
    expect(page.locator("#use-chart canvas")).to_be_visible()
    expect(page.get_by_role("link", name="hour", exact=True)).to_have_attribute("aria-current", "true")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")

    page.locator("summary", has_text="Quarantine").click()
    page.locator(".fold[open]").get_by_label("Reason").fill("the fan rattles")
    page.get_by_role("button", name="Quarantine the device").click()
    expect(page.locator("#state")).to_contain_text("quarantined")
    expect(page.locator(".note")).to_contain_text("Quarantined by a person: the fan rattles")
    seat.nothing_serious(page)
    page.locator("summary", has_text="Remove").click()
    expect(page.get_by_text("Remove node-1 permanently?")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Remove the device")).to_be_hidden()
    page.locator("#measured").get_by_role("link", name="matmul_0").first.click()
    page.wait_for_url(f"**/jobs/{job.id}/tasks/*")
