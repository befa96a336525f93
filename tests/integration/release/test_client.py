"""The previous release's client with a farm of this release."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from replay_fixtures import farm
from replay_server import ReplayServer

__all__ = ["farm"]

# Runs with the old package alone on its path, before this checkout's.
CLIENT = """
import sys
from pathlib import Path
import tunefarm.client
from tunefarm.client import Client, NotFoundError

assert ".zip" in tunefarm.client.__file__, tunefarm.client.__file__
url, key, file = sys.argv[1:]
with Client(url, key) as client:
    seen = []
    handle = client.tune(file, device_key="pool", trials=16, tuner="random", seed=3)
    job = handle.wait(lambda job: seen.append(job.state))
    assert (job.state, job.trials, seen[-1]) == ("succeeded", 16, "succeeded"), (job, seen)
    assert len(list(client.jobs.trials(job.id))) == 16
    assert [task.position for task in handle.tasks()] == [0, 1]
    kinds = [event.kind for event in handle.events()]
    assert kinds[0] == "queued" and kinds[-1] == "finished", kinds
    assert handle.report()["simulated"] is True
    got = handle.download(Path(file).parent / "out")
    assert got.artifact.stat().st_size > 0
    assert len(handle.save_records(Path(file).parent / "records").read_text().splitlines()) >= 16
    assert [device.name for device in client.devices.list()] == ["dev-1"]
    assert client.models.get(job.model_id).state == "ready"
    assert client.records.list(limit=5).items
    assert client.checks() is not None
    waiting = client.jobs.create(job.model_id, device_key="pool", trials=10_000, tuner="random")
    assert client.jobs.pause(waiting.id).state == "paused"
    assert client.jobs.cancel(waiting.id).state == "cancelled"
    try:
        client.jobs.get("job_none")
    except NotFoundError as error:
        assert error.code == "job-not-found", error.code
    else:
        raise AssertionError
print("all of it")
"""


# The same with `AsyncClient`.
ASYNC_CLIENT = """
import asyncio
import sys
from pathlib import Path
import tunefarm.client
from tunefarm.client import AsyncClient, NotFoundError

assert ".zip" in tunefarm.client.__file__, tunefarm.client.__file__
url, key, file = sys.argv[1:]


async def drive():
    async with AsyncClient(url, key) as client:
        handle = await client.tune(file, device_key="pool", trials=16, tuner="random", seed=3)
        job = await handle.wait()
        assert (job.state, job.trials) == ("succeeded", 16), job
        assert len([trial async for trial in client.jobs.trials(job.id)]) == 16
        assert [task.position for task in await handle.tasks()] == [0, 1]
        assert (await handle.report())["simulated"] is True
        assert (await handle.download(Path(file).parent / "out")).artifact.stat().st_size > 0
        devices, models = await asyncio.gather(client.devices.list(), client.models.list())
        assert ([device.name for device in devices], len(models.items)) == (["dev-1"], 1)
        try:
            await client.jobs.get("job_none")
        except NotFoundError as error:
            assert error.code == "job-not-found", error.code
        else:
            raise AssertionError


asyncio.run(drive())
print("all of it")
"""


def run_old(copies: Path, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python on the old package."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(copies / "tunefarm.zip"), **environment},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("program", [CLIENT, ASYNC_CLIENT], ids=["blocking", "async"])
def test_the_old_client_drives_a_job(copies: Path, farm: ReplayServer, tmp_path: Path, program: str) -> None:
    model = farm.write_model(tmp_path / "net.onnx")
    done = run_old(copies, "-c", program, farm.url, farm.api_key, model)
    assert (done.returncode, done.stdout) == (0, "all of it\n"), done.stderr


@pytest.mark.exhaustive
def test_the_old_command_drives_a_job(copies: Path, farm: ReplayServer, tmp_path: Path) -> None:
    def run(*arguments: object, code: int = 0) -> str:
        """Run a command; return what it prints, or its error."""
        farm_of_it = {"TUNEFARM_URL": farm.url, "TUNEFARM_API_KEY": farm.api_key}
        done = run_old(copies, "-m", "tunefarm", *arguments, **farm_of_it)
        assert done.returncode == code, (arguments, done.stderr)
        return done.stderr if code else done.stdout

    model = farm.write_model(tmp_path / "net.onnx")
    options = ("--device-key", "pool", "--trials", "16", "--tuner", "random", "--output", tmp_path / "out")
    job = json.loads(run("tune", model, *options, "--json"))["job"]
    assert (job["state"], job["trials"]) == ("succeeded", 16)
    names = {"net.tunefarm", "net.report.json", "net.report.html"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == names
    assert json.loads(run("jobs", "show", job["id"], "--json"))["state"] == "succeeded"
    assert "matmul_0" in run("jobs", "tasks", job["id"])
    assert run("jobs", "trials", job["id"], "--json").count('"outcome"') == 16
    assert job["id"] in run("jobs", "list")
    assert job["model_id"] in run("models", "list")
    assert "dev-1" in run("device", "list")
    assert "replay-cpu" in run("records", "best")
    assert "dev-1" in run("top", "--json")
    assert "no such job" in run("jobs", "show", "job_none", code=3)
