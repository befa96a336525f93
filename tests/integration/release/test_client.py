"""The previous release's client with a farm of this release."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

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


def test_the_old_client_drives_a_job(copies: Path, farm: ReplayServer, tmp_path: Path) -> None:
    model = farm.write_model(tmp_path / "net.onnx")
    done = subprocess.run(
        [sys.executable, "-c", CLIENT, farm.url, farm.api_key, str(model)],
        env={**os.environ, "PYTHONPATH": str(copies / "tunefarm.zip")},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, "all of it\n"), done.stderr
