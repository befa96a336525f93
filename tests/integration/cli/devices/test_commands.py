"""``tunefarm device``, but for ``join``, against a real server."""

from __future__ import annotations

import json
from typing import Any

import pytest
from noted_peak import noted_peak

from tunefarm_app.devices.register import heartbeat


@pytest.fixture(autouse=True)
def device(farm: Any) -> None:
    farm.add_device("node-1")


def test_devices_are_listed_and_ordered(run: Any) -> None:
    assert "node-1" in run("device", "list").output
    listed = next(
        device for device in json.loads(run("device", "list", "--json").stdout) if device["name"] == "node-1"
    )
    assert run("device", "list", "--state", "offline", "--json").stdout.strip() == "[]"
    assert (
        "node-1  draining: drained by a person: new fan"
        in run("device", "drain", "node-1", "--reason", "new fan").stdout
    )
    assert "quarantined" in run("device", "quarantine", listed["id"]).stdout
    run("device", "drain", "node-1", code=3)
    assert json.loads(run("device", "release", "node-1", "--json").stdout)["state"] == "offline"
    run("device", "release", "node-1", code=3)
    assert run("device", "remove", "node-1").stdout == "node-1  removed\n"
    gone = run("device", "remove", "node-1", code=3)
    assert "there is no device node-1" in gone.stderr


def test_devices_are_listed_by_pool_and_state(run: Any, farm: Any) -> None:
    farm.add_device("node-2", device_key="lab")
    of_lab = json.loads(run("device", "list", "--device-key", "lab", "--state", "online", "--json").stdout)
    assert [device["name"] for device in of_lab] == ["node-2"]
    assert run("device", "list", "--device-key", "no-such-pool", "--json").stdout.strip() == "[]"
    assert "'quarantined'" in run("device", "list", "--state", "broken", code=2).stderr


def test_the_list_fits_a_hundred_columns(run: Any, farm: Any) -> None:
    with farm.services.uow.read() as repos:
        device = repos.devices.find("node-1")
    noted_peak(farm.services, device, flops_per_sec=136e9, bytes_per_sec=12.5e9)
    reason = "the fan is broken, the new one comes on Monday, and until then it is of no use to anybody"
    run("device", "drain", "node-1", "--reason", reason)
    listed = run("device", "list", "--state", "draining", COLUMNS="100")
    lines = [line for line in listed.stdout.splitlines() if line.strip()]
    assert len(lines) == 4, "header, rule, a line for the device, and its reason"
    assert all(len(line) <= 100 for line in lines[:3])
    for text in ("node-1", device.device_key, "draining", "272 GFLOP/s", "25.0 GB/s"):
        assert text in lines[2]
    assert lines[3] == f"node-1  draining: drained by a person: {reason}"
    narrow = run("device", "list", "--state", "draining", COLUMNS="80").stderr
    assert "this terminal is too narrow for: " in narrow
    shown = run("device", "show", "node-1").stdout
    assert device.id in shown
    assert device.device_model in shown


def test_the_sandbox_is_shown(run: Any, farm: Any) -> None:
    with farm.services.uow.read() as repos:
        device = repos.devices.find("node-1")
    heartbeat(farm.services, device.id, info={"agent": {"sandbox": "whole (required): Landlock 7"}})
    assert "sandbox:       whole (required): Landlock 7" in run("device", "show", "node-1").stdout
    assert "whole" in run("device", "list").stdout


def test_peaks_are_listed(run: Any, farm: Any) -> None:
    assert "FLOP/s" not in run("device", "list").output
    with farm.services.uow.read() as repos:
        device = repos.devices.find("node-1")
    noted_peak(farm.services, device, flops_per_sec=136e9, bytes_per_sec=12.5e9)
    listed = run("device", "list").output
    assert "272 GFLOP/s" in listed
    assert "25.0 GB/s" in listed
    node = next(
        device for device in json.loads(run("device", "list", "--json").stdout) if device["name"] == "node-1"
    )
    assert node["peak"]["flops_per_sec"]["float32"] == {"one_core": 136e9, "all_cores": 272e9}


@pytest.mark.matrix(every=3, each_value=False)
@pytest.mark.parametrize(
    ("agent", "shown"),
    [
        ({"temperature_celsius": 51.4}, "51 °C"),
        ({"temperature_celsius": 51.4, "gpus": [{"temperature_celsius": 77.0}]}, "77 °C"),
        ({"temperature_celsius": 51.4, "gpus": [{"load": 0.5}]}, None),
        ({"temperature_celsius": "hot", "gpus": 3}, None),
        ("nonsense", None),
    ],
)
def test_temperatures_are_listed(run: Any, farm: Any, agent: Any, shown: str | None) -> None:
    with farm.services.uow.read() as repos:
        device = repos.devices.find("node-1")
    heartbeat(farm.services, device.id, info={"agent": agent})
    listed = run("device", "list").output
    assert ("°C" in listed) == (shown is not None)
    assert shown is None or shown in listed


def test_a_token_is_all_of_standard_output(run: Any) -> None:
    token = run("device", "token", "--device-key", "lab", "--minutes", "1")
    assert token.stdout.startswith("tfk_")
    assert len(token.stdout.split()) == 1
    assert "valid for one device until" in token.stderr
    assert json.loads(run("device", "token", "--name", "x", "--json").stdout)["name"] == "x"
