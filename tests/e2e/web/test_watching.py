from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from farm_processes import free_port
from playwright.sync_api import Browser, expect
from replay_server import ReplayServer, replay_server
from timing_engine import note_timing
from waiting import wait_until

from tunefarm_app.access.api_keys import verify_api_key
from tunefarm_app.access.browser_sessions import make_link, start_session
from tunefarm_app.engines.scenario import Scenario
from tunefarm_app.jobs.control import cancel_job, pause_job
from tunefarm_app.jobs.submit import JobRequest, submit_job
from tunefarm_app.models.submit import submit_model
from tunefarm_db.values import Job
from tunefarm_tuning.search.budget import Budget


def model_of(server: ReplayServer, name: str = "net.onnx", **scenario) -> str:
    services = server.services
    blob = services.blobs.put([Scenario(**scenario).to_bytes()])
    model = submit_model(services, name=name, blob=blob, shapes={}).model

    def is_ready() -> bool:
        with services.uow.read() as repos:
            return repos.models.get(model.id).state == "ready"

    wait_until(is_ready, "the model is not ready")
    return model.id


def start_job(server: ReplayServer, model_id: str, trials: int) -> Job:
    request = JobRequest(model_id=model_id, budget=Budget(trials=trials), tuner="random")
    return submit_job(server.services, request).job


def test_a_link_signs_in_and_signing_out_ends_it(seat, server: ReplayServer) -> None:
    link = make_link(server.services, verify_api_key(server.services, server.api_key))
    page = seat.open(f"/sign-in?link={link}")
    page.get_by_role("button", name="Continue").click()
    page.wait_for_url("**/jobs")
    expect(page.get_by_text("There are no jobs yet.")).to_be_visible()
    seat.nothing_serious(page)
    page.get_by_role("button", name="Sign out", exact=True).click()
    page.wait_for_url("**/sign-in")
    seat.nothing_serious(page)
    page.goto(server.url + "/jobs")
    expect(page.get_by_label("API key")).to_be_visible()


def test_jobs_are_watched_from_the_first_trial_to_the_artifact(seat, server: ReplayServer) -> None:
    page = seat.sign_in()
    expect(page.locator("#link")).to_have_attribute("data-state", "live")
    job = start_job(server, model_of(server, tasks=3, trial_sec=0.01, compile_sec=1.0), trials=100)
    # The list was open before there was a job: nobody reloads it.
    page.get_by_role("link", name="net.onnx").click()
    page.wait_for_url(f"**/jobs/{job.id}")
    expect(page.locator("#chart canvas")).to_be_visible()
    assert page.evaluate("document.styleSheets.length") >= 4
    expect(page.locator("#announce")).to_have_text("net.onnx has succeeded")
    expect(page.locator(".phases li").last).to_have_class("done")
    assert page.get_by_role("row").count() > 3
    with page.expect_download() as download:
        page.get_by_role("link", name=re.compile("Artifact")).click()
    assert download.value.suggested_filename == "net.tunefarm"
    page.get_by_label("trials", exact=True).check(force=True)
    expect(page.locator("#chart canvas")).to_be_visible()
    seat.nothing_serious(page)
    page.get_by_role("link", name="matmul_0").click()
    expect(page.locator("#scatter canvas")).to_be_visible()
    seat.nothing_serious(page)
    page.get_by_role("link", name="Its record").click()
    expect(page.get_by_role("heading", name="matmul_0")).to_be_visible()
    seat.nothing_serious(page)


@pytest.mark.exhaustive
def test_pause_resume_extend_and_cancel(seat, server: ReplayServer) -> None:
    page = seat.sign_in()
    job = start_job(server, model_of(server, trial_sec=0.02), trials=100_000)
    page.goto(f"{server.url}/jobs/{job.id}")
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("#state")).to_contain_text("paused")
    seat.nothing_serious(page)
    page.get_by_role("button", name="Resume").click()
    expect(page.locator("#state")).to_contain_text("tuning")
    page.locator("summary", has_text="Extend").click()
    # News of the job does not replace an open form that is being filled in.
    page.get_by_label("Add trials").fill("23")
    before = page.locator(".log .seq").first.inner_text()
    expect(page.locator(".log .seq").first).not_to_have_text(before)
    expect(page.get_by_label("Add trials")).to_have_value("23")
    page.locator(".fold[open]").get_by_role("button", name="Extend").click()
    expect(page.locator(".figures")).to_contain_text("100,023 trials")
    expect(page.locator("#link")).to_have_attribute("data-state", "live")  # its scripts are there
    page.locator("summary", has_text="Cancel").click()
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Cancel the job")).to_be_hidden()
    page.locator("summary", has_text="Cancel").click()
    page.get_by_role("button", name="Cancel the job").click()
    expect(page.locator("#state")).to_contain_text("cancelled")


