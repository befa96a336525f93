from __future__ import annotations

import pytest
from page_browser import Browser, checked
from sqlalchemy import text

from tunefarm_app.access.api_keys import create_api_key
from tunefarm_app.engines.scenario import Scenario
from tunefarm_app.jobs.control import cancel_job, pause_job
from tunefarm_app.report.numbers import listed_numbers
from tunefarm_db.states.job import JobState
from tunefarm_tuning.search.budget import Budget


def names(browser: Browser, query: str = "") -> list[str]:
    page = browser.page(f"/jobs{query}")
    return [link.text for row in page.all("tr") if "id" in row.attrs for link in row.all("a")[:1]]


@pytest.fixture
def three(farm):
    """Jobs as they stand after a farm was at them; none of it ran."""
    ends = (
        ("Alpha.onnx", JobState.SUCCEEDED, {"trials": 48, "best_latency_sec": 0.002}),
        ("beta.onnx", JobState.CANCELLED, {"trials": 0}),
        ("alphabet.onnx", JobState.SUCCEEDED, {"trials": 16, "best_latency_sec": 0.001}),
    )
    jobs = []
    with farm.services.uow.write() as repos:
        for number, (name, state, changes) in enumerate(ends):
            model = repos.models.add(name=name, sha256=f"{number}" * 64, size_bytes=9)
            job = repos.jobs.add(
                model_id=model.id,
                target={"kind": "llvm"},
                target_key="llvm",
                device_key="pool",
                tuner="random",
                seed=0,
                budget={"trials": 48},
            )
            repos.jobs.move(job.id, JobState.EXTRACTING)
            repos.jobs.move(job.id, JobState.COMPILING)
            jobs.append(repos.jobs.move(job.id, state, **changes))
    return jobs


def test_without_jobs_it_says_how_to_start_one(browser: Browser) -> None:
    assert "There are no jobs yet." in browser.page("/jobs").element("main").text
    assert browser.get("/").url.path == "/jobs"


def test_without_jobs_it_says_that_a_device_is_being_checked(browser: Browser, farm) -> None:
    def said() -> str:
        return browser.page("/jobs").element("main").text

    assert "No device can measure yet: add one" in said()
    farm.newcomer()
    with farm.services.uow.write() as repos:
        repos._connection.execute(text("UPDATE devices SET state = 'checking'"))
    assert "1 device is being checked, which takes about a minute" in said()
    farm.add_device("dev-2")
    assert "1 device can measure now." in said()


def test_jobs_are_listed_newest_first(browser: Browser, three) -> None:
    assert names(browser) == ["alphabet.onnx", "beta.onnx", "Alpha.onnx"]
    page = browser.page("/jobs")
    row = page.element("tr", id=three[0].id)
    assert "succeeded" in row.text
    assert "48 of 48 trials" in row.text
    assert "2 ms" in row.text
    assert row.element("a").attrs["href"] == f"/jobs/{three[0].id}"
    assert row.element("time").attrs["datetime"].endswith("Z")
    assert "Jobs 1 to 3 of 3" in page.element("main").text


def test_they_can_be_filtered_and_sorted(browser: Browser, three) -> None:
    orders = [option.text for option in browser.page("/jobs").element("select", id="order").all("option")]
    assert orders[-2:] == ["Speed-up over untuned", "Speed-up over the fastest runtime"]
    everything = ["alphabet.onnx", "beta.onnx", "Alpha.onnx"]
    for query, expected in (
        ("?model=ALPHA", ["alphabet.onnx", "Alpha.onnx"]),
        ("?model=%25", []),
        ("?state=cancelled", ["beta.onnx"]),
        ("?state=ended", everything),
        ("?state=open", []),
        ("?state=nonsense", everything),
        ("?pool=pool", everything),
        ("?pool=other", []),
        ("?order=oldest", everything[::-1]),
        ("?order=model", ["Alpha.onnx", "alphabet.onnx", "beta.onnx"]),
        ("?order=changed", everything),
        ("?order=trials", ["Alpha.onnx", "alphabet.onnx", "beta.onnx"]),
        ("?order=latency", ["alphabet.onnx", "Alpha.onnx", "beta.onnx"]),
        ("?order=state", ["beta.onnx", "alphabet.onnx", "Alpha.onnx"]),
        ("?order=speedup", everything),
        ("?text=ALPHAB", ["alphabet.onnx"]),
        ("?text=nothing", []),
        ("?page=2", []),
    ):
        assert names(browser, query) == expected, query


