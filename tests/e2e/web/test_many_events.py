from __future__ import annotations

import threading
import time

from playwright.sync_api import expect
from replay_server import ReplayServer
from waiting import wait_until

from tunefarm_app.device_orders import order_device
from tunefarm_app.replay_engine import Scenario
from tunefarm_app.submit_job import JobRequest, submit_job
from tunefarm_app.submit_model import submit_model
from tunefarm_db.device_state import DeviceEvent
from tunefarm_tuning.budget import Budget

RATE_PER_SEC = 200
"""What is aimed at; a busy machine writes fewer, and the page must keep up with what there is."""

EVENTS = 4000
MOST_GROWTH = 25e6


def write_events(server: ReplayServer, job_id: str) -> None:
    began = time.monotonic()
    for number in range(EVENTS):
        data = {
            "position": 0,
            "task": "matmul_0",
            "outcomes": {"ok": 8},
            "trials": 8 * number,
            "tuned_sec": number / 10,
            "best_cost_sec": 1e-3,
            "best_latency_sec": 1.0 / (1 + number),
        }
        with server.services.uow.write() as repos:
            repos.events.add(job_id, "round", data)
        time.sleep(max(began + number / RATE_PER_SEC - time.monotonic(), 0))


def heap(page) -> float:
    """Return the bytes of live objects, garbage left out."""
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    return float(session.send("Runtime.getHeapUsage")["usedSize"])


def test_a_page_keeps_up_and_keeps_its_size(seat, server: ReplayServer) -> None:
    services = server.services
    blob = services.blobs.put([Scenario().to_bytes()])
    model = submit_model(services, name="net", blob=blob, shapes={}).model

    def is_ready() -> bool:
        with services.uow.read() as repos:
            return repos.models.get(model.id).state == "ready"

    wait_until(is_ready, "the model is not ready")
    # It stays queued, for nobody has such a device.
    server.add_device("other", "away")
    request = JobRequest(model_id=model.id, budget=Budget(trials=10**6), device_key="away", tuner="random")
    with services.uow.read() as repos:
        (device,) = [one for one in repos.devices.list().items if one.name == "other"]
    job = submit_job(services, request).job
    order_device(services, device.id, DeviceEvent.QUARANTINE)
    page = seat.sign_in()
    page.goto(f"{server.url}/jobs/{job.id}")
    asked: list[str] = []
    page.on("request", lambda one: asked.append(one.url) if "curve.json" in one.url else None)
    before = heap(page)
    writing = threading.Thread(target=write_events, args=(server, job.id))
    began = time.monotonic()
    writing.start()
    while writing.is_alive():
        page.wait_for_timeout(500)
    writing.join()
    took = time.monotonic() - began
    with services.uow.read() as repos:
        newest = repos.jobs.get(job.id).event_seq
    expect(page.locator(".log .seq").first).to_have_text(str(newest), timeout=60_000)
    # About one look a second, whatever happens in it.
    assert 2 <= len(asked) <= took + 10
    assert heap(page) - before < MOST_GROWTH
