"""The real API on a free port, and a worker thread with the replay engine: no broker, no compiler."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import structlog
from app_farm import farm_settings
from migrated_database import upgrade
from served import served

from tunefarm_api.app import create_app
from tunefarm_app.access.api_keys import create_api_key
from tunefarm_app.devices.register import DeviceRegistration, register_device
from tunefarm_app.engines.replay import ReplayEngine
from tunefarm_app.engines.scenario import Scenario
from tunefarm_app.operations.reconcile import send_due
from tunefarm_app.runtime.composition import Services
from tunefarm_app.steps.run import run_steps
from tunefarm_db.values import StepKind
from tunefarm_tuning.process.listening import listen


class ThreadDispatcher:
    """A `Dispatcher` whose messages a thread works off."""

    def __init__(self) -> None:
        self.messages: SimpleQueue[str] = SimpleQueue()

    def send(self, step_id: str, kind: StepKind) -> bool:
        self.messages.put(step_id)
        return True

    def send_calibration(self, device_id: str, fence: int) -> bool:
        return False

    def queue_length(self, kind: StepKind) -> int | None:
        return self.messages.qsize()

    def ping(self) -> bool:
        return True

    def close(self) -> None:
        pass


@dataclass(frozen=True)
class ReplayServer:
    url: str
    api_key: str
    services: Services

    def write_model(self, path: Path, **scenario: Any) -> Path:
        """Write a file that this server takes for a network."""
        path.write_bytes(Scenario(**scenario).to_bytes())
        return path

    def new_key(self, *scopes: str) -> str:
        return create_api_key(self.services, name="test", scopes=scopes)[1]

    def add_device(self, name: str = "dev-1", device_key: str = "pool") -> None:
        register_device(
            self.services,
            DeviceRegistration(
                name=name,
                device_key=device_key,
                target={"kind": "llvm", "num-cores": 2},
                info={},
                device_model="replay-cpu",
                rpc_key=f"key-{name}",
            ),
        )


@contextmanager
def _logging_to(path: Path) -> Iterator[None]:
    """Send the server's log to a file, away from the output of the commands under test."""
    before = structlog.get_config()
    with path.open("w", encoding="utf-8") as file:
        structlog.configure(logger_factory=structlog.PrintLoggerFactory(file))
        try:
            yield
        finally:
            structlog.configure(**before)


_SETTINGS = {"device_retry_sec": 0.01, "drain_sec": 0.0, "max_drafts_bytes": 1 << 20}


@contextmanager
def replay_server(folder: Path, *, port: int = 0, **settings: Any) -> Iterator[ReplayServer]:
    """Run the server for the time of the block; on a free port where it is 0."""
    chosen = farm_settings(folder, **{**_SETTINGS, **settings})
    upgrade(chosen.database_url.get_secret_value())
    app = create_app(chosen, reconcile=False)
    with _logging_to(folder / "log"), listen("127.0.0.1", port) as listener, served(app, listener) as url:
        dispatcher = ThreadDispatcher()
        stop = threading.Event()
        # A job that a test leaves running is put down at the end, and not worked on for minutes.
        services = replace(
            app.state.services, dispatcher=dispatcher, engine=ReplayEngine(), draining=stop.is_set
        )
        app.state.services = services
        working = threading.Thread(target=_work, args=(services, dispatcher, stop))
        working.start()
        try:
            _key, text = create_api_key(services, name="first")
            yield ReplayServer(url=url, api_key=text, services=services)
        finally:
            stop.set()
            working.join()


def _work(services: Services, dispatcher: ThreadDispatcher, stop: threading.Event) -> None:
    while not stop.is_set():
        try:
            run_steps(dispatcher.messages.get(timeout=0.05), services)
        except Empty:
            send_due(services, resend_after_sec=3600)