def test_a_long_list_has_pages_that_keep_the_filter(browser: Browser, farm) -> None:
    farm.add_device()
    model = farm.ready_model()
    for _ in range(27):
        farm.submit(model)
    first = browser.page("/jobs?state=queued&order=oldest")
    assert "Jobs 1 to 25 of 27" in first.element("main").text
    assert first.all("a", rel="prev") == []
    second = browser.page(first.element("a", rel="next").attrs["href"])
    assert "Jobs 26 to 27 of 27" in second.element("main").text
    assert second.element("select", id="state").element("option", selected="").text == "queued"
    assert browser.page(second.element("a", rel="prev").attrs["href"]).element("a", rel="next")


def test_beyond_the_last_page_it_says_how_many_there_are(browser: Browser, three) -> None:
    assert "There is no page 7: 3 jobs match." in browser.page("/jobs?page=7").text
    assert "There is no page 2: 1 job matches." in browser.page("/jobs?page=2&model=beta").text
    assert "No job matches." in browser.page("/jobs?page=2&model=gamma").text


def test_a_running_job_shows_how_far_it_is(browser: Browser, farm) -> None:
    farm.add_device("node-7")
    job = farm.submit(farm.ready_model(), budget=Budget(trials=80), tuner="random")
    farm.run(steps=3)
    row = browser.page("/jobs").element("tr", id=job.id)
    assert farm.job(job.id).state is JobState.TUNING
    assert 0 < float(row.element("progress").attrs["value"]) < 1
    assert "node-7" in row.text
    assert "over first round" in row.text
    region = browser.page("/jobs").element("section", id="jobs")
    assert (region.attrs["data-live"], region.attrs["hx-get"]) == ("job:", "/jobs")


def test_a_job_that_waits_says_for_what(browser: Browser, farm) -> None:
    farm.add_device()
    job = farm.submit(farm.ready_model())
    assert "waiting for a worker" in browser.page("/jobs").element("tr", id=job.id).text


def test_a_job_that_failed_says_why(browser: Browser, farm) -> None:
    farm.add_device()
    job = farm.submit(farm.ready_model())
    with farm.services.uow.write() as repos:
        repos.steps.cancel_open(job_id=job.id)
        repos.jobs.move(job.id, JobState.FAILED, error={"code": "invalid-onnx", "message": "it is broken"})
    assert "it is broken" in browser.page("/jobs").element("tr", id=job.id).text


def test_names_are_text_and_never_markup(browser: Browser, farm) -> None:
    farm.add_device()
    model = farm.upload(Scenario(), name="<script>alert(1)</script>")
    farm.run()
    job = farm.submit(model)
    assert "<script>alert" not in browser.get("/jobs").text
    assert "<script>alert" not in browser.get(f"/jobs/{job.id}").text
    assert "<script>alert(1)</script>" in browser.page(f"/jobs/{job.id}").element("h1").text


def test_who_may_only_look_gets_no_buttons(stranger: Browser, farm) -> None:
    farm.add_device()
    job = farm.submit(farm.ready_model())
    stranger.sign_in(create_api_key(farm.services, name="looks", scopes=["read"])[1])
    forms = stranger.page(f"/jobs/{job.id}").all("form")
    assert [form.attrs["action"] for form in forms] == ["/sign-out", "/sign-out"]


