"""Values in a REPL and a notebook: a line, a table; no markup in them has an effect."""

from __future__ import annotations

from typing import Any

import pytest

from tunefarm.client import Device, Event, Job, JobTask, Model, ModelTask, Page, Record, ReportPage, Trial

JOB = {
    "id": "job_1",
    "state": "tuning",
    "trials": 24,
    "failures": 2,
    "best_latency_sec": 0.00123,
    "target_key": "llvm",
    "progress": {"tasks_total": 6, "tasks_with_record": 5},
}


def test_a_line() -> None:
    line = "state tuning, target llvm, trials 24 (2 failed), kernels 5 of 6 measured, latency 1.23 ms (estimate)>"
    assert repr(Job.read(JOB)) == f"<Job job_1: {line}"
    assert (
        repr(Device.read({"id": "dev_1", "name": "here", "state": "online"}))
        == "<Device dev_1: name here, state online>"
    )


def test_alternatives_are_no_kernels_of_the_network() -> None:
    """A page said "7 of 7 kernels measured" beside "5 of 6 kernels tuned"."""
    progress = {
        "tasks_total": 7, "tasks_with_record": 7, "alternatives_total": 1, "alternatives_with_record": 1
    }  # fmt: skip
    job = Job.read({**JOB, "progress": progress})
    assert job.progress.to_tune_text == "6 kernels to tune, and 1 alternative to them"
    assert job.kernels_text == "6 of 6 measured, and 1 of 1 alternative to them"
    assert "kernels 6 of 6 measured, and 1 of 1 alternative to them" in repr(job)
    timed = {"number": 1, "tasks": 6, "covered": 5, "latency_sec": 0.01}
    assert Job.read({**JOB, "progress": progress, "networks": [timed]}).kernels_text == (
        f"{job.kernels_text}; 5 of 6 kernels tuned in the network so far: the others are faster untuned, or were measured later"
    )
    for other in ({"networks": [{**timed, "covered": 6}]}, {"networks": [timed], "artifact_id": "art_1"}):
        assert Job.read({**JOB, "progress": progress, **other}).kernels_text == job.kernels_text
    older = Job.read({**JOB, "progress": {"tasks_total": 7, "tasks_with_record": 7}})
    assert older.kernels_text == "7 of 7 measured", "of a server that does not tell them apart"


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (
            Model,
            {"id": "mdl_1", "state": "ready", "inputs": [{"name": "x", "shape": [1, 3], "dtype": "float32"}]},
        ),
        (ModelTask, {"name": "conv", "workload_key": "w"}),
        (Job, JOB),
        (JobTask, {"position": 0, "name": "conv", "workload_key": "w", "best_cost_sec": 1e-3}),
        (Trial, {"outcome": "ok", "cost_sec": 1e-3}),
        (Record, {"workload_key": "w", "outcome": "ok"}),
        (Event, {"seq": 1, "kind": "phase", "data": {"to": "tuning"}}),
        (Device, {"id": "dev_1", "state": "online"}),
    ],
)
def test_every_kind(kind: Any, data: dict[str, Any]) -> None:
    value = kind.read(data)
    assert repr(value).startswith(f"<{kind.__name__} ")
    assert "\n" not in repr(value)
    assert value._repr_html_().startswith("<table><tr><th")
    page = Page.read({"items": [data, data], "next_cursor": "more"}, kind.read)
    assert page._repr_html_().count("<tr>") == 3
    assert "more" in page._repr_html_()


def test_a_strangers_name_is_text() -> None:
    model = Model.read({"id": "mdl_1", "state": "ready", "name": "<script>\x1b[31m\n" + "x" * 1000})
    assert "\x1b" not in repr(model)
    assert "\n" not in repr(model)
    assert len(repr(model)) < 400
    assert "<script>" not in model._repr_html_()
    assert "&lt;script&gt;" in model._repr_html_()


def test_a_page_is_like_a_list() -> None:
    page = Page.read({"items": [JOB, JOB]}, Job.read)
    assert [job.id for job in page] == ["job_1", "job_1"]
    assert len(page) == 2
    assert page[0] == page[-1]
    assert not Page(items=())
    assert Page(items=())._repr_html_() == "<em>none</em>"


def test_a_job_and_its_report(server: Any, client: Any, make_reply: Any) -> None:
    server.replies = [make_reply(body=JOB)]
    job = client.job("job_1")
    assert "job_1: state tuning" in repr(job)
    assert job._repr_html_() == job.job._repr_html_()
    html = '<!doctype html><p class="a">é</p>'
    server.replies = [make_reply(body=html.encode(), content_type="text/html")]
    page = job.report_page()
    assert page == ReportPage(html=html)
    assert server.requests[-1].path == "/v1/jobs/job_1/report.html"
    assert "sandbox" in page._repr_html_()
    assert "&lt;p class=&quot;a&quot;&gt;" in page._repr_html_()
    assert "kB" in repr(page)


def test_minutes(server: Any, client: Any, make_reply: Any) -> None:
    server.replies = [make_reply(body=JOB)]
    client.jobs.create("mdl_1", minutes=2)
    client.jobs.check(minutes=1, job_seconds=30)
    client.job("job_1").change(search_minutes=3)
    client.jobs.check(search_minutes=1, seconds=30)
    budgets = [request.json["budget"] for request in server.requests if request.body]
    assert budgets == [{"job_sec": 120.0}, {"job_sec": 90.0}, {"wall_sec": 180.0}, {"wall_sec": 90.0}]
