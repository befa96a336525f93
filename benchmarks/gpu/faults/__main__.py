"""Disturb a job on this machine's GPU, and prove that nothing is lost and no candidate blamed.

    python -m benchmarks.gpu.faults --torch-python /opt/torch/bin/python
    python -m benchmarks.gpu.faults --target host          # the same without a GPU: what needs PyTorch is left out

While an embedded farm tunes a small network, another program computes on the GPU, the process that measures is killed, the device's
agent is killed, and another program takes the GPU's memory. The job has to succeed; the device has to come back after each fault; and of
the candidates none may fail for another reason than itself. Exit codes as of `benchmarks.gpu.check`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from benchmarks.gpu.check import small_networks, tell
from benchmarks.gpu.farm_job import UP, GpuFarm
from benchmarks.gpu.machine import look
from benchmarks.gpu.proofs import NO_GPU, holds, prove
from benchmarks.models.networks.graph import write_network
from benchmarks.search.machine import ROOT

from tunefarm.client import Client
from tunefarm.client.errors import ClientError

_EXPECTED = {"ok", "instantiation-error", "build-error", "resource-error", "infrastructure-error"}
"""What a candidate brings about by itself, and what blames the device. A kernel may also run wrongly, but none of this network's does."""
_BACK_SEC = 120.0
_HOG_SEC = 15.0
_FIRST_SEC, _BETWEEN_SEC = 15.0, 10.0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", default="cuda")
    parser.add_argument("--seconds", type=float, default=150.0, help="of search (default: %(default)g)")
    parser.add_argument(
        "--torch-python", help="an interpreter that has PyTorch; without it, two faults fewer"
    )
    options = parser.parse_args(arguments)
    if options.target == "cuda" and not look().gpu:
        tell("no GPU here: nothing proved")
        return NO_GPU
    with tempfile.TemporaryDirectory(prefix="tunefarm-gpu-faults-") as folder:
        return prove(
            [
                (
                    "a job survives what disturbs it, and no candidate is blamed",
                    lambda: disturbed(Path(folder), options),
                )
            ],
            tell,
        )


def disturbed(folder: Path, options: argparse.Namespace) -> str:
    """Run a job and disturb it; return what the device went through.

    Raises:
        NotProvedError: If a fault changed nothing, the device did not come back, or a candidate was blamed.
    """
    network = write_network(small_networks()["encoder"], folder / "encoder.onnx")
    with GpuFarm(folder / "farm", tell, target=options.target) as farm:
        client = farm.client()
        with watching(client) as states:
            failures: list[str] = []
            faults = threading.Thread(target=_disturb, args=(client, options.torch_python, failures))
            faults.start()
            done = farm.tune(network, folder / "tuned", seconds=options.seconds)
            faults.join()
        outcomes = Counter(trial.outcome for trial in client.job(done["job"]).trials())
    holds(not failures, "; ".join(failures))
    blamed = {outcome: count for outcome, count in outcomes.items() if outcome not in _EXPECTED}
    holds(not blamed, f"candidates were blamed: {blamed}")
    return f"{dict(outcomes)}; the device was {', then '.join(states)}"


@contextmanager
def watching(client: Client) -> Iterator[list[str]]:
    """Note the device's states, each once, with its reason."""
    states: list[str] = []
    ended = threading.Event()

    def note() -> None:
        while not ended.wait(0.3):
            try:
                (device, *_) = client.devices.list()
            except ClientError:
                continue
            state = "up" if device.state in UP else f"{device.state} ({device.reason})"
            if not states or states[-1] != state:
                states.append(state)
                tell(f"the device is {state}")

    thread = threading.Thread(target=note)
    thread.start()
    try:
        yield states
    finally:
        ended.set()
        thread.join()


def _disturb(client: Client, torch_python: str | None, failures: list[str]) -> None:
    faults: list[tuple[str, Callable[[], None]]] = [
        ("the measuring process is killed", lambda: _kill("tunefarm_workers.device.hardened_server")),
        ("the agent is killed", lambda: _kill("tunefarm_workers.device")),
    ]
    if torch_python:
        faults = [
            ("another program computes", lambda: _run_hog(torch_python, "compute")),
            *faults,
            ("another program takes the memory", lambda: _run_hog(torch_python, "memory")),
        ]
    time.sleep(_FIRST_SEC)
    for what, act in faults:
        tell(what)
        try:
            act()
            _wait_until_up(client)
        except (ClientError, LookupError, TimeoutError, subprocess.SubprocessError) as error:
            failures.append(f"{what}: {error}")
        time.sleep(_BETWEEN_SEC)


def _run_hog(torch_python: str, what: str) -> None:
    command = [torch_python, "-m", "benchmarks.gpu.faults.hog", what, f"{_HOG_SEC:g}"]
    subprocess.run(command, cwd=ROOT, check=True, timeout=10 * _HOG_SEC, stdin=subprocess.DEVNULL)


def _kill(module: str) -> None:
    for process in psutil.Process().children(recursive=True):
        command = process.cmdline()
        if command[1:3] == ["-m", module]:
            process.kill()
            process.wait(_BACK_SEC)
            return
    raise LookupError(f"no process runs {module}")


def _wait_until_up(client: Client) -> None:
    until = time.monotonic() + _BACK_SEC
    while time.monotonic() < until:
        time.sleep(3.0)
        if any(device.state in UP for device in client.devices.list()):
            return
    raise TimeoutError(f"the device was not back after {_BACK_SEC:g} s")


if __name__ == "__main__":
    sys.exit(main())
