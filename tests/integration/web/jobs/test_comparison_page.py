from __future__ import annotations

from page_browser import Browser

from tunefarm_api.web.jobs.comparison_page import HEIGHT, WIDTH, chart_of
from tunefarm_app.engines.replay import Scenario
from tunefarm_app.report.comparison import compare_jobs


def test_jobs_are_chosen_and_compared(browser: Browser, farm) -> None:
    assert "There are no jobs yet." in browser.page("/jobs/compare").element("main").text
    farm.add_device()
    model = farm.ready_model(Scenario(tasks=3))
    jobs = [farm.submit(model, trials=trials) for trials in (24, 96)]
    farm.run()
    assert browser.page(f"/jobs/{jobs[0].id}").all("a", href=f"/jobs/compare?job={jobs[0].id}")
    page = browser.page(f"/jobs/compare?job={jobs[0].id}")
    boxes = {box.attrs["value"]: "checked" in box.attrs for box in page.all("input", name="job")}
    assert boxes == {jobs[0].id: True, jobs[1].id: False}
    assert not page.all("svg", class_="curves")

    page = browser.page(f"/jobs/compare?job={jobs[0].id}&job={jobs[1].id}")
    captions = [caption.text for caption in page.all("caption")]
    assert captions[0] == "The jobs"
    assert captions[1].startswith("Kernels")
    assert len(page.all("polyline")) == 2
    with farm.services.uow.read() as repos:
        comparison = compare_jobs(repos, [job.id for job in jobs])
    assert len(page.all("tr")) == 2 + len(jobs) + len(comparison.kernels)
    fastest = [cell.text for row in page.all("tr") for cell in row.all("strong")]
    assert len(fastest) == sum(kernel.best is not None for kernel in comparison.kernels)
    chart = chart_of(comparison.jobs)
    assert chart is not None
    for line in chart.lines:
        points = [tuple(map(float, point.split(","))) for point in line.split()]
        assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in points)
        assert [x for x, _ in points] == sorted(x for x, _ in points)
        assert [y for _, y in points] == sorted(y for _, y in points), "times fall, so the line goes down"


def test_too_many_and_unknown_jobs(browser: Browser, farm) -> None:
    farm.add_device()
    model = farm.ready_model(Scenario(tasks=1))
    ids = [farm.submit(model, trials=8, seed=seed).id for seed in range(7)]
    page = browser.page("/jobs/compare?" + "&".join(f"job={job_id}" for job_id in ids))
    assert "at most 6" in page.element("p", role="alert").text
    assert browser.get("/jobs/compare?job=job_none").status_code == 404


def test_the_job_that_the_page_was_opened_for_is_offered(browser: Browser, farm) -> None:
    farm.add_device()
    model = farm.ready_model(Scenario(tasks=1))
    ids = [farm.submit(model, trials=8, seed=seed).id for seed in range(14)]
    page = browser.page(f"/jobs/compare?job={ids[0]}")
    boxes = {box.attrs["value"]: "checked" in box.attrs for box in page.all("input", name="job")}
    assert boxes[ids[0]]
    assert len(boxes) == 12
