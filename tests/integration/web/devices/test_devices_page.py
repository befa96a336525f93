from __future__ import annotations

import re
from importlib.metadata import version

import pytest
from page_browser import Browser
from sqlalchemy import update

from tunefarm_app.access.api_keys import create_api_key, verify_api_key
from tunefarm_db.tables import DeviceRow
from tunefarm_db.values import DeviceState


@pytest.fixture
def device(farm):
    return farm.add_device("node-1", "lab")


def row(browser: Browser, device):
    return browser.page("/devices").element("tr", id=device.id)


def orders(browser: Browser, device) -> list[str]:
    return [button.text for button in row(browser, device).all("button")]


def test_without_devices_it_says_so(browser: Browser) -> None:
    assert "There are no devices yet." in browser.page("/devices").element("main").text


def test_a_device_with_all_that_is_known_of_it(browser: Browser, farm, device) -> None:
    info = {
        "cores": 8,
        "agent": {
            "load": [1.26, 1, 1],
            "temperature_celsius": 61.0,
            "clock_mhz": 3410,
            "gpus": [{"temperature_celsius": 70.2}],
        },
    }
    calibration = {"time_sec": 0.00212, "reference_sec": 0.002, "at": 1.8e9, "key": "k"}
    with farm.services.uow.engine.begin() as connection:
        connection.execute(update(DeviceRow).values(info=info, calibration=calibration))
    text = row(browser, device).text
    for part in (
        "node-1",
        "pool lab",
        "online",
        "2.12 ms",
        "+6.0 %",
        "70 °C",
        "load 1.3 on 8 cores",
        "3.41 GHz",
    ):
        assert part in text


def test_what_agents_say_is_not_trusted_to_have_a_form(browser: Browser, farm, device) -> None:
    for info in (
        {},
        {"agent": 5},
        {"agent": {"load": [], "gpus": [1], "temperature_celsius": "hot"}, "cores": True},
    ):
        with farm.services.uow.engine.begin() as connection:
            connection.execute(update(DeviceRow).values(info=info, calibration={"time_sec": 0.1}))
        assert "100 ms" in row(browser, device).text


def test_a_leased_device_names_the_job(browser: Browser, farm, device) -> None:
    job = farm.submit(farm.ready_model(), tuner="random")
    farm.run(steps=1)
    step = farm.steps(job.id)[-1]
    with farm.services.uow.write() as repos:
        assert repos.devices.lease("lab", f"step:{step.id}", 60.0)
    links = [link.attrs["href"] for link in row(browser, device).all("a")]
    assert links == [f"/devices/{device.id}", f"/jobs/{job.id}"]
    assert "leased" in row(browser, device).text


def test_drain_quarantine_release_and_remove(browser: Browser, farm, device) -> None:
    assert orders(browser, device) == ["Drain", "Quarantine", "Remove"]
    browser.post(f"/devices/{device.id}/drain", reason="a new fan")
    assert farm.device(device.id).state is DeviceState.DRAINING
    assert "drained by a person: a new fan" in row(browser, device).text
    assert orders(browser, device) == ["Release", "Quarantine", "Remove"]
    browser.post(f"/devices/{device.id}/quarantine")
    assert orders(browser, device) == ["Release", "Remove"]
    browser.post(f"/devices/{device.id}/release")
    assert farm.device(device.id).state is not DeviceState.QUARANTINED
    browser.post(f"/devices/{device.id}/remove")
    assert "There are no devices yet." in browser.page("/devices").element("main").text
    assert browser.post(f"/devices/{device.id}/drain").status_code == 404


def test_orders_that_make_no_sense_are_refused(browser: Browser, device) -> None:
    assert browser.post(f"/devices/{device.id}/release").status_code == 409
    assert browser.post(f"/devices/{device.id}/explode").status_code == 422


def test_the_command_to_join_holds_a_token_that_is_good_once(browser: Browser, farm) -> None:
    answer = browser.post("/devices/join", pool="lab")
    command = re.search(r"<pre[^>]*>(.*?)</pre>", answer.text)[1]
    secret, ours = command.split(" ", 1)
    assert ours == "tunefarm device join --url http://testserver --device-key lab", (
        "no token: every user sees a command line"
    )
    assert secret.startswith("TUNEFARM_ENROLMENT_TOKEN=tfk_")
    token = verify_api_key(farm.services, secret.partition("=")[2])
    assert (token.scopes, token.device_key) == (["enrol"], "lab")
    assert token.expires_at is not None
    wheel = f"tunefarm-{version('tunefarm')}-py3-none-any.whl[device]"
    assert wheel in answer.text, "no index has tunefarm"
    assert browser.post("/devices/join", pool="no good").status_code == 422
    reloaded = browser.get("/devices/join")
    assert (reloaded.status_code, reloaded.url.path) == (200, "/devices")


def test_only_who_may_gives_orders(stranger: Browser, farm, device) -> None:
    stranger.sign_in(create_api_key(farm.services, name="tunes", scopes=["read", "write"])[1])
    assert [form.attrs["action"] for form in stranger.page("/devices").all("form")] == [
        "/sign-out",
        "/sign-out",
    ]
    assert stranger.post(f"/devices/{device.id}/drain").status_code == 403
    assert stranger.post("/devices/join").status_code == 403
