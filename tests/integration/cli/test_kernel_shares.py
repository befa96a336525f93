"""The command tells a kernel's share of the time as the job's page and report do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tunefarm.client import Client
from tunefarm_app.report.numbers import set_report
from tunefarm_tuning.core.latency import Latency


def test_shares_are_of_the_artifact(run: Any, farm: Any, client: Client, tmp_path: Path) -> None:
    job = client.tune(farm.write_model(tmp_path / "net.onnx", tasks=2), trials=16)
    job.wait()
    first, second = job.tasks()
    searched = [task.weight * (task.best_cost_sec or 0.0) for task in (first, second)]
    assert first.share == pytest.approx(searched[0] / sum(searched)), "nothing was timed in the artifact"
    missing = {
        "workload_key": second.workload_key, "name": second.name, "weight": 2,
        "reason": "slower-than-untuned", "message": "",
    }  # fmt: skip
    of_both = "from the search; untuned time and share were measured with the artifact"
    assert of_both not in run("jobs", "tasks", job.id).stdout, "nothing was"
    report = {
        "coverage": {
            "tasks": 2, "covered": 1, "hits": [{"workload_key": first.workload_key}], "misses": [missing],
        },
        "kernels": [
            {"workload_key": first.workload_key, "untuned_sec": [9e-6], "tuned_sec": [6e-6]},
            {"workload_key": second.workload_key, "untuned_sec": [1e-6], "tuned_sec": [8e-6]},
        ],
    }  # fmt: skip
    with farm.services.uow.write() as repos:
        set_report(repos, job.id, report)
        for task in repos.jobs.tasks(job.id):  # as the compile does
            repos.jobs.update_task(job.id, task.position, untuned_cost_sec=9e-6)
    assert [task.share for task in job.tasks()] == [pytest.approx(0.75), pytest.approx(0.25)]
    raw = json.loads(run("jobs", "tasks", job.id, "--json").stdout)
    assert [task["share"] for task in raw] == [pytest.approx(0.75), pytest.approx(0.25)]
    table = run("jobs", "tasks", job.id).stdout
    assert "75 %" in table
    assert "25 %" in table
    assert of_both in " ".join(table.split())
    assert "disturbed" not in table
    network = {"tuned": [2e-6] * 3, "untuned": [3e-6] * 3}  # as the first kernel took 9 µs alone
    timed = {name: Latency.of(secs, 2).to_json() for name, secs in network.items()}
    with farm.services.uow.write() as repos:
        set_report(repos, job.id, {**report, "latency": {"onnxruntime": None, **timed}})
    assert [task.disturbed for task in job.tasks()] == [True, False]
    assert run("jobs", "tasks", job.id).stdout.count("9 µs (disturbed)") == 1
