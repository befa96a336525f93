"""The pages of sweeps: the list, one sweep with a row for each job, its report, and the button that cancels all."""

from __future__ import annotations

from typing import Any

from page_browser import Browser

from tunefarm_app.access.api_keys import create_api_key
from tunefarm_app.engines.replay import Scenario
from tunefarm_app.jobs.sweeps import RefusedFile, SweepRequest, submit_sweep
from tunefarm_app.jobs.terms import JobTerms
from tunefarm_app.jobs.whole_budget import JobBudget


def start(farm: Any) -> str:
    farm.add_device()
    model = farm.ready_model(Scenario(tasks=1))
    request = SweepRequest(
        model_ids=[model.id],
        precisions=["as-model", "float16-weights"],
        terms=JobTerms(budget=JobBudget(trials=16), tuner="random"),
        refused=[RefusedFile(name="<b>.onnx", code="not-protobuf", message="it is <no> network")],
        tags=["nightly"],
    )
    return submit_sweep(farm.services, request).sweep.id


def test_a_sweep_from_its_start_to_its_report(browser: Browser, farm: Any) -> None:
    assert "There are no sweeps yet." in browser.page("/sweeps").element("main").text
    sweep_id = start(farm)
    listed = browser.page("/sweeps")
    assert listed.all("a", href=f"/sweeps/{sweep_id}")
    assert "2 queued, 1 refused" in listed.element("main").text

    page = browser.page(f"/sweeps/{sweep_id}")
    rows = [row.text for row in page.all("tr")][1:]
    assert len(rows) == 3
    assert "float16-weights" in rows[1]
    assert "it is <no> network" in rows[2]
    assert page.all("form", action=f"/sweeps/{sweep_id}/cancel")
    assert "All jobs share the trials equally" in page.element("main").text
    farm.run_until_quiet()

    page = browser.page(f"/sweeps/{sweep_id}")
    links = [link.attrs["href"] for link in page.all("a") if link.attrs["href"].startswith("/jobs/job_")]
    assert len(links) == 2
    assert not page.all("form", action=f"/sweeps/{sweep_id}/cancel"), "nothing is left to cancel"
    assert browser.page(links[0]).all("a", href=f"/sweeps/{sweep_id}")
    report = browser.get(f"/sweeps/{sweep_id}/report")
    assert "it is &lt;no&gt; network" in report.text
    assert "sandbox" in report.headers["content-security-policy"]
    assert browser.get(f"/sweeps/{sweep_id}/report.json").json()["counts"] == {"refused": 1, "succeeded": 2}
    assert browser.get("/sweeps/swp_none").status_code == 404


def test_the_button_cancels_all(browser: Browser, farm: Any) -> None:
    sweep_id = start(farm)
    answer = browser.post(f"/sweeps/{sweep_id}/cancel")
    assert answer.status_code in (200, 303)
    text = browser.page(f"/sweeps/{sweep_id}").element("main").text
    assert "2 cancelled, 1 refused" in text


def test_a_reader_sees_no_button(stranger: Browser, farm: Any) -> None:
    sweep_id = start(farm)
    stranger.sign_in(create_api_key(farm.services, name="r", scopes=["read"])[1])
    assert not stranger.page(f"/sweeps/{sweep_id}").all("form", action=f"/sweeps/{sweep_id}/cancel")
    assert stranger.post(f"/sweeps/{sweep_id}/cancel").status_code == 403
