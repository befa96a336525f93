"""Measure how much memory the API takes while a large model streams in.

    python benchmarks/upload_memory.py [--mib 1024] [--output benchmarks/results/upload_memory.md]

Starts a real API process on SQLite and a folder, makes the bytes on the fly, and sends them twice: with a length, and
chunked. The resident memory of the process is read from the system every 10 ms while the bytes go in; idle is what it
was after the first small requests. Nothing is on the disk twice: the process stores the file once.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil

CHUNK_BYTES = 1 << 20
AIM_MB = 30


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--output", type=Path, help="write the table here as well")
    options = parser.parse_args()
    rows = []
    worst = 0.0
    for way, has_length in (("Content-Length", True), ("chunked", False)):
        # A process and a folder for each, so that neither sees what the other left.
        with tempfile.TemporaryDirectory(prefix="tunefarm-bench-") as folder:
            idle, peak, seconds = measure(Path(folder), options.mib, has_length=has_length)
        worst = max(worst, peak - idle)
        rate = options.mib / seconds
        rows.append(
            f"| {way} | {idle:.1f} | {peak:.1f} | **{peak - idle:+.1f}** | {seconds:.1f} | {rate:.0f} |"
        )
    report = "\n".join(
        [
            "# Memory of the API during an upload",
            "",
            f"One upload of {options.mib} MiB. Aim: at most {AIM_MB} MB over idle.",
            "",
            "| upload | idle (MB) | peak (MB) | over idle (MB) | seconds | MiB/s |",
            "|---|---:|---:|---:|---:|---:|",
            *rows,
            "",
            f"Command: `python benchmarks/upload_memory.py --mib {options.mib}`  ",
            (
                f"{cpu_name()}, {len(os.sched_getaffinity(0))} cores; Python {platform.python_version()}, "
                f"on {time.strftime('%Y-%m-%d')}. MB are 10^6 bytes of resident memory."
            ),
            "",
        ]
    )
    print(report)
    if options.output:
        options.output.write_text(report)
    return 0 if worst <= AIM_MB else 1


def measure(folder: Path, mib: int, *, has_length: bool) -> tuple[float, float, float]:
    """Return idle MB, peak MB and seconds of one upload."""
    environment = {
        **os.environ,
        "TUNEFARM_DATABASE_URL": f"sqlite:///{folder / 'tunefarm.db'}",
        "TUNEFARM_BROKER_URL": "redis://127.0.0.1:1/0",
        "TUNEFARM_STORE_DIR": str(folder / "store"),
    }
    command = [
        sys.executable,
        "-m",
        "tunefarm_api",
        "--port",
        "0",
        "--migrate",
        "--key-file",
        str(folder / "key"),
    ]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]
        key = (folder / "key").read_text().strip()
        headers = {"Authorization": f"Bearer {key}"}
        with httpx.Client(base_url=url, headers=headers, timeout=600, trust_env=False) as client:
            for number in range(20):
                client.get("/v1/models").raise_for_status()
                client.post("/v1/models", content=b"\x08" * (number + 1)).raise_for_status()
            time.sleep(2)
            watch = Watch(process.pid)
            idle = watch.now_mb()
            expected = hashlib.sha256()
            sent = {"Content-Length": str(mib << 20)} if has_length else {}
            with watch:
                start = time.perf_counter()
                answer = client.post("/v1/models", content=made_up(mib, expected), headers=sent)
                seconds = time.perf_counter() - start
            answer.raise_for_status()
            assert answer.json()["sha256"] == expected.hexdigest()
            assert answer.json()["size_bytes"] == mib << 20
        return idle, watch.peak_mb, seconds
    finally:
        process.terminate()
        process.wait(60)


class Watch:
    """Reads a process's resident memory until it is left."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.peak_mb = 0.0

    def now_mb(self) -> float:
        return float(self._process.memory_info().rss) / 1e6

    def _run(self) -> None:
        while not self._stop.wait(0.01):
            self.peak_mb = max(self.peak_mb, self.now_mb())

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def made_up(mib: int, digest: hashlib._Hash) -> Iterator[bytes]:
    """Yield `mib` chunks that differ, the first beginning as an ONNX file does."""
    block = bytearray(b"\x08" + os.urandom(CHUNK_BYTES - 1))
    for number in range(mib):
        block[8:16] = number.to_bytes(8, "big")
        chunk = bytes(block)
        digest.update(chunk)
        yield chunk


def cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


if __name__ == "__main__":
    sys.exit(main())
