from __future__ import annotations

import pytest
from page_browser import Browser
from page_tree import Element
from sqlalchemy import event, insert, update

from tunefarm_api.web.charts.curve import Curves
from tunefarm_api.web.jobs import job_page, job_rows
from tunefarm_app.engines.scenario import Scenario
from tunefarm_app.report.numbers import set_report
from tunefarm_db.tables import EventRow, JobRow

REPORT = {
    "latency": {
        "onnxruntime": {"median_sec": 0.0582, "samples_sec": [0.057, 0.0582, 0.06], "threads": 2},
        "untuned": {"median_sec": 0.148, "samples_sec": [0.147, 0.148, 0.15], "threads": 2},
        "tuned": {"median_sec": 0.0627, "samples_sec": [0.062, 0.0627, 0.064], "threads": 2},
        "onnxruntime_missing": None,
        "speedup_over_untuned": 0.148 / 0.0627,
        "speedup_over_onnxruntime": 0.0582 / 0.0627,
    },
    "warnings": ["the machine was busy"],
    "phases_sec": {"build-model": 1.0, "check-model": 1e-6, "measure": 1e-6},
    "coverage": {"tasks": 2, "covered": 2},
}


def give_report(farm, job, report) -> None:
    with farm.services.uow.write() as repos:
        set_report(repos, job.id, report)


def test_a_finished_job(browser: Browser, farm, done) -> None:
    page = browser.page(f"/jobs/{done.id}")
    phases = page.element("ol", class_="phases").all("li")
    assert [phase.attrs["class"] for phase in phases] == ["done"] * len(phases)
    assert all("s" in phase.element("span", class_="took").text for phase in phases[:4])
    assert "60" in page.element("dl", class_="figures").text
    assert "the limit of trials was reached" in page.text
    kernels = page.all("table")[0]
    assert kernels.element("caption").text == "Kernels"
    rows = kernels.element("tbody").all("tr")
    assert len(rows) == 3
    shares = [float(row.element("progress").attrs["value"]) for row in rows]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(1.0, abs=0.01)
    assert all("GFLOP/s" in row.text for row in rows)
    assert all(row.element("polyline").attrs["points"] for row in rows)
    assert {form.attrs["action"] for form in page.all("form")} == {
        "/sign-out",
        *(f"/jobs/{done.id}/{command}" for command in ("labels", "measure")),
    }


def test_where_the_time_went(browser: Browser, done) -> None:
    page = browser.page(f"/jobs/{done.id}")
    bar = page.element("svg", class_="time-bar")
    widths = [float(part.attrs["width"]) for part in bar.all("rect")]
    assert sum(widths) == pytest.approx(1000, abs=25)
    assert "the farm's own work" in page.element("ul", class_="time-list").text
    trace = browser.get(f"/jobs/{done.id}/trace.json")
    assert trace.headers["content-disposition"] == f'attachment; filename="{done.id}-trace.json"'
    assert trace.json()["traceEvents"]


def test_the_artifact_can_be_downloaded(browser: Browser, farm, done) -> None:
    page = browser.page(f"/jobs/{done.id}")
    (link,) = [anchor for anchor in page.all("a") if anchor.text.startswith("Artifact")]
    assert "tunefarm run net.tunefarm" in page.text
    answer = browser.get(link.attrs["href"])
    with farm.services.uow.read() as repos:
        artifact = repos.artifacts.for_job(done.id)
    assert answer.headers["etag"] == f'"{artifact.sha256}"'
    assert len(answer.content) == artifact.size_bytes
    assert artifact.sha256 in page.text


def test_measured_latencies_are_shown_with_their_spread(browser: Browser, farm, done) -> None:
    give_report(farm, done, REPORT)
    page = browser.page(f"/jobs/{done.id}")
    table = next(
        candidate for candidate in page.all("table") if "Measured" in candidate.element("caption").text
    )
    assert "58.2 ms 57 ms to 60 ms, 2 threads 0.93×" in table.text
    assert "2.36×" in page.element("dl", class_="figures").text
    assert "over untuned, measured; 0.93× over ONNX Runtime" in page.text
    assert "The machine was busy." in page.text
    verify = page.element("ol", class_="phases").all("li")[-1]
    assert "verify" in verify.text
    curve = browser.get(f"/jobs/{done.id}/curve.json").json()
    assert [baseline["key"] for baseline in curve["baselines"]] == ["onnxruntime", "untuned", "tuned"]
    assert curve["baselines"][0]["ms"] == pytest.approx(58.2)
    assert "2.36×" in browser.page("/jobs").element("tr", id=done.id).text


