"""Samples on a model's page: sent as its script does, chosen in the form, deleted."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from page_browser import ORIGIN, Browser

from tunefarm_app.engines.scenario import Scenario
from tunefarm_db.states.job import JobState

BINARY = {"Content-Type": "application/octet-stream", "Origin": ORIGIN}


def npz(dtype: type = np.float32) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, x=np.ones((3, 1, 8), dtype))
    return buffer.getvalue()


def send(browser: Browser, url: str, content: bytes, name: str = "<b>street.npz") -> Any:
    return browser.client.post(f"{url}/samples", params={"name": name}, content=content, headers=BINARY)


def test_samples_are_sent_checked_chosen_and_deleted(browser: Browser, farm: Any) -> None:
    farm.add_device()
    model = farm.ready_model(Scenario(tasks=1))
    url = f"/models/{model.id}"
    field = browser.page(url).element("input", id="samples-file")
    assert field.attrs["data-url"] == f"{url}/samples"
    assert int(field.attrs["data-max"]) == farm.services.settings.max_samples_bytes
    sent = send(browser, url, npz())
    assert sent.status_code == 202
    samples = sent.json()
    state = f"{url}/samples/{samples['id']}"
    assert browser.client.get(state).json()["state"] == "checking"
    assert len(browser.page(url).element("select", id="samples").all("option")) == 1
    farm.run()
    assert browser.client.get(state).json()["sets"] == 3
    page = browser.page(url)
    option = page.element("select", id="samples").all("option")[1]
    assert (option.attrs["value"], option.text) == (samples["id"], "<b>street.npz: 3 sample sets")
    assert "<b>street.npz" in page.element("section", id="its-samples").text
    started = browser.post(f"{url}/jobs", trials="8", pool="pool", seed="0", samples=samples["id"])
    job = farm.job(started.url.path.rpartition("/")[2])
    assert job.options["samples"] == [samples["id"]]
    farm.run()
    assert farm.job(job.id).state is JobState.SUCCEEDED
    assert "1 file of samples" in browser.page(f"/jobs/{job.id}").element("main").text
    after = browser.post(f"{state}/delete")
    assert after.url.path == url
    assert browser.client.get(state).status_code == 404


def test_samples_that_do_not_fit_are_shown_with_the_reason(browser: Browser, farm: Any) -> None:
    farm.add_device()
    model = farm.ready_model(Scenario(tasks=1))
    url = f"/models/{model.id}"
    samples = send(browser, url, npz(np.float64)).json()
    farm.run()
    failed = browser.client.get(f"{url}/samples/{samples['id']}").json()
    assert failed["state"] == "failed"
    assert "convert it with .astype('float32')" in failed["error"]["message"]
    page = browser.page(url)
    assert failed["error"]["message"] in page.element("section", id="its-samples").text
    assert len(page.element("select", id="samples").all("option")) == 1
    answer = send(browser, url, b"hello")
    assert (answer.status_code, answer.json()["code"]) == (422, "not-npz")


def test_another_sites_page_sends_no_samples(browser: Browser, farm: Any) -> None:
    model = farm.ready_model(Scenario(tasks=1))
    headers = {"Origin": "https://evil.example", "Content-Type": "application/octet-stream"}
    for path in ("samples", "samples/smp_1/delete"):
        answer = browser.client.post(f"/models/{model.id}/{path}", content=npz(), headers=headers)
        assert answer.status_code == 403
