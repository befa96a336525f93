"""What a job's page shows of its report: speed-ups as far as they are known, and what became of each kernel."""

from __future__ import annotations

from page_browser import Browser

from tunefarm_app.engines.scenario import Scenario
from tunefarm_app.report.numbers import set_report

COVERED = {"coverage": {"tasks": 2, "covered": 2}}


def give_report(farm, job, report) -> None:
    with farm.services.uow.write() as repos:
        set_report(repos, job.id, report)


def test_a_speed_up_is_told_as_far_as_it_is_known(browser: Browser, farm, done) -> None:
    samples = {"tuned": [0.01, 0.02, 0.03, 0.01, 0.02], "untuned": [0.02] * 5, "onnxruntime": [0.04] * 5}
    latency = {
        "onnxruntime_missing": None,
        **{
            name: {"median_sec": sorted(sec)[2], "samples_sec": sec, "threads": 2}
            for name, sec in samples.items()
        },
    }
    disturbed = {"blocks": 9, "dropped": 4, "slowdown": 1.5, "others_cores": 0.8}
    latency["tuned"] = {**latency["tuned"], "disturbance": disturbed}
    give_report(farm, done, {**COVERED, "latency": latency})
    page = browser.page(f"/jobs/{done.id}")
    row = next(row for row in page.all("tr") if row.text.startswith("ONNX Runtime"))
    assert "between 0.96 and 10×" in row.text
    assert "20 ms measured, disturbed by other work" in " ".join(
        page.element("div", id="latency").text.split()
    )
    figures = page.element("dl", class_="figures").text
    assert "between 0.96 and 10× over ONNX Runtime" in figures
    assert "over untuned, measured: the timings do not tell" in figures
    assert "4 timings of 9 do not count. Measure again on a quiet device." in page.text
    listed = browser.page("/jobs").text
    assert "between 0.48 and 5.2×" in listed
    assert "over untuned: the timings do not tell" in listed
    mild = {**latency["tuned"], "samples_sec": [0.019, 0.02, 0.021, 0.022, 0.023]}
    give_report(farm, done, {**COVERED, "latency": {**latency, "tuned": mild}})
    page = browser.page(f"/jobs/{done.id}")
    assert "between 1." in page.element("dl", class_="figures").text
    assert "disturbed by other work" not in page.element("div", id="latency").text
    wild = {**latency["tuned"], "median_sec": 0.05, "samples_sec": [0.0005, 0.9, 0.05, 2.0, 0.05]}
    give_report(farm, done, {**COVERED, "latency": {**latency, "tuned": wild}})
    latency_shown = browser.page(f"/jobs/{done.id}").element("div", id="latency").text
    assert "50 ms measured, disturbed by other work" in " ".join(latency_shown.split())
    assert "measured, disturbed" in browser.page("/jobs").text
    quiet = {**latency, "tuned": {"median_sec": 0.01, "samples_sec": [0.01] * 5, "threads": 2}}
    give_report(farm, done, {**COVERED, "latency": quiet})
    page = browser.page(f"/jobs/{done.id}").text
    assert "between" not in page
    assert "2.00× over untuned" in page.replace("\n", " ")
    assert "Measure again on a quiet device" not in page


def test_what_was_not_tried_and_what_runs_as_another_algorithm(browser: Browser, farm, done) -> None:
    with farm.services.uow.write() as repos:
        tasks = repos.jobs.tasks(done.id)
        keys = [task.workload_key for task in tasks]
        repos.jobs.update_task(done.id, tasks[2].position, trials=0, best_cost_sec=None)
    misses = [
        {"workload_key": key, "name": "x", "weight": 1, "reason": "no-record", "message": ""}
        for key in keys[1:]
    ]
    chosen = {"workload_key": keys[1], "algorithm": "winograd-4", "chosen": True, "sum_sec": 1e-4}
    report = {
        **COVERED,
        "coverage": {"tasks": 3, "covered": 1, "hits": [{"workload_key": keys[0]}], "misses": misses},
        "kernels": [{"workload_key": keys[0], "untuned_sec": [0.9e-3] * 3, "tuned_sec": [1e-3] * 3}],
        "alternatives": {"candidates": [chosen]},
    }
    give_report(farm, done, report)
    page = browser.page(f"/jobs/{done.id}")
    rows = {row.element("a").text: row.text for row in page.all("tr") if row.all("a")}
    assert "no faster" in rows["matmul_0"]
    assert "✓ tuned" not in rows["matmul_0"]
    assert "✓ by Winograd" in rows["matmul_1"]
    assert "not tried by a search yet" in rows["matmul_2"]
    assert "The search ended before 1 kernel of 3" in page.text
    curve = browser.get(f"/jobs/{done.id}/curve.json").json()
    assert (
        curve["blank"]
        == "2 of 3 kernels measured. The curve is the sum of all kernels, so there is no curve."
    )


