"""The buttons of a job's page."""

from __future__ import annotations

import pytest
from html_page import Page
from page_browser import Browser
from sqlalchemy import text
from timing_engine import measured, timed

from tunefarm_app.engines.replay import ReplayEngine
from tunefarm_app.engines.scenario import Scenario
from tunefarm_app.jobs.change import JobChange, change_job
from tunefarm_app.jobs.whole_budget import JobBudget
from tunefarm_db.states.job import JobState


def test_the_artifact_so_far(browser: Browser, farm, running) -> None:
    page = browser.page(f"/jobs/{running.id}")
    form = page.element("form", action=f"/jobs/{running.id}/compile")
    assert form.element("button").text == "Artifact so far"
    shown = browser.post(form.attrs["action"])
    so_far = farm.job(shown.url.path.rpartition("/")[2])
    assert so_far.options["of"] == running.id
    assert running.id[-6:] in browser.page(f"/jobs/{so_far.id}").element("main").text
    assert "queued" in browser.page(f"/jobs/{running.id}").element("p", id="so-far").text
    while farm.job(so_far.id).state is not JobState.SUCCEEDED:
        assert farm.run(steps=1)
    link = browser.page(f"/jobs/{running.id}").element("p", id="so-far").element("a", download="")
    assert browser.get(link.attrs["href"]).status_code == 200
    assert "compiles the best kernels so far" in browser.page(f"/jobs/{running.id}").text


def test_an_untuned_artifact_is_offered_while_the_job_searches(browser: Browser, farm) -> None:
    farm.add_device()
    farm = farm.with_settings(max_drafts_bytes=1 << 20).with_engine(ReplayEngine(drafts=True))
    job = farm.submit(farm.ready_model(), trials=24)
    farm.run(steps=1)
    assert browser.page(f"/jobs/{job.id}").all("p", id="draft") == []
    farm.inbox.messages.reverse()
    farm.run(steps=1)
    page = browser.page(f"/jobs/{job.id}")
    note = page.element("p", id="draft")
    assert "An artifact of the search so far: untuned, checked" in note.text
    assert "A better draft replaces it" in note.text
    link = note.element("a", download="")
    assert link.text.startswith("Download the draft, ")
    untuned = browser.get(link.attrs["href"])
    assert untuned.status_code == 200
    assert "an artifact so far is ready: untuned" in page.text
    farm.run()
    page = browser.page(f"/jobs/{job.id}")
    assert page.all("p", id="draft") == []
    assert browser.get(link.attrs["href"]).content != untuned.content


def test_alternatives_are_told_from_kernels_beside_an_artifact_so_far(browser: Browser, farm) -> None:
    """A page said "7 of 7 kernels measured" beside "5 of 6 kernels tuned"."""
    farm.add_device()
    farm = farm.with_settings(max_drafts_bytes=1 << 20).with_engine(ReplayEngine(drafts=True))
    job = farm.submit(farm.ready_model(Scenario(tasks=4)), trials=24)
    farm.run(steps=1)
    farm.inbox.messages.reverse()
    farm.run(steps=1)
    with farm.services.uow.read() as repos:
        count = len(repos.jobs.tasks(job.id)) - 1
    with farm.services.uow.engine.begin() as connection:
        connection.execute(text("UPDATE job_tasks SET best_cost_sec = 0.001"))
        connection.execute(
            text("UPDATE job_tasks SET alternative = :algorithm WHERE position = :last"),
            {"algorithm": '{"algorithm": "winograd-4", "instead_of": [], "overhead": 1.0}', "last": count},
        )
        connection.execute(text(f"UPDATE drafts SET tasks = {count}, covered = {count - 1}"))
    page = browser.page(f"/jobs/{job.id}")
    assert f"{count} kernels to tune, and 1 alternative to them" in page.text
    assert page.element("p", id="tuned-words").text.startswith(
        f"{count} of {count} kernels measured, and 1 of 1 alternative to them. {count - 1} of {count} kernels tuned in the network so far"
    )


def test_a_file_is_offered_once(browser: Browser, farm) -> None:
    farm.add_device()
    farm = farm.with_settings(max_drafts_bytes=1 << 20)
    job = farm.submit(farm.ready_model(), trials=64)
    farm.run(steps=2)
    shown = browser.post(f"/jobs/{job.id}/compile")
    so_far = shown.url.path.rpartition("/")[2]
    assert "queued" in browser.page(f"/jobs/{job.id}").element("p", id="so-far").text
    while farm.job(so_far).state is not JobState.SUCCEEDED:
        assert farm.run(steps=1)
    page = browser.page(f"/jobs/{job.id}")
    assert page.element("p", id="draft").element("a", download="")
    assert page.all("p", id="so-far") == []


def test_a_cancelled_job_keeps_its_untuned_artifact(browser: Browser, farm) -> None:
    farm.add_device()
    farm = farm.with_settings(max_drafts_bytes=1 << 20).with_engine(ReplayEngine(drafts=True))
    job = farm.submit(farm.ready_model(), trials=24)
    farm.run(steps=1)
    farm.inbox.messages.reverse()
    farm.run(steps=1)
    browser.post(f"/jobs/{job.id}/cancel")
    farm.run_until_quiet()
    note = browser.page(f"/jobs/{job.id}").element("p", id="draft")
    assert "A better draft" not in note.text
    assert browser.get(note.element("a").attrs["href"]).status_code == 200


def test_a_search_is_finished_from_its_page(browser: Browser, farm, running) -> None:
    page = browser.page(f"/jobs/{running.id}")
    button = page.element("button", formaction=f"/jobs/{running.id}/finish")
    assert button.text == "Stop the search and compile the best so far"
    browser.post(button.attrs["formaction"])
    assert farm.job(running.id).state is JobState.COMPILING
    page = browser.page(f"/jobs/{running.id}")
    assert page.all("button", formaction=f"/jobs/{running.id}/finish") == []


