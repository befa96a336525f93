"""The stream of changes for pages, read from a real server as a browser reads it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import Queue

import httpx
import pytest
from replay_server import ReplayServer, replay_server
from waiting import wait_until

from tunefarm_app.access.browser_sessions import end_session, start_session
from tunefarm_app.engines.scenario import Scenario
from tunefarm_app.jobs.submit import JobRequest, submit_job
from tunefarm_app.models.submit import submit_model
from tunefarm_db.states.device import DeviceEvent
from tunefarm_tuning.search.budget import Budget

PATIENCE_SEC = 120


class Listener:
    """A stream in a thread; `events` holds ``(event, data)``, and ``("end", {})`` at last."""

    def __init__(self, server: ReplayServer, session: str) -> None:
        self.events: Queue[tuple[str, dict[str, int]]] = Queue()
        port = server.url.rpartition(":")[2]
        self._cookies = {f"tunefarm_session_{port}": session}
        self._url = server.url + "/live"
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self) -> None:
        try:
            with httpx.stream("GET", self._url, cookies=self._cookies, timeout=PATIENCE_SEC) as answer:
                event = ""
                for line in answer.iter_lines():
                    if line.startswith("event: "):
                        event = line.removeprefix("event: ")
                    elif line.startswith("data: "):
                        self.events.put((event, json.loads(line.removeprefix("data: "))))
        except httpx.HTTPError:
            pass
        self.events.put(("end", {}))

    def wait_for(self, kind: str, topic: str = "") -> dict[str, int]:
        while True:
            event, data = self.events.get(timeout=PATIENCE_SEC)
            if event == kind and (not topic or topic in data):
                return data
            assert event != "end" or kind == "end"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ReplayServer]:
    monkeypatch.setattr("tunefarm_api.web.live.KEEP_ALIVE_SEC", 0.2)
    with replay_server(tmp_path, step_turn_sec=0.0, step_chain_sec=0.0) as server:
        server.add_device()
        yield server


def test_jobs_models_and_devices_are_told(server: ReplayServer) -> None:
    services = server.services
    listener = Listener(server, start_session(services, server.api_key))
    listener.wait_for("hello")
    model = submit_model(
        services, name="net", blob=services.blobs.put([Scenario(trial_sec=0.01).to_bytes()]), shapes={}
    ).model
    listener.wait_for("changed", f"model:{model.id}")

    def is_ready() -> bool:
        with services.uow.read() as repos:
            return repos.models.get(model.id).state == "ready"

    wait_until(is_ready, "the model is not ready")
    request = JobRequest(model_id=model.id, budget=Budget(trials=64), tuner="random")
    job = submit_job(services, request).job
    seen = 0

    def is_done() -> bool:
        with services.uow.read() as repos:
            return repos.jobs.get(job.id).state.is_finished

    wait_until(is_done, "the job does not end")
    with services.uow.read() as repos:
        newest = repos.jobs.get(job.id).event_seq
    while seen < newest:
        seen = listener.wait_for("changed", f"job:{job.id}")[f"job:{job.id}"]
    assert seen == newest
    with services.uow.write() as repos:
        (device,) = repos.devices.list().items
        repos.devices.apply(device.id, DeviceEvent.REMOVE)
    listener.wait_for("changed", f"device:{device.id}")


def test_a_stream_ends_with_its_session(server: ReplayServer) -> None:
    session = start_session(server.services, server.api_key)
    listener = Listener(server, session)
    listener.wait_for("hello")
    end_session(server.services, session)
    listener.wait_for("end")
    listener.thread.join(PATIENCE_SEC)


def test_streams_end_with_the_server(tmp_path: Path) -> None:
    with replay_server(tmp_path) as server:
        listeners = [Listener(server, start_session(server.services, server.api_key)) for _ in range(3)]
        for listener in listeners:
            listener.wait_for("hello")
    for listener in listeners:
        listener.wait_for("end")


def test_strangers_hear_nothing(server: ReplayServer) -> None:
    assert httpx.get(server.url + "/live", timeout=60).status_code == 401