def test_the_share_of_the_shown_kernels_is_of_those_that_were_timed(browser: Browser, farm) -> None:
    farm.add_device()
    job = farm.submit(farm.ready_model(Scenario(tasks=60)), trials=8, tuner="random")
    farm.run()
    with farm.services.uow.read() as repos:
        keys = [task.workload_key for task in repos.jobs.tasks(job.id)]
    misses = [
        {"workload_key": key, "name": "x", "weight": 1, "reason": "no-record", "message": ""}
        for key in keys[2:]
    ]
    timed = [{"workload_key": key, "untuned_sec": [1e-3], "tuned_sec": [1e-3]} for key in keys[:2]]
    give_report(
        farm,
        job,
        {
            "coverage": {
                "tasks": 60,
                "covered": 2,
                "hits": [{"workload_key": key} for key in keys[:2]],
                "misses": misses,
            },
            "kernels": timed,
            "latency": {"tuned": {"median_sec": 0.1, "samples_sec": [0.1], "threads": 2}},
        },
    )
    note = browser.page(f"/jobs/{job.id}").element("p", class_="more-rows").text
    assert "of these 40 that were timed take" in note


def test_kernels_that_took_longer_than_the_network_are_told(browser: Browser, farm, done) -> None:
    with farm.services.uow.read() as repos:
        keys = [task.workload_key for task in repos.jobs.tasks(done.id)]
    names = ("tuned", "untuned", "onnxruntime")
    samples = {name: {"median_sec": 1e-3, "samples_sec": [1e-3] * 5, "threads": 2} for name in names}
    report = {
        "coverage": {"tasks": 3, "covered": 1, "hits": [{"workload_key": keys[0]}], "misses": []},
        "kernels": [{"workload_key": keys[0], "untuned_sec": [9e-3] * 3, "tuned_sec": [3.01e-3] * 3}],
        "latency": {"onnxruntime_missing": None, **samples},
    }
    give_report(farm, done, report)
    with farm.services.uow.read() as repos:
        times = next(task.weight for task in repos.jobs.tasks(done.id) if task.workload_key == keys[0])
    page = browser.page(f"/jobs/{done.id}").element("p", id="kernels-note").text
    assert "longer than the network (1.00 ms)" in page
    assert "other work disturbed their timing" in page
    quick = [{**report["kernels"][0], "untuned_sec": [0.9e-3 / times] * 3, "tuned_sec": [0.5e-3 / times] * 3}]
    give_report(farm, done, {**report, "kernels": quick})
    assert "other work disturbed their timing" not in browser.page(f"/jobs/{done.id}").text


def test_a_kernel_that_gained_less_than_is_written_is_no_faster(browser: Browser, farm, done) -> None:
    with farm.services.uow.read() as repos:
        key = repos.jobs.tasks(done.id)[0].workload_key
    kernel = {"workload_key": key, "untuned_sec": [1.003e-3] * 3, "tuned_sec": [1e-3] * 3}
    hits = {"coverage": {"tasks": 3, "covered": 1, "hits": [{"workload_key": key}], "misses": []}}
    give_report(farm, done, {**hits, "kernels": [kernel]})
    page = browser.page(f"/jobs/{done.id}")
    row = next(row.text for row in page.all("tr") if row.all("a") and row.element("a").text == "matmul_0")
    assert "1.00×" in row
    assert "no faster" in row