def test_what_runs_tuned_in_the_artifact_and_what_does_not(browser: Browser, farm, done) -> None:
    with farm.services.uow.read() as repos:
        keys = [task.workload_key for task in repos.jobs.tasks(done.id)]
    misses = [
        {"workload_key": keys[1], "name": "x", "weight": 1, "reason": "slower-than-untuned", "message": ""}
    ]
    coverage = {"tasks": 2, "covered": 1, "hits": [{"workload_key": keys[0]}], "misses": misses}
    give_report(farm, done, {**REPORT, "coverage": coverage})
    rows = {
        row.element("a").text: row.text for row in browser.page(f"/jobs/{done.id}").all("tr") if row.all("a")
    }
    assert "✓ tuned" in rows["matmul_0"]
    assert "the tuned form is slower than the untuned one" in rows["matmul_1"]
    assert "tuned" not in rows["matmul_2"]


def test_a_missing_baseline_says_why(browser: Browser, farm, done) -> None:
    latency = {**REPORT["latency"], "onnxruntime": None, "onnxruntime_missing": "another device model"}
    give_report(farm, done, {**REPORT, "latency": latency})
    assert "another device model" in browser.page(f"/jobs/{done.id}").text


def test_torch_compile_has_a_line_where_it_was_asked_for(browser: Browser, farm, done) -> None:
    assert "torch.compile" not in browser.page(f"/jobs/{done.id}").text
    latency = {**REPORT["latency"], "torch_compile": None, "torch_compile_missing": "no PyTorch there"}
    give_report(farm, done, {**REPORT, "latency": latency})
    page = browser.page(f"/jobs/{done.id}").text
    assert "PyTorch, torch.compile" in page
    assert "no PyTorch there" in page


def test_each_set_of_shapes_has_a_line(browser: Browser, farm, done) -> None:
    give_report(farm, done, {**REPORT, "shapes": [], "other_shapes": None})
    plain = browser.page(f"/jobs/{done.id}")
    assert "set of shapes" not in plain.text
    assert "ther shapes" not in plain.text
    wide = {
        "weight": 3,
        "inputs": [
            {"name": "x", "shape": [8, 3, 320], "dtype": "float32"},
            {"name": "<b>", "shape": [8], "dtype": "int64"},
        ],
        "latency": REPORT["latency"],
        "batches": [5, 6, 7],
        "fallback": None,
    }
    slow = {
        "weight": 1,
        "inputs": [{"name": "x", "shape": [1, 3, 160], "dtype": "float32"}],
        "latency": {"tuned": {"median_sec": 0.002}, "untuned": {"median_sec": 0.002}, "onnxruntime": None},
        "batches": [],
        "fallback": "it is slower",
    }
    others = {
        "entry": "main_2",
        "reason": None,
        "inputs": [{"name": "x", "shape": ["batch", 3, "width"], "dtype": "float32"}],
        "latency_sec": 0.085,
    }
    give_report(farm, done, {**REPORT, "shapes": [wide, slow], "other_shapes": others})
    page = browser.page(f"/jobs/{done.id}")
    table = next(table for table in page.all("table") if "each set" in table.element("caption").text)
    first, second = [
        [cell.text for cell in (row.element("th"), *row.all("td"))]
        for row in table.element("tbody").all("tr")
    ]
    assert first == [
        "x 8×3×320, <b> 8", "3", "62.7 ms", "148 ms", "58.2 ms", "0.93×", "5, 6, 7",
    ]  # fmt: skip
    assert second == ["x 1×3×160 untuned: it is slower", "1", "2 ms", "2 ms", "–", "–", "–"]
    assert (
        "Other shapes of x batch×3×width run untuned code for all sizes. In the main shapes, that code takes 85 ms"
        in page.text
    )
    refused = {"entry": None, "reason": "there is no such code for GPUs"}
    give_report(farm, done, {**REPORT, "other_shapes": refused})
    assert "runs no other shapes: there is no such code for GPUs." in browser.page(f"/jobs/{done.id}").text


def test_the_curve_falls(browser: Browser, farm, done) -> None:
    answer = browser.get(f"/jobs/{done.id}/curve.json")
    curve = answer.json()
    assert len(curve["sec"]) == len(curve["trials"]) == len(curve["ms"]) > 1
    assert curve["trials"] == sorted(curve["trials"])
    assert curve["ms"][-1] == pytest.approx(farm.job(done.id).best_latency_sec * 1e3)
    assert curve["seq"] <= farm.job(done.id).event_seq
    again = browser.get(f"/jobs/{done.id}/curve.json", **{"If-None-Match": answer.headers["etag"]})
    assert again.status_code == 304


def test_without_a_search_no_curve_is_announced(browser: Browser, farm, done) -> None:
    compiled = farm.submit(farm.model(done.model_id), search=False)
    assert browser.get(f"/jobs/{compiled.id}/curve.json").json()["blank"] == "There is no search."


def test_an_earlier_job_lends_its_baselines(browser: Browser, farm, done) -> None:
    give_report(farm, done, REPORT)
    model = farm.model(done.model_id)
    later = farm.submit(model, trials=8, tuner="random")
    elsewhere = farm.submit(model, trials=8, tuner="random", target="llvm -num-cores=3")
    lent = browser.get(f"/jobs/{later.id}/curve.json").json()["baselines"]
    assert [baseline["name"] for baseline in lent] == [
        f"{name}, in an earlier job" for name in ("ONNX Runtime", "untuned", "the artifact (tuned)")
    ]
    assert browser.get(f"/jobs/{elsewhere.id}/curve.json").json()["baselines"] == []


