"""The pages of sweeps: the list, one sweep with a row for each job, its report, and the button that cancels all."""

from __future__ import annotations

from typing import Any

import pytest
from page_browser import Browser
from page_browser import checked as checked_page
from page_tree import Element, read_page
from sample_files import checked, npz

from tunefarm_app.access.api_keys import create_api_key
from tunefarm_app.engines.scenario import Scenario
from tunefarm_app.jobs.sweeps import RefusedFile, SweepRequest, submit_sweep
from tunefarm_app.jobs.terms import JobTerms
from tunefarm_app.jobs.whole_budget import JobBudget
from tunefarm_app.models.removal import delete_model
from tunefarm_app.models.samples import delete_samples


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
    (link,) = listed.all("a", href=f"/sweeps/{sweep_id}")
    assert link.text == "net.onnx, <b>.onnx"
    assert "2 queued, 1 refused" in listed.element("main").text

    page = browser.page(f"/sweeps/{sweep_id}")
    rows = [row.text for row in page.all("tr")][1:]
    assert len(rows) == 3
    assert "float16-weights" in rows[1]
    assert "reason below" in rows[2]
    (reason,) = page.element("main").all("li", class_="wrap")
    assert reason.text == "<b>.onnx : it is <no> network"
    assert page.all("form", action=f"/sweeps/{sweep_id}/cancel")
    assert "All jobs share the trials equally" in page.element("main").text
    assert "Pools work side by side" not in page.element("main").text, (
        "there is one pool, and no limit of time"
    )
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
    assert "estimate" in rows_of(browser, sweep_id)[0], "a simulation times no network"
    wild = {name: {"value": 2.0, "low": 0.01, "high": 40.0} for name in ("untuned", "onnxruntime")}
    with farm.services.uow.write() as repos:
        repos.jobs.set_numbers(
            links[0].removeprefix("/jobs/"),
            network_latency_sec=0.25,
            speedups=wild,
            over_untuned=None,
            over_runtime=None,
        )
    row = rows_of(browser, sweep_id)[0]
    assert "250 ms measured, disturbed not known over ONNX Runtime not known" in row
    report = " ".join(read_page(browser.get(f"/sweeps/{sweep_id}/report").text).text.split())
    assert "250 ms disturbed not known over ONNX Runtime not known" in report
    assert browser.get("/sweeps/swp_none").status_code == 404


def rows_of(browser: Browser, sweep_id: str) -> list[str]:
    return [" ".join(row.text.split()) for row in browser.page(f"/sweeps/{sweep_id}").all("tr")[1:]]


def test_a_sweep_is_started_by_its_form(browser: Browser, farm: Any) -> None:
    assert "There are no models that can be tuned yet." in browser.page("/sweeps/new").element("main").text
    models = [farm.ready_model(Scenario(tasks=1, seed=seed)) for seed in range(2)]
    assert "No device can measure yet" in browser.page("/sweeps/new").element("main").text
    farm.add_device("a", "x86")
    farm.add_device("b", "arm-64.big")
    samples = checked(farm, models[1], npz(3))
    assert browser.page("/sweeps").all("a", href="/sweeps/new")
    assert browser.page(f"/models/{models[0].id}").all("a", href=f"/sweeps/new?model={models[0].id}")
    assert ticked(browser.page(f"/sweeps/new?model={models[0].id}")) == {
        f"model-{models[0].id}",
        "pool-arm-64.big",
        "precision-as-model",
    }

    form = {f"model-{model.id}": "1" for model in models} | {
        f"samples-{models[0].id}": "",
        f"samples-{models[1].id}": samples.id,
        "pool-x86": "1",
        "pool-arm-64.big": "1",
        "precision-as-model": "1",
        "precision-float16-weights": "1",
        "minutes": "30",
        "priority": "high",
        "tags": "nightly",
        "note": "all",
    }
    answer = browser.post("/sweeps", **form)
    assert answer.status_code == 200
    with farm.services.uow.read() as repos:
        (sweep,) = repos.sweeps.list().items
        jobs = list(repos.sweeps.jobs([sweep.id]).values())
    assert answer.url.path == f"/sweeps/{sweep.id}"
    assert {(job.model_id, job.device_key, job.options["precision"]) for job in jobs} == {
        (model.id, pool, precision)
        for model in models
        for pool in ("x86", "arm-64.big")
        for precision in ("as-model", "float16-weights")
    }
    assert {(job.model_id, *job.options.get("samples", ())) for job in jobs} == {
        (models[0].id,),
        (models[1].id, samples.id),
    }
    assert {(job.budget["job_sec"], job.priority, tuple(job.tags), job.note) for job in jobs} == {
        (450.0, 10, ("nightly",), "all")
    }


