"""A page keeps up with 200 events a second, and does not grow."""

from __future__ import annotations

import os
import threading
import time

import pytest
from playwright.sync_api import Page, expect
from replay_server import ReplayServer
from waiting import wait_until

from tunefarm_app.engines.scenario import Scenario
from tunefarm_app.jobs.control import pause_job
from tunefarm_app.jobs.submit import JobRequest, submit_job
from tunefarm_app.models.submit import submit_model
from tunefarm_tuning.search.budget import Budget

RATE_PER_SEC = 200
"""What is aimed at; a busy machine writes fewer, and the page must keep up with what there is."""

SECONDS = 10.0 if os.environ.get("TUNEFARM_SOAK", "small") == "small" else 60.0
"""`make soak` goes on for a minute."""

WARM_SECONDS = 3.0
AT_ONCE = 10
MOST_GROWTH_BYTES = 5e6
MOST_NEW_NODES = 500
MOST_NEW_LISTENERS = 50


def write_events(server: ReplayServer, job_id: str, seconds: float) -> None:
    began = time.monotonic()
    with server.services.uow.read() as repos:
        first = repos.jobs.get(job_id).event_seq
    written = 0
    while (
        due := began + written / RATE_PER_SEC
    ) < began + seconds and time.monotonic() < began + 2 * seconds:
        time.sleep(max(due - time.monotonic(), 0))
        with server.services.uow.write() as repos:
            for number in range(first + written, first + written + AT_ONCE):
                data = {
                    "position": 0,
                    "task": "matmul_0",
                    "outcomes": {"ok": 8},
                    "trials": 8 * number,
                    "tuned_sec": number / 10,
                    "best_cost_sec": 1e-3,
                    "best_latency_sec": 1.0 / number,
                }
                repos.events.add(job_id, "round", data)
        written += AT_ONCE


def look_on(page: Page, server: ReplayServer, job_id: str, seconds: float) -> None:
    """Let events come while the page is open, until it shows the newest."""
    writing = threading.Thread(target=write_events, args=(server, job_id, seconds))
    writing.start()
    while writing.is_alive():
        page.wait_for_timeout(500)
    writing.join()
    with server.services.uow.read() as repos:
        newest = repos.jobs.get(job_id).event_seq
    expect(page.locator(".log .seq").first).to_have_text(str(newest))


def weigh(page: Page) -> dict[str, float]:
    """Return how many bytes live objects take, and how many nodes and listeners there are, garbage left out."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    session.send("HeapProfiler.collectGarbage")
    metrics = {
        metric["name"]: metric["value"] for metric in session.send("Performance.getMetrics")["metrics"]
    }
    session.detach()
    return {name: float(metrics[name]) for name in ("JSHeapUsedSize", "Nodes", "JSEventListeners")}


@pytest.mark.exhaustive
def test_a_page_keeps_up_and_keeps_its_size(seat, server: ReplayServer) -> None:
    services = server.services
    blob = services.blobs.put([Scenario().to_bytes()])
    model = submit_model(services, name="net", blob=blob, shapes={}).model

    def is_ready() -> bool:
        with services.uow.read() as repos:
            return repos.models.get(model.id).state == "ready"

    wait_until(is_ready, "the model is not ready")
    job = submit_job(services, JobRequest(model_id=model.id, budget=Budget(trials=10**6), tuner="random")).job
    pause_job(services, job.id)
    page = seat.sign_in()
    began = time.monotonic()
    page.goto(f"{server.url}/jobs/{job.id}")
    urls: list[str] = []
    page.on("request", lambda request: urls.append(request.url) if "curve.json" in request.url else None)
    look_on(page, server, job.id, WARM_SECONDS)
    before = weigh(page)
    look_on(page, server, job.id, SECONDS)
    after = weigh(page)
    # About one look a second, whatever happens in it.
    assert 2 <= len(urls) <= time.monotonic() - began + 20
    grown = {name: after[name] - before[name] for name in before}
    assert grown["JSHeapUsedSize"] < MOST_GROWTH_BYTES, (before, after)
    assert grown["Nodes"] < MOST_NEW_NODES, (before, after)
    assert grown["JSEventListeners"] < MOST_NEW_LISTENERS, (before, after)