def test_what_is_left_is_the_same_after_a_restart(browser: Browser, farm, monkeypatch) -> None:
    farm.add_device()
    job = farm.submit(farm.ready_model(Scenario(trial_sec=0.001)), trials=400, tuner="random")
    for _ in range(6):
        farm.run(steps=2)
        before = browser.page(f"/jobs/{job.id}").element("dl", class_="figures").text
    assert "Time left" in before
    assert "at the current pace" in before
    monkeypatch.setattr(job_rows, "_curves", Curves())
    assert browser.page(f"/jobs/{job.id}").element("dl", class_="figures").text == before


def test_the_curve_goes_on_where_it_was(browser: Browser, farm, running) -> None:
    before = browser.get(f"/jobs/{running.id}/curve.json").json()
    farm.run(steps=3)
    after = browser.get(f"/jobs/{running.id}/curve.json").json()
    assert after["seq"] > before["seq"]
    assert after["trials"][-1] > max(before["trials"], default=0)


def test_a_job_of_100_000_trials_costs_no_more_questions(browser: Browser, farm, running) -> None:
    """Nor a longer page, nor a longer curve than can be seen."""
    statements: list[str] = []
    event.listen(
        farm.services.uow.engine,
        "before_cursor_execute",
        lambda *event_args: statements.append(event_args[2]),
    )

    def look() -> tuple[Element, dict[str, list[float]], int]:
        statements.clear()
        page = browser.page(f"/jobs/{running.id}")
        return page, browser.get(f"/jobs/{running.id}/curve.json").json(), len(statements)

    *_, few = look()
    rows = [
        {
            "job_id": running.id,
            "seq": running.event_seq + 1 + number,
            "kind": "round",
            "data": {
                "round": number,
                "position": 0,
                "task": "matmul_0",
                "outcomes": {"ok": 7, "build-error": 1},
                "trials": 8 * number,
                "tuned_sec": float(number),
                "best_latency_sec": 1.0 / (1 + number % 5000),
                "best_cost_sec": 1e-3,
            },
        }
        for number in range(12_500)
    ]
    with farm.services.uow.engine.begin() as connection:
        connection.execute(insert(EventRow), rows)
        connection.execute(update(JobRow).values(event_seq=running.event_seq + len(rows)))
    page, curve, questions = look()
    assert questions <= few + 2  # the log has an older page then
    assert 100 < len(curve["ms"]) <= 600
    assert len(page.element("ol", class_="log").all("li")) == 40


def test_a_region_is_renewed_without_the_rest(browser: Browser, done) -> None:
    page_text = browser.get(f"/jobs/{done.id}").text
    for part, other in (("head", "kernels-and-log"), ("kernels-and-log", "head")):
        answer = browser.get(f"/jobs/{done.id}", **{"HX-Request": "true", "HX-Target": part})
        assert f'<div id="{part}"' in answer.text
        assert f'<div id="{other}"' not in answer.text
        assert answer.headers["cache-control"] == "no-store"
        assert " ".join(answer.text.split()) in " ".join(page_text.split())


def test_of_very_many_kernels_the_longest_are_shown(browser: Browser, farm) -> None:
    farm.add_device()
    job = farm.submit(farm.ready_model(Scenario(tasks=60)), trials=16, tuner="random")
    farm.run(steps=3)
    few = browser.page(f"/jobs/{job.id}?rounds=false")
    assert len(few.all("table")[0].element("tbody").all("tr")) == job_page.TASKS_SHOWN
    (more,) = [anchor for anchor in few.all("a") if anchor.text == "Show all 60 kernels"]
    every = browser.page(more.attrs["href"])
    assert len(every.all("table")[0].element("tbody").all("tr")) == 60
    assert every.element("div", id="kernels-and-log").attrs["hx-get"] == more.attrs["href"]
    assert few.element("div", id="kernels-and-log").attrs["hx-get"] == f"/jobs/{job.id}?rounds=false"


def test_the_log_goes_back_to_the_beginning(browser: Browser, farm, done) -> None:
    newest = farm.job(done.id).event_seq
    seen: list[int] = []
    url = f"/jobs/{done.id}"
    for _ in range(10):
        page = browser.page(url)
        seen += [int(number.text) for number in page.element("ol", class_="log").all("span", class_="seq")]
        older = [anchor for anchor in page.all("a") if anchor.text == "Older"]
        if not older:
            break
        url = older[0].attrs["href"].partition("#")[0]
    assert seen == list(range(newest, 0, -1))
    quiet = browser.page(f"/jobs/{done.id}?rounds=false").element("ol", class_="log")
    assert "round" not in [kind.text for kind in quiet.all("span", class_="kind")]
    assert "queued for the pool pool" in quiet.text