def test_a_refused_form_keeps_what_was_chosen(browser: Browser, farm: Any) -> None:
    farm.add_device("a", "x86")
    model = farm.ready_model(Scenario(tasks=1))
    samples = checked(farm, model, npz(3))
    form = {
        f"model-{model.id}": "1",
        f"samples-{model.id}": samples.id,
        "precision-int8-weights": "1",
        "minutes": "",
        "priority": "low",
        "note": "<mine>",
    }
    for change, reason in (
        ({}, "set a limit"),
        ({"minutes": "-3"}, "minutes must be a number that is not below zero, and is '-3'"),
        ({"trials": "many"}, "trials must be a whole number of at most 30 digits"),
    ):
        answer = browser.post("/sweeps", **{**form, **change})
        assert answer.status_code == 422
        page = checked_page(answer.text)
        assert reason in page.element("main").text
        assert ticked(page) == {f"model-{model.id}", "precision-int8-weights"}
        chosen = [option.attrs["value"] for option in page.all("option") if "selected" in option.attrs]
        assert chosen == [samples.id, "low"]
        assert page.element("textarea").text == "<mine>"
    nothing = browser.post("/sweeps", minutes="5")
    assert nothing.status_code == 422
    assert "it has no model, so choose some" in checked_page(nothing.text).element("main").text
    assert browser.get("/sweeps/new?model=mdl_none").status_code == 404
    with farm.services.uow.read() as repos:
        assert repos.sweeps.list().items == ()


def test_what_is_gone_or_not_ready_leaves_the_form_as_it_was(browser: Browser, farm: Any) -> None:
    farm.add_device("a", "x86")
    model, gone = (farm.ready_model(Scenario(tasks=1, seed=seed)) for seed in range(2))
    samples = checked(farm, model, npz(3))
    importing = farm.upload(Scenario(tasks=1, seed=2))
    delete_model(farm.services, gone.id)
    delete_samples(farm.services, model.id, samples.id)
    form = {"precision-as-model": "1", "minutes": "5", "priority": "low", "note": "mine"}
    for models, more, status, reason, kept in (
        ([model, importing], {}, 409, "import", [model, importing]),
        ([model], {f"samples-{model.id}": samples.id}, 404, "no such samples", [model]),
        ([gone], {}, 422, "deleted", []),
        ([gone, importing], {}, 409, "import", [importing]),
    ):
        answer = browser.post("/sweeps", **form, **more, **{f"model-{chosen.id}": "1" for chosen in models})
        assert answer.status_code == status, answer.text
        page = checked_page(answer.text)
        (refused,) = page.all("p", id="refused")
        assert reason in refused.text
        assert ticked(page) == {"precision-as-model", *(f"model-{chosen.id}" for chosen in kept)}
        assert page.element("textarea").text == "mine"
        assert gone.id not in answer.text
    with farm.services.uow.read() as repos:
        assert repos.sweeps.list().items == ()


def test_a_form_that_is_sent_twice_starts_one_sweep(browser: Browser, farm: Any) -> None:
    farm.add_device("a", "x86")
    model = farm.ready_model(Scenario(tasks=1))
    (form_id,) = browser.page("/sweeps/new").all("input", name="form-id")
    (another,) = browser.page("/sweeps/new").all("input", name="form-id")
    form = {f"model-{model.id}": "1", "pool-x86": "1", "minutes": "5", "form-id": form_id.attrs["value"]}
    first, twice = (browser.post("/sweeps", **form).url.path for _ in range(2))
    assert first == twice
    changed = browser.post("/sweeps", **{**form, "minutes": "6"}).url.path
    afresh = browser.post("/sweeps", **{**form, "form-id": another.attrs["value"]}).url.path
    with farm.services.uow.read() as repos:
        started = {f"/sweeps/{sweep.id}" for sweep in repos.sweeps.list().items}
    assert {first, changed, afresh} == started
    assert len(started) == 3
    assert browser.post("/sweeps", **{**form, "form-id": "\u20ac"}).status_code == 422


def ticked(page: Element) -> set[str]:
    return {box.attrs["name"] for box in page.all("input", type="checkbox") if "checked" in box.attrs}


def test_a_later_part_of_the_list_leads_back_to_the_first(
    browser: Browser, farm: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tunefarm_api.web.sweeps_page._SHOWN", 1)
    for _ in range(2):
        start(farm)
    first = browser.page("/sweeps").element("nav", class_="pager")
    assert [link.text for link in first.all("a")] == ["Next"]
    second = browser.page(first.element("a").attrs["href"]).element("nav", class_="pager")
    assert [(link.text, link.attrs["href"]) for link in second.all("a")] == [("First", "/sweeps")]


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
    assert not stranger.page("/sweeps").all("a", href="/sweeps/new")
    assert stranger.get("/sweeps/new").status_code == 403
    assert stranger.post("/sweeps", minutes="5").status_code == 403