def test_pause_and_resume(browser: Browser, farm, running) -> None:
    page = browser.post(f"/jobs/{running.id}/pause")
    assert page.url.path == f"/jobs/{running.id}"
    assert farm.job(running.id).state is JobState.PAUSED
    actions = {form.attrs["action"] for form in browser.page(f"/jobs/{running.id}").all("form")}
    assert f"/jobs/{running.id}/resume" in actions
    assert f"/jobs/{running.id}/pause" not in actions
    browser.post(f"/jobs/{running.id}/resume")
    assert farm.job(running.id).state is JobState.TUNING


def test_cancel(browser: Browser, farm, running) -> None:
    browser.post(f"/jobs/{running.id}/cancel")
    farm.run_until_quiet()
    assert farm.job(running.id).state is JobState.CANCELLED
    assert "stopped" in browser.page(f"/jobs/{running.id}").element("ol", class_="phases").text


def test_extend_adds_to_the_limits(browser: Browser, farm, running) -> None:
    browser.post(f"/jobs/{running.id}/extend", minutes="2,5", trials="20")
    assert farm.job(running.id).budget["wall_sec"] == 750
    assert farm.job(running.id).budget["trials"] == 100
    for form in ({}, {"minutes": "-1"}, {"trials": "many"}, {"minutes": "nan"}):
        answer = browser.post(f"/jobs/{running.id}/extend", **form)
        assert answer.status_code == 422
    assert farm.job(running.id).budget["trials"] == 100


def test_extend_adds_to_the_time_of_the_whole_job(browser: Browser, farm) -> None:
    farm.add_device()
    job = farm.submit(farm.ready_model(), budget=JobBudget(job_sec=600.0))
    browser.post(f"/jobs/{job.id}/extend", minutes="1")
    assert farm.job(job.id).budget["job_sec"] == 660
    assert "11 min 00 s for the whole job" in browser.page(f"/jobs/{job.id}").element("main").text
    farm.run(steps=1)
    before = farm.job(job.id).budget["wall_sec"]
    browser.post(f"/jobs/{job.id}/extend", minutes="1")
    after = farm.job(job.id)
    assert (after.budget["job_sec"], after.budget["wall_sec"]) == (720, pytest.approx(before + 57.6, abs=0.1))
    change_job(farm.services, job.id, JobChange(budget={"wall_sec": 30.0}))
    browser.post(f"/jobs/{job.id}/extend", minutes="1")
    both = farm.job(job.id).budget
    assert (both["job_sec"], both["wall_sec"]) == (780, 90), "the search has a limit of its own"
    assert "of the whole job" in browser.page(f"/jobs/{job.id}").element("dl", class_="figures").text


def test_a_failed_job_says_why_and_can_be_retried(browser: Browser, farm) -> None:
    farm.add_device()
    job = farm.submit(farm.ready_model())
    with farm.services.uow.write() as repos:
        repos.steps.cancel_open(job_id=job.id)
        repos.jobs.move(job.id, JobState.FAILED, error={"code": "invalid-onnx", "message": "it is broken"})
        repos.events.add(job.id, "finished", {"state": "failed", "error": {"message": "it is broken"}})
    page = browser.page(f"/jobs/{job.id}")
    assert "it is broken" in page.element(role="alert").text
    assert [form for form in page.all("form") if form.attrs["action"].endswith("/retry")]


def test_orders_that_make_no_sense_are_refused(browser: Browser, farm, done) -> None:
    assert browser.post(f"/jobs/{done.id}/pause").status_code == 409
    assert browser.post(f"/jobs/{done.id}/explode").status_code == 422
    assert browser.post("/jobs/job_none/cancel").status_code == 404


def test_the_artifact_is_measured_again(browser: Browser, farm, done) -> None:
    assert browser.post(f"/jobs/{done.id}/measure").url.path == f"/jobs/{done.id}"
    page = browser.page(f"/jobs/{done.id}")
    assert "Waiting for a worker." in page.text
    assert page.element("form", action=f"/jobs/{done.id}/cancel").text == "Cancel the measurement"
    farm.run()
    browser.post(f"/jobs/{done.id}/measure")
    farm.run()
    page = browser.page(f"/jobs/{done.id}")
    table = next(table for table in page.all("table") if "Measurements" in table.element("caption").text)
    rows = table.element("tbody").all("tr")
    assert len(rows) == 2
    assert ["shown above" in row.text for row in rows] == [True, False]
    assert "2.00×" in rows[0].text
    assert "measured again on" in page.element("section", id="log").text
    report = browser.get(f"/jobs/{done.id}/report").text
    assert "Measurements" in report
    for shown in (table.text, report):
        assert "Speed-up over ONNX Runtime" in shown, "more is better"


def test_a_measurement_without_a_runtime_beside_it_is_shown(browser: Browser, farm, done) -> None:
    """As on a GPU, and on a device that is another machine."""
    alone = {"untuned": 0.04}
    measured(farm, done.id, timed(0.02, others=alone), timed(0.01, others=alone))
    page = browser.page(f"/jobs/{done.id}")
    (row,) = [row for row in page.all("tr") if "quiet; shown above" in row.text]
    assert [cell.text for cell in row.all("td")][-2:] == ["4.00×", "–"]
    report = Page(browser.get(f"/jobs/{done.id}/report").text)
    (cells,) = [cells for cells in report.tables["latency"] if cells[0].endswith("(shown)")]
    assert cells[3:] == ["10.0 ms", "40.0 ms", "–", "4.00×", "–"]