@pytest.mark.exhaustive
def test_the_best_so_far(seat, server: ReplayServer) -> None:
    page = seat.sign_in()
    job = start_job(server, model_of(server, trial_sec=0.02), trials=100_000)
    page.goto(f"{server.url}/jobs/{job.id}")
    page.get_by_role("button", name="Artifact so far").click()
    expect(page.locator("#state")).to_contain_text("succeeded")
    expect(page.get_by_role("link", name="Artifact,")).to_be_visible()
    seat.nothing_serious(page)
    page.get_by_role("link", name=f"job …{job.id[-6:]}").click()
    expect(page.locator("#state")).to_contain_text("tuning")
    expect(page.locator("#so-far, #draft").get_by_role("link", name="download")).to_be_visible()
    seat.nothing_serious(page)
    page.locator("summary", has_text="Cancel").click()
    page.get_by_role("button", name="Stop the search and compile").click()
    expect(page.locator("#state")).to_contain_text("succeeded")


@pytest.mark.exhaustive
def test_seven_tabs_at_once(seat, server: ReplayServer) -> None:
    """A browser has six connections for a host at most; with a stream each, the seventh tab would never open."""
    seat.sign_in()
    tabs = [seat.open("/jobs") for _ in range(7)]
    for tab in tabs:
        expect(tab.locator("#link")).to_have_attribute("data-state", "live")
    job = start_job(server, model_of(server), trials=16)
    for tab in tabs:
        expect(tab.locator(f"#{job.id}")).to_contain_text("succeeded")


@pytest.mark.exhaustive
def test_the_api_is_restarted_while_one_looks(chromium: Browser, tmp_path: Path) -> None:
    context = chromium.new_context()
    port = free_port()
    with replay_server(tmp_path, port=port) as server:
        server.add_device()
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.goto(f"{server.url}/sign-in")
        page.get_by_label("API key").fill(server.api_key)
        page.get_by_role("button", name="Sign in").click()
        expect(page.locator("#link")).to_have_attribute("data-state", "live")
        model_id = model_of(server)
        paused = start_job(server, model_id, trials=16)
        pause_job(server.services, paused.id)
        looking = context.new_page()
        looking.set_default_timeout(60_000)
        looking.goto(f"{server.url}/jobs/{paused.id}")
        expect(looking.locator("#state")).to_contain_text("paused")
    expect(page.locator("#link")).to_have_attribute("data-state", "away")
    expect(looking.locator("#link")).to_have_attribute("data-state", "away")
    with replay_server(tmp_path, port=port) as server:
        job = start_job(server, model_id, trials=16)
        expect(page.locator("#link")).to_have_attribute("data-state", "live")
        expect(page.locator(f"#{job.id}")).to_contain_text("succeeded")
        # A page that was open all the time steers the job as before.
        looking.locator("summary", has_text="Extend").click()
        looking.get_by_label("Add trials").fill("8")
        looking.locator(".fold[open]").get_by_role("button", name="Extend").click()
        expect(looking.locator(".figures")).to_contain_text("24 trials")
        looking.get_by_role("button", name="Resume").click()
        expect(looking.locator("#state")).to_contain_text("succeeded")
        context.close()


@pytest.mark.parametrize("shared", [True, False], ids=["shared by the tabs", "of the tab alone"])
def test_a_refused_stream_is_opened_again(chromium: Browser, tmp_path: Path, shared: bool) -> None:
    """A browser without shared workers gave up at the first 429, until somebody reloaded the page."""
    context = chromium.new_context(viewport={"width": 360, "height": 740})
    if not shared:
        context.add_init_script("delete window.SharedWorker")
    with replay_server(tmp_path, max_requests=32) as server:
        port = server.url.rpartition(":")[2]
        cookies = {f"tunefarm_session_{port}": start_session(server.services, server.api_key)}
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.goto(f"{server.url}/sign-in")
        page.get_by_label("API key").fill(server.api_key)
        with ExitStack() as streams:
            for _ in range(8):  # a quarter of the requests, which is what a key may have
                stream = httpx.stream("GET", f"{server.url}/live", cookies=cookies, timeout=60)
                assert streams.enter_context(stream).status_code == 200
            page.get_by_role("button", name="Sign in").click()
            expect(page.locator("#link")).to_have_text("too many requests, trying again in 2 s")
            expect(page.locator("#link")).to_be_visible()
            expect(page.locator("#link")).to_have_attribute(
                "title", re.compile("this API key has 8 requests")
            )
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        expect(page.locator("#link")).to_have_attribute("data-state", "live")
        server.add_device()
        job = start_job(server, model_of(server), trials=16)
        expect(page.locator(f"#{job.id}")).to_be_visible()
        context.close()


