from __future__ import annotations

import json
import sqlite3
from contextlib import closing

import pytest
from page_browser import Browser

from tunefarm_app.engines.scenario import Scenario
from tunefarm_app.report.numbers import set_report


@pytest.fixture
def done(farm):
    farm.add_device()
    job = farm.submit(farm.ready_model(Scenario(tasks=2, failing=0.4, seed=5)), trials=60, tuner="random")
    farm.run()
    return farm.job(job.id)


def test_a_task_with_its_trials(browser: Browser, farm, done) -> None:
    (link,) = [anchor for anchor in browser.page(f"/jobs/{done.id}").all("a") if anchor.text == "matmul_1"]
    page = browser.page(link.attrs["href"])
    trials = [trial for trial in farm.trials(done.id) if trial.position == 1]
    ends, schedule, messages = page.all("table")
    counted = {
        row.element("th").text.split()[1]: int(row.all("td")[-1].text)
        for row in ends.element("tbody").all("tr")
    }
    assert sum(counted.values()) == len(trials)
    assert counted["ok"] == sum(trial.outcome == "ok" for trial in trials)
    assert "so the landscape has it" in messages.text
    best = min((trial for trial in trials if trial.cost_sec), key=lambda trial: trial.cost_sec)
    _, (unroll, i, j) = json.loads(best.config_key)
    text = schedule.text
    assert f"i: split 64 into {' × '.join(map(str, i))}" in text
    assert f"j: split 64 into {' × '.join(map(str, j))}" in text
    assert f"unroll {(0, 16, 64, 512)[unroll]}" in text
    assert page.element("a", rel="prev").attrs["href"] == f"/jobs/{done.id}/tasks/0"
    assert page.all("a", rel="next") == []


def test_a_best_time_that_was_measured_again_is_of_this_job(browser: Browser, farm, done) -> None:
    with farm.services.uow.write() as repos:
        best_sec = repos.jobs.tasks(done.id)[1].best_cost_sec
        repos.jobs.update_task(done.id, 1, best_cost_sec=0.9 * best_sec, confirmations=1)
    text = browser.page(f"/jobs/{done.id}/tasks/1").text
    assert "were measured again when the search ended" in text
    assert "is from another job" not in text
    with farm.services.uow.write() as repos:
        repos.jobs.update_task(done.id, 1, confirmations=0)
    assert "is from another job" in browser.page(f"/jobs/{done.id}/tasks/1").text


def test_it_says_where_a_library_is_ahead(browser: Browser, farm, done) -> None:
    with farm.services.uow.write() as repos:
        key = repos.jobs.tasks(done.id)[0].workload_key
        candidate = {
            "workload_key": key, "name": "matmul_0", "algorithm": "onednn", "library": "onednn 3.9", "chosen": False,
            "reason": "the network gains nothing", "weight": 1, "direct_sec": 0.15e-3, "sum_sec": 0.12e-3,
        }  # fmt: skip
        set_report(repos, done.id, {"alternatives": {"candidates": [candidate]}})
    note = (
        "oneDNN 3.9 computes this kernel in 120 µs, 0.8 of our best (150 µs). The artifact does not use it."
    )
    assert note in browser.page(f"/jobs/{done.id}/tasks/0").text
    assert "oneDNN" not in browser.page(f"/jobs/{done.id}/tasks/1").text
    report = browser.get(f"/jobs/{done.id}/report").text
    assert "Where the library is faster" in report
    assert "oneDNN 3.9" in report


def test_the_points_are_its_trials_in_order(browser: Browser, farm, done) -> None:
    data = browser.get(f"/jobs/{done.id}/tasks/0/trials.json").json()
    trials = [trial for trial in farm.trials(done.id) if trial.position == 0]
    assert data["trials"] == len(trials) == len(data["ms"])
    assert [ms is None for ms in data["ms"]] == [trial.cost_sec is None for trial in trials]
    assert data["failed"] == [trial.outcome != "ok" for trial in trials]
    assert data["best"][-1] == pytest.approx(min(ms for ms in data["ms"] if ms is not None))


def test_a_task_without_trials(browser: Browser, farm) -> None:
    farm.add_device()
    job = farm.submit(farm.ready_model(), tuner="random")
    farm.run(steps=1)
    page = browser.page(f"/jobs/{job.id}/tasks/0")
    assert "There are no trials yet." in page.text
    assert "No schedule has worked yet." in page.text
    assert browser.get(f"/jobs/{job.id}/tasks/0/trials.json").json()["ms"] == []


def test_a_kernel_without_floating_point_operations_does_not_blame_the_device(browser: Browser, farm) -> None:
    farm.add_device()
    job = farm.submit(farm.ready_model(), tuner="random")
    farm.run(steps=1)
    path = farm.services.settings.database_url.get_secret_value().removeprefix("sqlite:///")
    with closing(sqlite3.connect(path, timeout=60.0)) as database, database:
        database.execute("UPDATE workloads SET flops = 0")
    page = browser.page(f"/jobs/{job.id}/tasks/0")
    assert "the kernel has no floating-point operations" in page.text
    assert "the peak is unknown" not in page.text


def test_how_near_its_best_is_to_what_the_device_can_do(browser: Browser, farm) -> None:
    device = farm.add_device()
    job = farm.submit(farm.ready_model(Scenario(tasks=1)), trials=8, tuner="random")
    farm.run()
    page = browser.page(f"/jobs/{job.id}/tasks/0")
    assert "– the peak is unknown" in page.text
    assert "Of its roofline – the peak is unknown" in page.text
    (row,) = browser.page(f"/jobs/{job.id}").element("table").element("tbody").all("tr")
    assert [cell.text for cell in row.all("td")].count("–") == 1
    farm.note_peak(device, flops_per_sec=10e9)
    (trial_sec,) = [min(trial.cost_sec for trial in farm.trials(job.id) if trial.cost_sec)]
    share = 1e6 / trial_sec / 20e9
    text = f"{share * 100:.0f} %" if share >= 0.0995 else f"{share * 100:.1f} %"
    page = browser.page(f"/jobs/{job.id}/tasks/0")
    assert f"Of the device's peak {text} of 20.0 GFLOP/s on all cores" in page.text
    assert f"Of its roofline {text} 20.0 GFLOP/s, bound by compute at 31,250 FLOP per byte" in page.text
    (row,) = browser.page(f"/jobs/{job.id}").element("table").element("tbody").all("tr")
    assert text in [cell.text for cell in row.all("td")]


def test_what_is_not_there(browser: Browser, done) -> None:
    for path in (f"/jobs/{done.id}/tasks/2", f"/jobs/{done.id}/tasks/2/trials.json", "/jobs/job_x/tasks/0"):
        assert browser.get(path).status_code == 404
    assert browser.get(f"/jobs/{done.id}/tasks/-1").status_code == 422
