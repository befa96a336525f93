"""Jobs, models and devices named by parts of their ids and by names, against the real API."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tunefarm.client import Client


def parsed(run: Any, *arguments: object) -> Any:
    return json.loads(run(*arguments, "--json").stdout)


def test_parts_of_ids_and_names(run: Any, farm: Any, client: Client, tmp_path: Path) -> None:
    first = client.tune(farm.write_model(tmp_path / "net.onnx", tasks=1), trials=4)
    second = client.tune(farm.write_model(tmp_path / "other.onnx", tasks=2), trials=4)
    for job in (first, second):
        job.wait(poll_sec=0.05, timeout_sec=120)

    last = first.id[-6:]  # as pages write it
    for text in (first.id, f"…{last}", f"...{last}", last, first.id[:-1], first.id[4:-1], "net"):
        assert parsed(run, "jobs", "show", text)["id"] == first.id
    assert parsed(run, "jobs", "tasks", "other")[1]["position"] == 1
    assert parsed(run, "jobs", "report", "other")["job"]["id"] == second.id
    model_id = second.job.model_id
    for text in (model_id, f"…{model_id[-6:]}", "other"):
        assert parsed(run, "models", "show", text)["id"] == model_id
        assert [job["id"] for job in parsed(run, "jobs", "list", "--model", text)] == [second.id]
    (device,) = client.devices.list()
    for text in (device.name, device.id, f"…{device.id[-6:]}"):
        assert parsed(run, "devices", "show", text)["device"]["id"] == device.id
    assert "records" in run("records", "export", "--job", last, "-o", tmp_path / "records.jsonl").stdout
    assert client.jobs.get(last).id == client.job(f"…{last}").id == first.id
    assert client.devices.get(device.name).id == device.id


@pytest.mark.exhaustive
def test_what_means_nothing_or_too_much(run: Any, farm: Any, client: Client, tmp_path: Path) -> None:
    file = farm.write_model(tmp_path / "net.onnx", tasks=1)
    jobs = [client.tune(file, trials=4) for _ in range(2)]
    for job in jobs:
        job.wait(poll_sec=0.05, timeout_sec=120)
    refused = run("jobs", "cancel", "net", code=2).stderr
    assert "net can be one of 2 jobs: " in refused
    assert all(f"{job.id} (succeeded)" in refused for job in jobs)
    assert "give more of the id" in refused
    assert "can be one of 2 jobs" in run("jobs", "show", jobs[0].id[:9], code=2).stderr
    for text in ("", " "):
        assert "the name or id of a job is empty" in run("jobs", "show", text, code=2).stderr
    for text in ("job_none", "job_", "…", "NET"):
        assert f"there is no job {text}: `tunefarm jobs list`" in run("jobs", "show", text, code=3).stderr
    assert "`tunefarm models list`" in run("models", "show", "none", code=3).stderr
    assert "`tunefarm device list`" in run("device", "drain", "none", code=3).stderr
    assert "no such job" in run("jobs", "show", f"job_{'0' * 26}", code=3).stderr
