"""``tunefarm doctor`` on a farm of separate parts, each of which is stopped in turn."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from device_processes import AgentProcess, Child
from farm_processes import Broker, Worker, free_port
from gateway_process import GatewayProcess
from private_postgres import PrivatePostgres
from waiting import wait_until

Row = dict[str, str]
Rows = dict[tuple[str, str], Row]
EXAMINE_EVERY_SEC = 1.0  # a command each time, which keeps the farm's processes from the cores


@dataclass
class Parts:
    """The farm, and the command run against it from one of its machines or from elsewhere."""

    postgres: PrivatePostgres
    broker: Broker
    gateway: GatewayProcess
    api: Child
    worker: Worker
    agent: AgentProcess
    settings: dict[str, str]
    client: dict[str, str]
    key: str

    def examine(self, *, from_a_part: bool = False) -> tuple[Rows, int]:
        """Run the doctor; return its rows and its exit code."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith("TUNEFARM_")}
        done = subprocess.run(
            [sys.executable, "-m", "tunefarm.cli.main", "doctor", "--json"],
            env={**clean, **self.client, **(self.settings if from_a_part else {})},
            capture_output=True,
            text=True,
            timeout=300,
        )
        try:
            checks = json.loads(done.stdout)["checks"]
        except ValueError:
            raise AssertionError(done.stdout + done.stderr) from None
        return {(row["where"], row["check"]): row for row in checks}, done.returncode

    def until(self, check: str, verdict: str, *words: str) -> Row:
        """Wait for the server to say so of one check."""
        seen: list[Any] = []

        def expected_row() -> Row | None:
            rows, _ = self.examine()
            seen[:] = [rows]
            row = rows.get(("server", check))
            fits = (
                row is not None
                and (row["verdict"] == verdict or (verdict == "ok" and _is_the_machines(row)))
                and all(word in row["message"] for word in words)
            )
            return row if fits else None

        return wait_until(
            expected_row, lambda: f"{check} to be {verdict}: {seen}", every_sec=EXAMINE_EVERY_SEC
        )

    def until_failed(self, *checks: str) -> Rows:
        """Wait until exactly these checks fail, here or at the server (none by default); return all rows."""
        seen: list[Rows] = []

        def as_expected() -> bool:
            rows, code = self.examine(from_a_part=True)
            seen[:] = [rows]
            verdicts = {row["verdict"] for row in rows.values() if not _is_the_machines(row)}
            failed = {check for (_, check), row in rows.items() if row["verdict"] == "failed"}
            return failed == set(checks) and code == bool(checks) and (bool(checks) or verdicts == {"ok"})

        # A busy machine's device can be late with a sign of life.
        wait_until(as_expected, lambda: f"{checks or 'nothing'} to fail: {seen}", every_sec=EXAMINE_EVERY_SEC)
        return seen[0]


def _is_the_machines(row: Row) -> bool:
    """Return whether all that is wrong is this machine's: other work slows it down, or root runs the tests without a user for sessions."""
    return row["verdict"] == "warning" and (
        "times slower than before" in row["message"] or row["check"] == "sessions"
    )


@pytest.fixture
def parts(start: Callable[..., Any], gateway: GatewayProcess, tmp_path: Path) -> Iterator[Parts]:
    postgres = PrivatePostgres()
    postgres.start()
    broker = Broker(tmp_path, free_port())
    broker.start()
    settings = {
        "TUNEFARM_DATABASE_URL": postgres.url,
        "TUNEFARM_BROKER_URL": broker.url,
        "TUNEFARM_STORE_DIR": str(tmp_path / "store"),
        "TUNEFARM_GATEWAY": f"127.0.0.1:{gateway.port}",
        "TUNEFARM_GATEWAY_DIR": str(gateway.folder),
        "TUNEFARM_DEVICE_STALE_SEC": "5",
        "TUNEFARM_LEASE_SEC": "10",
        "TUNEFARM_ENGINE": "tvm",
        # A machine that is busy with something else is no concern of this test's.
        "TUNEFARM_CALIBRATION_DRIFT": "1000",
    }
    key_file = tmp_path / "api-key"
    parts = None
    try:
        api = start(
            Child, ["-m", "tunefarm_api", "--port=0", "--migrate", f"--key-file={key_file}"], env=settings
        )
        url = wait_until(lambda: [event["url"] for event in api.events if "url" in event], "the API")[0]
        worker = Worker(settings, tmp_path / "worker.log", "--concurrency=1")
        worker.wait_until_ready()
        key = key_file.read_text().strip()
        agent = start(AgentProcess, url, tmp_path / "device", key=key)
        client = {"TUNEFARM_URL": url, "TUNEFARM_API_KEY_FILE": str(key_file)}
        parts = Parts(postgres, broker, gateway, api, worker, agent, settings, client, key)
        parts.until("devices", "ok")
        yield parts
    finally:
        if parts is not None:
            parts.worker.kill()
        broker.kill()
        postgres.close()


@pytest.mark.exhaustive
@pytest.mark.slow
def test_each_part_is_missed(parts: Parts, start: Callable[..., Any], tmp_path: Path) -> None:
    rows = parts.until_failed()
    places = {where for where, _ in rows}
    assert places == {"here", "server"}, "this machine, which has a worker's settings, and the API's"
    checks = {"database", "store", "broker", "gateway", "devices", "steps", "webhooks", "clock", "versions"}
    for where in places:
        assert checks <= {check for at, check in rows if at == where}

    parts.agent.end(signal.SIGKILL)
    offline = parts.until("devices", "failed", "offline", "no heartbeat")
    assert "device join" in offline["advice"]
    parts.worker.kill()
    start(AgentProcess, parts.client["TUNEFARM_URL"], tmp_path / "device", key=parts.key)
    checking = parts.until("devices", "failed", "checking")
    assert "tunefarm worker --queues tune" in checking["advice"]
    parts.worker = Worker(parts.settings, tmp_path / "worker.log", "--concurrency=1")
    parts.until("devices", "ok")

    parts.broker.kill()
    assert "TUNEFARM_BROKER_URL" in parts.until("broker", "failed")["advice"]
    parts.broker.start()
    parts.until("broker", "ok")

    parts.gateway.end()
    assert "TUNEFARM_GATEWAY" in parts.until("gateway", "failed")["advice"]
    assert "gateway" in parts.until("devices", "failed", "offline")["message"]
    start(GatewayProcess, parts.gateway.folder, parts.gateway.port)
    parts.until("devices", "ok")

    parts.postgres.signal(signal.SIGQUIT)
    rows = parts.until_failed("database", "devices", "steps", "webhooks", "clock", "api")
    assert "TUNEFARM_DATABASE_URL" in rows["here", "database"]["advice"]
    assert "database" in rows["here", "api"]["advice"]
    parts.postgres.start()
    parts.until("devices", "ok")

    parts.api.end(signal.SIGTERM)
    rows = parts.until_failed("api")
    assert "Start the API" in rows["here", "api"]["advice"]
