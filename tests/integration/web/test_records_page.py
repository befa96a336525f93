from __future__ import annotations

from dataclasses import fields as dataclass_fields
from dataclasses import replace

import pytest
from page_browser import Browser

from tunefarm_app.engines.scenario import Scenario
from tunefarm_db.repositories.records.records import RecordFilter
from tunefarm_db.values import NewRecord
from tunefarm_tuning.records.record import GPU_CODE, TuningRecord


@pytest.fixture
def done(farm):
    farm.add_device()
    job = farm.submit(farm.ready_model(Scenario(tasks=3, seed=5)), trials=60, tuner="random")
    farm.run()
    return farm.job(job.id)


def kernels(browser: Browser, query: str = "") -> list[str]:
    page = browser.page(f"/records{query}")
    return sorted(
        row.element("th").element("a").text
        for table in page.all("table")
        for row in table.element("tbody").all("tr")
    )


def test_without_records_it_says_so(browser: Browser) -> None:
    assert "There are no records yet" in browser.page("/records").element("main").text


def test_the_best_of_every_kernel_is_found(browser: Browser, farm, done) -> None:
    everything = ["matmul_0", "matmul_1", "matmul_2"]
    for query, expected in (
        ("", everything),
        ("?kernel=MATMUL_1", ["matmul_1"]),
        ("?kernel=conv", []),
        ("?kernel=%25", []),
        ("?device=replay-cpu", everything),
        ("?device=other", []),
        ("?target=llvm", []),
        (f"?target={done.target_key.replace(' ', '%20')}", everything),
    ):
        assert kernels(browser, query) == expected, query
    best = {task.name: task.best_cost_sec for task in farm_tasks(farm, done)}
    page = browser.page("/records")
    assert len(page.element("tbody").all("tr")) == len(best)
    assert "GFLOP/s" in page.text


def farm_tasks(farm, job):
    with farm.services.uow.read() as repos:
        return repos.jobs.tasks(job.id)


def test_a_record_and_how_it_came_to_be(browser: Browser, farm, done) -> None:
    link = browser.page("/records?kernel=matmul_2").element("tbody").element("th").element("a")
    page = browser.page(link.attrs["href"])
    assert page.element("h1").text == "matmul_2"
    assert "random in job" in page.text
    assert "i: split 64 into" in page.text
    assert [anchor for anchor in page.all("a") if anchor.attrs["href"] == f"/jobs/{done.id}"]
    (fastest,) = [table for table in page.all("table") if "fastest" in table.element("caption").text]
    assert "this record" in fastest.element("tbody").all("tr")[0].text
    assert "The best time fell from" in page.element("svg", class_="fall").attrs["aria-label"]


def test_a_record_of_a_space_that_is_gone_says_so(browser: Browser, farm, done) -> None:
    where = {"target_key": done.target_key}
    with farm.services.uow.write() as repos:
        record = repos.records.query(RecordFilter(job_id=done.id), limit=1).items[0]
        space = repos.spaces.get(record.workload_key, toolchain=record.toolchain, **where)
        repos.spaces.put(replace(space, space_key="another"))
    assert "outdated config space" in browser.page(f"/records/{record.id}").text


def test_a_record_of_a_gpu_tells_its_machine_code(browser: Browser, farm, done) -> None:
    code = {"registers": 96, "spill_bytes": 0, "stack_bytes": 0, "shared_bytes": 12288, "occupancy": 0.44}
    with farm.services.uow.write() as repos:
        record = repos.records.query(RecordFilter(job_id=done.id), limit=1).items[0]
        fields = {field.name: getattr(record, field.name) for field in dataclass_fields(NewRecord)}
        ids = repos.records.add_many(
            [NewRecord(**{**fields, "extra": extra}) for extra in ({GPU_CODE: code}, {GPU_CODE: "<b>"})]
        )
    assert "96 registers of a thread, none of them spilled, 12.3 kB of shared memory, occupancy 44 %" in (
        browser.page(f"/records/{ids[0]}").text
    )
    assert "Machine code" not in browser.page(f"/records/{ids[1]}").text


def test_a_record_tells_the_session_that_it_was_measured_in(browser: Browser, farm, done) -> None:
    with farm.services.uow.write() as repos:
        record = repos.records.query(RecordFilter(job_id=done.id), limit=1).items[0]
        fields = {field.name: getattr(record, field.name) for field in dataclass_fields(NewRecord)}
        origin = {"certificate_sha256": "0a" * 32, "ticket_jti": "ticket-of-it", "owner": "key-of-it"}
        (known,) = repos.records.add_many([NewRecord(**{**fields, **origin})])
    text = browser.page(f"/records/{known}").text
    assert "0a" * 32 in text
    assert "ticket-of-it" in text
    assert "Imported by" in text
    assert "key-of-it" in text
    assert str(record.device_id) in text
    assert "Certificate" not in browser.page(f"/records/{record.id}").text


def test_the_export_is_what_the_engine_reads(browser: Browser, done) -> None:
    link = next(anchor for anchor in browser.page("/records").all("a") if "Export" in anchor.text)
    answer = browser.get(link.attrs["href"])
    records = [TuningRecord.from_json(line) for line in answer.text.splitlines()]
    assert len(records) == 3
    assert all(record.cost_sec for record in records)
    assert "attachment" in answer.headers["content-disposition"]
    assert browser.get("/records/export?device=other").text == ""


def test_what_is_not_there(browser: Browser) -> None:
    assert browser.get("/records/rec_none").status_code == 404
    assert browser.get("/records?cursor=nonsense").status_code == 422


def test_records_by_shape_and_their_export(browser: Browser, done) -> None:
    everything = ["matmul_0", "matmul_1", "matmul_2"]
    for query, expected in (
        ("?shape=1x8", everything),
        ("?shape=8", everything),
        ("?shape=[1,+8]", everything),
        ("?shape=8x1", []),
        ("?shape=18", []),
        ("?shape=1x8&kernel=matmul_1", ["matmul_1"]),
    ):
        assert kernels(browser, query) == expected, query
        link = next(anchor for anchor in browser.page(f"/records{query}").all("a") if "Export" in anchor.text)
        assert len(browser.get(link.attrs["href"]).text.splitlines()) == len(expected)
    answer = browser.get("/records?shape=<b>")
    assert answer.status_code == 422
    assert "not a shape" in answer.text
    assert "<b>" not in answer.text


def test_the_measurements_of_a_job(browser: Browser, farm, done) -> None:
    page = browser.page(f"/jobs/{done.id}")
    (link,) = [anchor for anchor in page.all("a") if anchor.text == "Download this job's records"]
    answer = browser.get(link.attrs["href"])
    assert answer.headers["content-disposition"] == f'attachment; filename="{done.id}-records.jsonl"'
    records = [TuningRecord.from_json(line) for line in answer.text.splitlines()]
    assert len(records) == 60
    assert browser.get("/jobs/job_x/records.jsonl").status_code == 404
