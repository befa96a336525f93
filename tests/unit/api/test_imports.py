"""The API runs with the ``server`` extra alone: no numpy, no compiler."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from app_farm import Farm, make_farm
from repository import ROOT

from tunefarm_app.access.api_keys import create_api_key
from tunefarm_app.engines.scenario import Scenario
from tunefarm_app.settings import Settings
from tunefarm_app.storage.rows import engine_record
from tunefarm_db.repositories.jobs.job_tasks import NewJobTask
from tunefarm_db.states.job import JobState
from tunefarm_db.values import Job, Workload
from tunefarm_tuning.records.record import TuningRecord
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.target.toolchain import versions

OF_THE_ENGINE = {
    "apache_tvm",
    "apache_tvm_ffi",
    "numpy",
    "onnx",
    "onnxruntime",
    "psutil",
    "tvm",
    "tvm_ffi",
    "xgboost",
}
SOURCES = ("tuning", "db", "services", "workers")
REQUESTS = """
import importlib.util, json, sys
from starlette.testclient import TestClient
from tunefarm_api.app import create_app
from tunefarm_app.settings import Settings

assert not any(map(importlib.util.find_spec, ("numpy", "tvm", "onnx", "xgboost")))
settings, key, requests = map(json.loads, sys.argv[1:])
answers = []
with TestClient(create_app(Settings(**settings), reconcile=False), raise_server_exceptions=False) as client:
    client.headers["Authorization"] = f"Bearer {key}"
    for path, body in requests:
        answer = client.post(path, content=body, headers={"Content-Type": "application/jsonl"})
        answers.append([answer.status_code, answer.json()])
print(json.dumps(answers))
"""


def test_the_api_imports_nothing_heavy() -> None:
    code = (
        "import sys, tunefarm_api.__main__; "
        "print([m for m in ('numpy', 'tvm', 'onnx', 'onnxruntime', 'xgboost', 'psutil') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.fixture
def farm(settings: Settings) -> Iterator[Farm]:
    farm = make_farm(settings)
    yield farm
    farm.services.close()


@pytest.fixture
def tuned(farm: Farm) -> Job:
    farm.add_device()
    job = farm.submit(farm.ready_model(Scenario(tasks=1)), trials=8)
    farm.run_until_quiet()
    assert farm.job(job.id).state is JobState.SUCCEEDED
    return farm.job(job.id)


def run_server_only(program: str, *arguments: object, folder: Path) -> str:
    """Run a program as with the extra alone: without the engine's packages and their metadata; return its standard output.

    Args:
        program: Python.
        *arguments: Its `sys.argv[1:]`.
        folder: An empty folder, for links to the other packages.
    """
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        name = re.split(r"[-.]", entry.name)[0].lower()
        if name not in OF_THE_ENGINE and entry.suffix != ".pth":
            (folder / entry.name).symlink_to(entry)
    done = subprocess.run(
        [sys.executable, "-S", "-W", "ignore", "-c", program, *map(str, arguments)],
        env=os.environ
        | {"PYTHONPATH": os.pathsep.join([str(folder), *(str(ROOT / name) for name in SOURCES)])},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def ask(farm: Farm, folder: Path, *requests: tuple[str, str]) -> list[tuple[int, dict[str, Any]]]:
    """Send requests to the farm's API in a process that has the extra alone."""
    settings = farm.services.settings
    known = {
        "database_url": settings.database_url.get_secret_value(),
        "broker_url": settings.broker_url.get_secret_value(),
        "store_dir": str(settings.store_dir),
    }
    key = create_api_key(farm.services, name="test")[1]
    folder.mkdir()
    answers = run_server_only(REQUESTS, *map(json.dumps, (known, key, requests)), folder=folder)
    return [(status, answer) for status, answer in json.loads(answers.splitlines()[-1])]


@pytest.mark.exhaustive
@pytest.mark.usefixtures("tuned")
def test_records_of_a_tuned_kernel_are_imported_and_checked(farm: Farm, tmp_path: Path) -> None:
    with farm.services.uow.read() as repos:
        record = engine_record(repos.records.query(limit=1).items[0])
    good = replace(record, device_model="elsewhere")
    bad = replace(good, config=Config(7, good.config.decisions))
    (status, answer), (refused_status, refused) = ask(
        farm,
        tmp_path / "packages",
        ("/v1/records", _lines(good)),
        ("/v1/records", _lines(good, bad)),
    )
    assert (status, answer) == (200, {"imported": 1, "left_out": {}, "unchecked": 0})
    assert (refused_status, refused["code"], refused["line"]) == (422, "invalid-record", 2)
    assert "it is of sketch 7" in refused["detail"]


@pytest.mark.exhaustive
def test_a_job_runs_again_only_if_the_farms_compiler_is_known_to_be_another(
    farm: Farm, tuned: Job, tmp_path: Path
) -> None:
    """The process does not know which TVM the workers have: it takes that of the newest job's kernels."""
    again = (f"/v1/jobs/{tuned.id}/again?only_if_changed=true", "")
    assert _extracted_by(farm) == "replay-1", "another engine's: the version is unknown"
    (unknown,) = ask(farm, tmp_path / "unknown", again)
    assert (unknown[0], unknown[1]["id"]) == (200, tuned.id)

    present = versions()["apache-tvm"]
    for version, started in ((present, False), (f"{present}.post99", True)):
        newer = farm.submit(farm.model(tuned.model_id), trials=8)
        _extract(farm, newer, f"tvm-{version}")
        (answer,) = ask(farm, tmp_path / version, again)
        assert (answer[0], answer[1]["id"] == tuned.id) == ((201, False) if started else (200, True))


def _extract(farm: Farm, job: Job, toolchain: str) -> None:
    """Give a job a kernel, as a worker with this compiler would."""
    with farm.services.uow.write() as repos:
        workload = Workload(key="a" * 32, toolchain=toolchain, name="matmul", flops=1.0, args=[], ir="")
        repos.workloads.add_many([workload])
        repos.jobs.add_tasks(
            job.id, [NewJobTask(workload_key="a" * 32, toolchain=toolchain, weight=1, name="matmul")]
        )


def _extracted_by(farm: Farm) -> str | None:
    with farm.services.uow.read() as repos:
        return repos.jobs.newest_toolchain()


def _lines(*records: TuningRecord) -> str:
    return "".join(f"{record.to_json()}\n" for record in records)
