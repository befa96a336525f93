"""How a command ends that something else ends: Ctrl-C, SIGTERM, a closed terminal, a closed pipe."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from waiting import wait_until

from tunefarm.client import Client

PATIENCE_SEC = 120.0


@pytest.mark.matrix(every=2, each_value=False)
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_cancels_the_job(farm: Any, tmp_path: Path, number: int, code: int) -> None:
    model_file = farm.write_model(tmp_path / "net.onnx", trial_sec=0.05)
    env = {**os.environ, "TUNEFARM_URL": farm.url, "TUNEFARM_API_KEY": farm.api_key}
    process = subprocess.Popen(
        [sys.executable, "-m", "tunefarm", "tune", str(model_file), "--minutes", "10"],
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    )
    try:
        with Client(farm.url, farm.api_key) as client:
            wait_until(lambda: [j for j in client.jobs.all() if j.trials > 0], "a job that searches")
            process.send_signal(number)
            out, err = process.communicate(timeout=PATIENCE_SEC)
            assert process.returncode == code, err
            assert [j.state for j in client.jobs.all()] == ["cancelled"]
    finally:
        process.kill()
        process.communicate()
    assert out == ""
    assert "Traceback" not in err
    assert "cancelling job" in err


def test_a_closed_terminal_cancels_the_job(farm: Any, tmp_path: Path) -> None:
    """What it says then has no terminal to be written to."""
    model_file = farm.write_model(tmp_path / "net.onnx", trial_sec=0.05)
    env = {**os.environ, "TUNEFARM_URL": farm.url, "TUNEFARM_API_KEY": farm.api_key, "TERM": "xterm"}
    terminal, device = os.openpty()
    os.set_blocking(terminal, False)
    arguments = [sys.executable, "-m", "tunefarm", "tune", str(model_file), "--minutes", "10"]
    # The kernel sends SIGHUP to the session whose terminal it is.
    begin = (
        "import fcntl, os, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
        f"os.execv({sys.executable!r}, {arguments!r})"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", begin],
        env=env,
        stdin=device,
        stdout=device,
        stderr=device,
        cwd=tmp_path,
        start_new_session=True,
    )
    os.close(device)
    with Client(farm.url, farm.api_key) as client:

        def searches() -> bool:
            with suppress(BlockingIOError):  # nobody reads what it writes: a full terminal would hold it
                while os.read(terminal, 1 << 16):
                    pass
            return any(job.trials > 0 for job in client.jobs.all())

        try:
            wait_until(searches, "a job that searches")
            os.close(terminal)
            assert process.wait(PATIENCE_SEC) == 129
            assert [job.state for job in client.jobs.all()] == ["cancelled"]
        finally:
            process.kill()
            process.wait()


def test_a_closed_pipe_is_no_error(farm: Any, tmp_path: Path) -> None:
    env = {**os.environ, "TUNEFARM_URL": farm.url, "TUNEFARM_API_KEY": farm.api_key}
    command = f"exec {sys.executable} -m tunefarm models list --json"
    process = subprocess.Popen(
        ["/bin/sh", "-c", command], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    err = process.stderr.read()
    process.stderr.close()
    assert process.wait(PATIENCE_SEC) == 0
    assert err == b""
