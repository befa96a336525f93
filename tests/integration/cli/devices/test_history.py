"""``tunefarm device show``: a device and its history."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from noted_peak import noted_peak

from tunefarm.client import Client
from tunefarm_db.states.device import DeviceEvent


def test_a_device_and_its_history(run: Any, farm: Any, client: Client, tmp_path: Path) -> None:
    job = client.tune(farm.write_model(tmp_path / "net.onnx", tasks=1), trials=8)
    job.wait(poll_sec=0.05, timeout_sec=120)
    (device,) = client.devices.list()
    client.devices.drain(device.id, reason="a new fan")
    assert "FLOP/s" not in run("device", "show", device.name).stdout
    with farm.services.uow.write() as repos:
        repos.devices.apply(device.id, DeviceEvent.RELEASE)
        repos.devices.heartbeat(device.id)
        stored = repos.devices.apply(device.id, DeviceEvent.CLEAN)
    noted_peak(farm.services, stored, flops_per_sec=136e9, bytes_per_sec=12.5e9)
    client.devices.drain(device.id, reason="a new fan")
    text = run("device", "show", device.name).stdout
    for part in (
        f"{device.name}  draining: drained by a person: a new fan",
        device.id,
        "use, day:",
        "since it joined: jobs",
        "measuring",
        "8 trials in",
        "8 ok",
        job.id,
        "matmul_0",
        "it is starting",
        "136 GFLOP/s on one core, 272 GFLOP/s on 2",
        "12.5 GB/s on one core, 25.0 GB/s on 2",
    ):
        assert part in text, part
    shown = json.loads(run("device", "show", device.id, "--span", "hour", "--json").stdout)
    assert shown["device"]["id"] == device.id
    assert shown["totals"] == {**shown["totals"], "trials": 8, "outcomes": {"ok": 8}}
    assert len(shown["intervals"]) == 61
    assert sum(interval["work_sec"] for interval in shown["intervals"]) > 0.0
    assert shown["changes"][0]["state"] == "draining"
    assert {record["job_id"] for record in shown["records"]} == {job.id}


def test_no_such_device_and_no_such_span(run: Any, client: Client) -> None:
    (device,) = client.devices.list()
    assert "there is no device nobody" in run("device", "show", "nobody", code=3).stderr
    assert "span" in run("device", "show", device.name, "--span", "century", code=2).stderr