@pytest.mark.parametrize(
    "seat",
    [
        {"viewport": {"width": 360, "height": 740}, "color_scheme": "dark"},
        pytest.param(
            {"viewport": {"width": 1600, "height": 900}, "color_scheme": "light"},
            marks=pytest.mark.exhaustive,
        ),
    ],
    indirect=True,
    ids=["narrow and dark", "wide and light"],
)
def test_every_page_fits_and_can_be_read_by_all(seat, server: ReplayServer) -> None:
    name = "a-model-with-a-name-that-is-far-too-long-for-a-telephone.onnx"
    model_id = model_of(server, name=name)
    job = start_job(server, model_id, trials=16)
    page = seat.sign_in()
    expect(page.locator(f"#{job.id}")).to_contain_text("succeeded")
    with server.services.uow.read() as repos:
        record = repos.records.best_page().items[0]
        (device,) = repos.devices.list().items
    for path in (
        "/jobs",
        f"/jobs/{job.id}",
        f"/jobs/{job.id}/tasks/0",
        "/models",
        f"/models/{model_id}",
        "/devices",
        "/records",
        f"/records/{record.id}",
        f"/devices/{device.id}",
        "/webhooks",
        "/keys",
        "/jobs?model=none",
    ):
        page.goto(server.url + path)
        seat.nothing_serious(page)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
    page.goto(server.url + "/jobs/job_none")
    expect(page.get_by_role("heading", name="Job not found")).to_be_visible()
    seat.nothing_serious(page)
    seat.complaints.clear()  # the browser's own line about the status 404


@pytest.mark.exhaustive
def test_the_network_is_seen_before_the_search_ends(seat, server: ReplayServer) -> None:
    """The network's own latency replaces the estimate in the figures, the list and the curve, without a reload."""
    page = seat.sign_in()
    job = start_job(server, model_of(server, trial_sec=0.05, tasks=2), trials=100_000)
    page.goto(f"{server.url}/jobs/{job.id}")
    expect(page.locator("#latency")).to_contain_text("an estimate: the sum of the kernels' best times")
    expect(page.locator("#curve-note")).to_contain_text(
        "The network itself is timed when the job compiles: no worker's machine can run code for this target"
    )
    expect(page.locator("#chart .u-legend").get_by_text("kernels' sum, an estimate")).to_be_visible()
    expect(page.locator("#chart .u-legend").get_by_text("network, measured")).to_be_hidden()
    points = ((12.5, 0, 9.0), (42.0, 1, 7.0))
    with server.services.uow.write() as repos:
        for number, (sec, covered, ms) in enumerate(points):
            note_timing(repos, job.id, number, tuned_sec=sec, covered=covered, latency_sec=ms * 1e-3)
    expect(page.locator("#latency dd").first).to_have_text("7 ms")
    expect(page.locator("#latency")).to_contain_text("measured after 42 s of search, 1 of 2 kernels tuned")
    expect(page.locator("#chart .u-legend").get_by_text("network, measured")).to_be_visible()
    expect(page.locator("#curve-note")).to_contain_text("The thin curve is an estimate")
    drawn = page.evaluate(
        "fetch(document.getElementById('chart').dataset.url).then((answer) => answer.json())"
    )
    assert [(p["sec"], p["ms"], p["low"]) for p in drawn["networks"]] == [
        (12.5, pytest.approx(9.0), pytest.approx(8.1)),
        (42.0, pytest.approx(7.0), pytest.approx(6.3)),
    ]
    page.get_by_label("trials", exact=True).check()
    for width in (1920, 390, 1280):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        expect(page.locator("#chart canvas")).to_be_visible()
        seat.nothing_serious(page)
    page.goto(f"{server.url}/jobs")
    row = page.locator("tr", has_text="net.onnx").first
    expect(row).to_contain_text("7 ms")
    expect(row).to_contain_text("measured")
    cancel_job(server.services, job.id)