def test_a_cancelled_job_shows_the_same_on_its_page_and_in_the_list(browser: Browser, farm) -> None:
    farm.add_device("node-7")
    job = farm.submit(farm.ready_model(), budget=Budget(trials=80), tuner="random")
    farm.run(steps=3)
    pause_job(farm.services, job.id)
    farm.run()
    assert farm.job(job.id).state is JobState.PAUSED
    for shown in (
        browser.page("/jobs").element("tr", id=job.id),
        browser.page(f"/jobs/{job.id}").element("dl", class_="figures"),
    ):
        assert "node-7" not in shown.text, "a paused job holds no device"
    cancel_job(farm.services, job.id)
    farm.run()
    assert farm.job(job.id).state is JobState.CANCELLED
    assert "over first round" in browser.page(f"/jobs/{job.id}").element("dl", class_="figures").text
    assert "over first round" in browser.page("/jobs").element("tr", id=job.id).text


def test_tags_and_the_note_of_a_job(browser: Browser, three) -> None:
    job = three[0]
    answer = browser.post(f"/jobs/{job.id}/labels", tags="Nightly v1.2", note="from Monday\nagain")
    assert answer.url.path == f"/jobs/{job.id}"
    page = browser.page(f"/jobs/{job.id}")
    assert [link.text for link in page.all("a", class_="tag")] == ["nightly", "v1.2"]
    assert "from Monday" in page.element("p", class_="noted").text
    assert page.element("input", id="tags").attrs["value"] == "nightly v1.2"
    for query in (
        "?tag=nightly",
        "?tag=NIGHTLY",
        "?text=monday",
        f"?text={job.id[-8:]}",
        "?tag=v1.2&text=alpha",
    ):
        assert names(browser, query) == ["Alpha.onnx"], query
    assert names(browser, "?tag=night") == []
    select = browser.page("/jobs?tag=nightly").element("select", id="tag")
    assert [option.text for option in select.all("option")] == ["any", "nightly", "v1.2"]
    assert select.element("option", selected="").text == "nightly"
    refused = browser.post(f"/jobs/{job.id}/labels", tags='b"', note="<a long> text")
    assert (refused.status_code, "is not a tag" in refused.text) == (422, True)
    form = checked(refused.text).element("form", action=f"/jobs/{job.id}/labels")
    assert form.element("input", id="tags").attrs["value"] == 'b"'
    assert form.element("textarea", id="note").text == "<a long> text", "nothing has to be written again"
    assert form.all("a", href=f"/jobs/{job.id}")
    assert browser.get(f"/jobs/{job.id}/labels").url.path == f"/jobs/{job.id}"
    browser.post(f"/jobs/{job.id}/labels", tags="", note="")
    assert browser.page(f"/jobs/{job.id}").all("a", class_="tag") == []


def test_the_ratio_over_the_best_other_runtime_is_listed(browser: Browser, farm, three) -> None:
    latency = {
        name: {"median_sec": sec, "samples_sec": [sec] * 5, "threads": 2}
        for name, sec in (("tuned", 0.01), ("untuned", 0.05), ("onnxruntime", 0.02), ("torch_compile", 0.015))
    }
    with farm.services.uow.write() as repos:
        repos.jobs.set_numbers(three[0].id, **listed_numbers({"latency": latency}))
    row = browser.page("/jobs").element("tr", id=three[0].id).text.replace("\n", " ")
    assert "1.50×" in row
    assert "over torch.compile" in row
    assert "5.00×" in row
    for order in ("speedup", "runtime"):
        assert names(browser, f"?order={order}")[0] == "Alpha.onnx"


def test_libraries_and_precision_are_shown_with_the_target(browser: Browser, farm) -> None:
    farm.add_device()
    model = farm.ready_model(Scenario(tasks=1))
    job = farm.submit(model, target="llvm -libs=dnnl", precision="float16-weights")
    farm.run()
    assert "float16-weights, -libs=dnnl" in browser.page("/jobs").text
    assert "-libs=dnnl" in browser.page(f"/jobs/{job.id}").element("p", class_="meta").text
    other = farm.submit(model)
    text = browser.page(f"/jobs/compare?job={job.id}&job={other.id}").text
    assert text.count("-libs=dnnl") == 1
