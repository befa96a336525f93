"""The API in its own process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

WAIT_SEC = 120.0


@dataclass(frozen=True)
class Api:
    """A running API process."""

    process: subprocess.Popen[str]
    url: str
    key: str
    folder: Path
    log: Path

    def client(self) -> httpx.Client:
        return httpx.Client(
            base_url=self.url, headers={"Authorization": f"Bearer {self.key}"}, timeout=60, trust_env=False
        )

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(WAIT_SEC)


@contextmanager
def running_api(
    folder: Path, *, port: int = 0, name: str = "api", arguments: Sequence[str] = (), **environment: str
) -> Iterator[Api]:
    """Run the API in `folder` for the time of the block; another one of another name may run there as well."""
    folder.mkdir(exist_ok=True)
    log = folder / f"{name}.log"
    variables = {
        "TUNEFARM_DATABASE_URL": f"sqlite:///{folder / 'tunefarm.db'}",
        "TUNEFARM_BROKER_URL": "redis://:broker-password@127.0.0.1:1/0",
        "TUNEFARM_STORE_DIR": str(folder / "store"),
        **environment,
    }
    command = [
        sys.executable,
        "-m",
        "tunefarm_api",
        "--port",
        str(port),
        "--migrate",
        "--key-file",
        str(folder / "key"),
        *arguments,
    ]
    with log.open("w") as errors:
        process = subprocess.Popen(
            command, env={**os.environ, **variables}, stdout=subprocess.PIPE, stderr=errors, text=True
        )
    try:
        assert process.stdout is not None
        first = process.stdout.readline()
        assert first, log.read_text()
        key = (folder / "key").read_text().strip()
        yield Api(process=process, url=json.loads(first)["url"], key=key, folder=folder, log=log)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(WAIT_SEC)
        assert process.stdout is not None
        process.stdout.close()
