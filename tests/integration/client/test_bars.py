"""`wait` draws bars in a terminal and in a notebook, and nowhere else."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from terminal import terminal

from tunefarm.client import Client

BLOCKING = """
import sys, tunefarm
with tunefarm.Client() as client:
    print(client.tune(sys.argv[1], trials=24).wait(poll_sec=0.1).state)
"""
AWAITED = """
import asyncio, sys, tunefarm
async def main():
    async with tunefarm.AsyncClient() as client:
        job = await client.tune(sys.argv[1], trials=24)
        print((await job.wait(poll_sec=0.1)).state)
asyncio.run(main())
"""


@pytest.fixture
def env(farm: Any) -> dict[str, str]:
    return {"TUNEFARM_URL": farm.url, "TUNEFARM_API_KEY": farm.api_key}


@pytest.fixture
def file(farm: Any, tmp_path: Path) -> Path:
    path: Path = farm.write_model(tmp_path / "net.onnx", tasks=2, trial_sec=0.02)
    return path


@pytest.mark.matrix(every=2, each_value=False)
@pytest.mark.parametrize("program", [BLOCKING, AWAITED])
def test_in_a_terminal(env: dict[str, str], file: Path, program: str) -> None:
    with terminal(["-c", program, file], env) as screen:
        assert screen.end() == 0
    assert "━" in screen.text
    assert "2 of 2 kernels" in screen.text
    assert "verify" in screen.text
    assert "upload" in screen.text
    assert "import" in screen.text
    assert "job_" not in screen.text, "there is nothing to tell it from"
    assert screen.text.rstrip().endswith("succeeded")


TOGETHER = """
import asyncio, sys, tunefarm
async def main():
    async with tunefarm.AsyncClient() as client:
        jobs = [await client.tune(file, trials=24, progress_bar=False) for file in sys.argv[1:]]
        print([job.state for job in await asyncio.gather(*[job.wait(poll_sec=0.1) for job in jobs])])
asyncio.run(main())
"""


def test_bars_of_two_jobs_are_one_below_the_other(
    farm: Any, env: dict[str, str], file: Path, tmp_path: Path
) -> None:
    other = farm.write_model(tmp_path / "other.onnx", tasks=3, trial_sec=0.02)
    with terminal(["-c", TOGETHER, file, other], env) as screen:
        assert screen.end() == 0
    assert screen.text.rstrip().endswith("['succeeded', 'succeeded']")
    assert len(set(re.findall(r"job (job_\w+)", screen.text))) == 2
    assert "of 2 kernels" in screen.text
    assert "of 3 kernels" in screen.text
    hidden = "\x1b[?25l"  # the cursor, by whoever begins to draw
    assert screen.raw.count(hidden) == 1


@pytest.mark.matrix(every=2, each_value=False)
@pytest.mark.parametrize("choice", ["lambda *bytes: None", "False"])
def test_an_upload_whose_bars_are_not_wanted(env: dict[str, str], file: Path, choice: str) -> None:
    option = "progress_bar" if choice == "False" else "on_upload"
    program = BLOCKING.replace("trials=24", f"trials=24, {option}={choice}").replace(
        ".wait(poll_sec=0.1)", ".job"
    )
    with terminal(["-c", program, file], env) as screen:
        assert screen.end() == 0
    assert "━" not in screen.text


@pytest.mark.matrix(every=2, each_value=False)
@pytest.mark.parametrize("program", [BLOCKING, AWAITED])
def test_ctrl_c_ends_the_waiting_alone(farm: Any, env: dict[str, str], file: Path, program: str) -> None:
    with terminal(["-c", program.replace("trials=24", "minutes=60"), file], env) as screen:
        screen.wait_for("of 2 kernels")
        screen.interrupt()
        assert screen.end() == -signal.SIGINT
    with Client(farm.url, farm.api_key) as client:
        job = client.job(client.jobs.list()[0].id)
        assert not job.job.is_finished
        if program == BLOCKING:
            assert f"{job.id} continues" in screen.text
        job.cancel()


@pytest.mark.matrix(every=3, each_value=False)
@pytest.mark.parametrize(
    "program",
    [BLOCKING, AWAITED, BLOCKING.replace("poll_sec=0.1", "lambda job: None, poll_sec=0.1")],
)
def test_in_a_pipe(env: dict[str, str], file: Path, program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", program, str(file)],
        env={**os.environ, **env}, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "succeeded\n", "")


@pytest.mark.matrix(every=2, each_value=False)
@pytest.mark.parametrize("choice", ["lambda job: None", "progress_bar=False"])
def test_whoever_wants_none_gets_none(env: dict[str, str], file: Path, choice: str) -> None:
    program = BLOCKING.replace("trials=24", "trials=24, progress_bar=False")
    with terminal(["-c", program.replace("poll_sec=0.1", f"{choice}, poll_sec=0.1"), file], env) as screen:
        assert screen.end() == 0
    assert screen.text.strip() == "succeeded"
