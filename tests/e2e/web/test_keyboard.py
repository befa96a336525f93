"""The dashboard without a mouse, also while it updates."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect
from replay_server import ReplayServer
from waiting import wait_until

from tunefarm_app.engines.scenario import Scenario
from tunefarm_app.jobs.control import pause_job
from tunefarm_app.jobs.submit import JobRequest, submit_job
from tunefarm_app.models.submit import submit_model
from tunefarm_db.states.job import JobState
from tunefarm_db.values import Job
from tunefarm_tuning.search.budget import Budget


def paused_job(server: ReplayServer, name: str = "net.onnx") -> Job:
    """Return a job that is paused with something measured."""
    services = server.services
    blob = services.blobs.put([Scenario(trial_sec=0.001).to_bytes()])
    model = submit_model(services, name=name, blob=blob, shapes={}).model

    def is_ready() -> bool:
        with services.uow.read() as repos:
            return repos.models.get(model.id).state == "ready"

    wait_until(is_ready, "the model is not ready")
    job = submit_job(services, JobRequest(model_id=model.id, budget=Budget(trials=10**6), tuner="random")).job

    def has_trials() -> bool:
        with services.uow.read() as repos:
            return repos.jobs.get(job.id).trials > 0

    wait_until(has_trials, "nothing was measured")
    pause_job(services, job.id)
    return job


def tell(server: ReplayServer, job: Job) -> str:
    """Let something happen to the job; return the event's number."""
    with server.services.uow.write() as repos:
        repos.events.add(job.id, "waiting", {"reason": "nothing in particular"})
        return str(repos.jobs.get(job.id).event_seq)


def press_until(page: Page, key: str, name: str) -> None:
    """Press a key until the focused element has this name."""
    for _ in range(60):
        page.keyboard.press(key)
        label = page.evaluate(
            "() => document.activeElement.getAttribute('aria-label') || document.activeElement.innerText || ''"
        )
        if re.search(name, label):
            return
    raise AssertionError(f"{key} never led to {name}")


@pytest.mark.exhaustive
def test_a_job_is_steered_by_keys_alone(seat, server: ReplayServer) -> None:
    job = paused_job(server)
    page = seat.open("/sign-in")
    page.get_by_label("API key").focus()
    page.keyboard.type(server.api_key)
    page.keyboard.press("Enter")
    page.wait_for_url("**/jobs")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    press_until(page, "Tab", r"net\.onnx")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/jobs/{job.id}")
    expect(page.locator("#link")).to_have_attribute("data-state", "live")  # its scripts are there
    press_until(page, "Tab", "Extend")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    expect(page.get_by_label("Add trials")).to_be_focused()
    page.keyboard.type("5")
    page.keyboard.press("Escape")
    expect(page.locator("summary", has_text="Extend")).to_be_focused()
    expect(page.get_by_label("Add trials")).to_be_hidden()
    press_until(page, "Shift+Tab", "Resume")
    page.keyboard.press("Enter")
    expect(page.locator("#state")).to_contain_text("tuning")


@pytest.mark.exhaustive
def test_a_renewal_takes_neither_focus_nor_selection(seat, server: ReplayServer) -> None:
    job = paused_job(server)
    page = seat.sign_in()
    page.goto(f"{server.url}/jobs/{job.id}")
    expect(page.locator("#link")).to_have_attribute("data-state", "live")
    newest = page.locator(".log .seq").first
    page.get_by_role("link", name="matmul_1").focus()
    expect(newest).to_have_text(tell(server, job))
    expect(page.get_by_role("link", name="matmul_1")).to_be_focused()
    # The log does not change while a line is being copied, and is updated afterwards.
    before = newest.inner_text()
    page.evaluate("getSelection().selectAllChildren(document.querySelector('.log li'))")
    held = page.evaluate("getSelection().toString()")
    with page.expect_response(lambda response: response.url.endswith(job.id)):
        number = tell(server, job)
    page.wait_for_timeout(500)
    assert page.evaluate("getSelection().toString()") == held
    expect(newest).to_have_text(before)
    page.evaluate("getSelection().removeAllRanges()")
    expect(newest).to_have_text(number)


def choose(page: Page, label: str, option: str) -> None:
    """Choose when the page's scripts listen: rows are there before."""
    page.wait_for_load_state()
    page.get_by_label(label).select_option(option)


def test_the_list_is_filtered_sorted_and_turned_over(seat, server: ReplayServer) -> None:
    services = server.services
    with services.uow.write() as repos:
        for number in range(30):
            model = repos.models.add(name=f"model-{number:02d}.onnx", sha256=f"{number:064d}", size_bytes=9)
            repos.jobs.add(
                model_id=model.id,
                target={"kind": "llvm"},
                target_key="llvm",
                device_key="even" if number % 2 == 0 else "odd",
                tuner="random",
                seed=0,
                budget={"trials": 48},
            )
    page = seat.sign_in()
    rows = page.locator("#jobs tbody tr")
    expect(rows).to_have_count(25)
    page.get_by_role("link", name="Next").click()
    expect(rows).to_have_count(5)
    expect(page.locator("#jobs")).to_contain_text("Jobs 26 to 30 of 30")
    choose(page, "Device pool", "odd")
    expect(rows).to_have_count(15)
    choose(page, "Sort by", "Model")
    expect(rows.first).to_contain_text("model-01.onnx")
    page.get_by_label("Search", exact=True).fill("-2")
    page.keyboard.press("Enter")
    expect(rows).to_have_count(5)
    expect(rows.first).to_contain_text("model-21.onnx")
    # It stays live, with its filter.
    job_id = rows.first.get_attribute("id")
    assert job_id
    with services.uow.write() as repos:
        repos.jobs.move(job_id, JobState.PAUSED)
    expect(rows.first).to_contain_text("paused")
    expect(rows).to_have_count(5)
    choose(page, "State", "succeeded")
    expect(page.get_by_text("No job matches.")).to_be_visible()
    seat.nothing_serious(page)
    page.get_by_role("link", name="Show all").click()
    expect(rows).to_have_count(25)
