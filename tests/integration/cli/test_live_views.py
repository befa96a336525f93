"""Live output in a terminal and in a pipe: `tunefarm jobs watch` and `tunefarm top`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from farm_processes import free_port
from replay_server import replay_server
from terminal import terminal
from waiting import wait_until

LEAVE_SCREEN = "\x1b[?1049l"


@pytest.fixture
def env(farm: Any) -> dict[str, str]:
    return {"TUNEFARM_URL": farm.url, "TUNEFARM_API_KEY": farm.api_key}


@pytest.fixture
def job(farm: Any, client: Any, tmp_path: Path) -> Iterator[Any]:
    """A job that goes on until it is told to end."""
    file = farm.write_model(tmp_path / "lenet.onnx", tasks=2, trial_sec=0.05)
    job = client.tune(file, seconds=3600, options={"round_size": 4})
    wait_until(lambda: job.refresh().trials >= 4, "the first round")
    yield job
    job.cancel()


@pytest.fixture
def exits() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def piped(env: dict[str, str], *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "tunefarm", *arguments],
        env={**os.environ, **env}, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    assert "\x1b" not in done.stderr
    return done.stdout


def test_a_job_is_watched_left_and_watched_again(env: dict[str, str], job: Any) -> None:
    with terminal(["-m", "tunefarm", "jobs", "watch", job.id], env) as first:
        first.wait_for("of 2 kernels")
        first.interrupt()
        assert first.end() == 130
    assert "━" in first.text
    assert job.refresh().state == "tuning", "leaving is no cancelling"

    with terminal(["-m", "tunefarm", "jobs", "watch", job.id], env) as again:
        again.wait_for("of 2 kernels")
        job.change(trials=job.refresh().trials + 8)
        assert again.end() == 0
    assert "verify" in again.text
    assert f"{job.id}  succeeded" in again.text


def test_an_interrupted_tune_hands_back_the_best_so_far(
    env: dict[str, str], farm: Any, client: Any, tmp_path: Path
) -> None:
    file = farm.write_model(tmp_path / "lenet.onnx", tasks=2, trial_sec=0.05)
    with terminal(["-m", "tunefarm", "tune", file, "--minutes", "60", "-o", tmp_path / "out"], env) as tune:
        tune.wait_for("of 2 kernels")
        tune.interrupt()
        tune.wait_for("[f]inish")
        tune.type("f")
        assert tune.end() == 0
    assert "lenet.tunefarm" in tune.text
    assert (tmp_path / "out" / "lenet.tunefarm").is_file()
    (job,) = client.jobs.all()
    assert (job.state, job.stop_reason) == ("succeeded", "finished")


@pytest.mark.exhaustive
def test_top_in_a_terminal(env: dict[str, str], job: Any) -> None:
    with terminal(["-m", "tunefarm", "top", "--every", "0.2"], env) as top:
        top.wait_for(job.id)
        top.wait_for("1 at work, 0 waiting, 0 paused")
        job.pause()
        top.wait_for("0 at work, 0 waiting, 1 paused")
        job.resume()
        top.wait_for(f"leased   {job.id} lenet")  # beside the device
        top.interrupt()
        assert top.end() == 0
    assert LEAVE_SCREEN in top.raw


@pytest.mark.exhaustive
def test_top_goes_on_after_the_server_was_away(tmp_path: Path, exits: ExitStack) -> None:
    (tmp_path / "farm").mkdir()
    port = free_port()
    with replay_server(tmp_path / "farm", port=port) as farm:
        farm.add_device()
        env = {"TUNEFARM_URL": farm.url, "TUNEFARM_API_KEY": farm.new_key("read")}
        top = exits.enter_context(terminal(["-m", "tunefarm", "top", "--every", "0.2"], env))
        top.wait_for("dev-1")
    top.wait_for("trying again")
    with replay_server(tmp_path / "farm", port=port) as farm:
        farm.add_device("dev-2")
        top.wait_for("dev-2")
        top.interrupt()
        assert top.end() == 0


@pytest.mark.exhaustive
def test_top_in_a_pipe(env: dict[str, str], client: Any, job: Any) -> None:
    shown = piped(env, "top")
    assert job.id in shown
    assert "dev-1" in shown
    assert "trials per minute" in shown

    wait_until(lambda: client.devices.list()[0].job_id == job.id, "the device at work")
    snapshot = json.loads(piped(env, "top", "--json"))
    (line,) = snapshot["jobs"]
    assert (line["id"], line["model"], line["state"]) == (job.id, "lenet", "tuning")
    assert line["trials"] >= 4
    assert line["trials_per_min"] > 0
    assert 0 < line["progress"] < 1
    (device,) = snapshot["devices"]
    assert (device["name"], device["device_key"]) == ("dev-1", "pool")
    assert snapshot["queue"] == {"at_work": 1, "waiting": 0, "paused": 0} or line["waiting"]
    assert snapshot["url"] == env["TUNEFARM_URL"]


@pytest.mark.exhaustive
def test_an_empty_farm(env: dict[str, str]) -> None:
    snapshot = json.loads(piped(env, "top", "--json"))
    assert (snapshot["jobs"], snapshot["ended"], snapshot["trials_per_min"]) == ([], [], 0.0)
    assert "0 at work" in piped(env, "top", "--once")
