"""A device's page: its description, its state and its history."""

from __future__ import annotations

import pytest
from page_browser import Browser
from sqlalchemy import update

from tunefarm_app.access.api_keys import create_api_key
from tunefarm_app.devices.register import heartbeat
from tunefarm_db.tables import DeviceRow
from tunefarm_db.values import CalibrationOutcome, DeviceState, NewCalibration

INFO = {
    "cpu": "Quick <b>CPU</b>",
    "cores": 8,
    "memory_bytes": 64_000_000_000,
    "versions": {"tunefarm": "1.2.3", "apache-tvm": "0.27"},
    "agent": {"state": "serving", "load": [1.26, 1, 1], "temperature_celsius": 61.0, "clock_mhz": 3410},
}


@pytest.fixture
def device(farm):
    return farm.add_device("node-1", "lab", info=INFO)


@pytest.fixture
def path(device) -> str:
    return f"/devices/{device.id}"


def text_of(browser: Browser, path: str) -> str:
    return browser.page(path).element("main").text


def test_the_list_leads_to_it(browser: Browser, device, path: str) -> None:
    assert browser.page("/devices").element("tr", id=device.id).element("a").attrs["href"] == path


def test_who_it_is(browser: Browser, path: str) -> None:
    text = text_of(browser, path)
    for part in (
        "node-1",
        "pool lab",
        "replay-cpu",
        "Quick <b>CPU</b>",
        "64.0 GB",
        "Threads of a kernel",
        "llvm -num-cores=2",
        "agent (tunefarm)",
        "1.2.3",
        "0.27",
        "not leased",
        "61 °C",
    ):
        assert part in text, part
    assert text.index("agent (tunefarm)") < text.index("apache-tvm")


def test_what_it_can_do_at_its_best(browser: Browser, farm, device, path: str) -> None:
    assert "Peak" not in text_of(browser, path)
    farm.note_peak(device, flops_per_sec=136e9, bytes_per_sec=12.5e9)
    text = text_of(browser, path)
    assert "Peak, float32 136 GFLOP/s on one core, 272 GFLOP/s on 2" in text
    assert "Memory bandwidth 12.5 GB/s on one core, 25.0 GB/s on 2" in text
    assert "No peak" not in text


def test_what_holds_it(browser: Browser, farm, device, path: str) -> None:
    job = farm.submit(farm.ready_model(), tuner="random")
    farm.run(steps=1)
    step = farm.steps(job.id)[-1]
    with farm.services.uow.write() as repos:
        assert repos.devices.lease("lab", f"step:{step.id}", 60.0)
    shown = browser.page(path).element("section", **{"aria-label": "State"})
    assert shown.element("a").attrs["href"] == f"/jobs/{job.id}"
    assert f"{step.kind.value} step" in shown.text
    assert "valid until" in shown.text
    assert "leased" in shown.text


def test_its_measurements_and_calibrations(browser: Browser, farm, device, path: str) -> None:
    job = farm.submit(farm.ready_model(), trials=40, tuner="random")
    farm.run_until_quiet()
    with farm.services.uow.write() as repos:
        calibrations = (
            NewCalibration(outcome=CalibrationOutcome.CLEAN, time_sec=0.00212, reference_sec=0.002),
            NewCalibration(outcome=CalibrationOutcome.DRIFT, reason="it is hot", time_sec=0.004),
        )
        for calibration in calibrations:
            repos.device_history.add_calibration(device.id, calibration)
    shown = browser.page(path)
    text = shown.element("main").text
    for part in ("40", "built and measured", "+6.0 %", "it is hot", "Leased", "measuring trials"):
        assert part in text, part
    links = [link.attrs["href"] for link in shown.all("a")]
    kernels = {link for link in links if link.startswith(f"/jobs/{job.id}/tasks/")}
    assert kernels
    assert browser.page(min(kernels)).element("h1").text.startswith("matmul")
    (older,) = [link for link in links if "measured=" in link]
    following = [link.attrs["href"] for link in browser.page(older.partition("#")[0]).all("a")]
    assert not {link for link in links if "/records/" in link} & {
        link for link in following if "/records/" in link
    }
    assert f"{path}?span=day#measured" in following


@pytest.mark.parametrize(("span", "count"), [("hour", 61), ("day", 97), ("week", 85), ("month", 91)])
def test_its_charts(browser: Browser, farm, device, path: str, span: str, count: int) -> None:
    heartbeat(farm.services, device.id)
    data = browser.get(f"{path}/intervals.json?span={span}").json()
    assert {len(column) for column in data.values() if isinstance(column, list)} == {count}
    assert max(value or 0.0 for value in data["temperature"]) == 61.0
    assert max(value or 0.0 for value in data["clock"]) == 3.41
    assert browser.page(f"{path}?span={span}").element("a", **{"aria-current": "true"}).text == span


def test_its_calibrations(browser: Browser, farm, device, path: str) -> None:
    assert browser.get(f"{path}/calibrations.json").json()["runs"] == 0
    with farm.services.uow.write() as repos:
        clean = NewCalibration(outcome=CalibrationOutcome.CLEAN, time_sec=0.002, reference_sec=0.002)
        broken = NewCalibration(outcome=CalibrationOutcome.BROKEN, reason="no answer")
        for calibration in (clean, broken):
            repos.device_history.add_calibration(device.id, calibration)
    data = browser.get(f"{path}/calibrations.json").json()
    assert (data["ms"], data["outcome"]) == ([2.0, None], ["clean", "broken"])
    assert data["most"] == [3.0, None]


def test_orders_lead_back_to_it(browser: Browser, farm, device, path: str) -> None:
    answer = browser.post(f"{path}/quarantine", reason="it rattles", back="device")
    assert answer.url.path == path
    assert farm.device(device.id).state is DeviceState.QUARANTINED
    shown = browser.page(path)
    assert "Quarantined by a person: it rattles: only a person can release it." in shown.element("main").text
    assert [form.attrs["action"] for form in shown.element("main").all("form")] == [
        f"{path}/release",
        f"{path}/remove",
    ]
    answer = browser.post(f"{path}/remove", back="device")
    assert answer.url.path == "/devices"
    assert browser.get(path).status_code == 404
    assert browser.get(f"{path}/intervals.json").status_code == 404


def test_what_agents_say_is_not_trusted_to_have_a_form(browser: Browser, farm, path: str) -> None:
    for info in (
        {},
        {"agent": 5, "versions": [1], "gpus": {"name": 1}, "cores": True},
        {"agent": {"load": [], "gpus": [1]}, "versions": {"a": {}, "b": "x" * 5000}, "gpus": [3, {}]},
        {"memory_bytes": "much", "cpu": ["x"], "target": None},
    ):
        with farm.services.uow.engine.begin() as connection:
            connection.execute(update(DeviceRow).values(info=info, calibration={}))
        assert "node-1" in text_of(browser, path)


def test_who_may_only_look_gets_no_buttons(stranger: Browser, farm, path: str) -> None:
    stranger.sign_in(create_api_key(farm.services, name="looks", scopes=["read"])[1])
    assert stranger.page(path).element("main").all("form") == []
    assert stranger.post(f"{path}/drain", back="device").status_code == 403


def test_of_no_device_and_no_span(browser: Browser, path: str) -> None:
    assert browser.get("/devices/dev_nobody").status_code == 404
    assert browser.get(f"{path}?span=century").status_code == 422
