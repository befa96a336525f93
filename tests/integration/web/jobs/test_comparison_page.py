from __future__ import annotations

from page_browser import Browser
from timing_engine import note_timing

from tunefarm_api.web.jobs.comparison_page import HEIGHT, WIDTH, chart_of
from tunefarm_app.engines.scenario import Scenario
from tunefarm_app.report.comparison import compare_jobs
from tunefarm_app.report.sections import ReportRatio


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
    assert len(page.all("tr")) == 2 + len(jobs) + len(comparison.kernels), "both jobs have all kernels"
    fastest = [cell.text for row in page.all("tr") for cell in row.all("strong")]
    assert len(fastest) == sum(kernel.best is not None for kernel in comparison.kernels)
    assert "1 call" in page.text
    chart = chart_of(comparison.jobs)
    assert chart is not None
    assert not chart.has_artifacts, "a simulation times no network"
    assert not chart.has_points
    for line in chart.lines:
        assert (line.measured, line.dots) == ("", ())
        points = inside(line.sums)
        assert [x for x, _ in points] == sorted(x for x, _ in points)
        assert [y for _, y in points] == sorted(y for _, y in points), "times fall, so the line goes down"
    assert "Thin dashed curves are estimates" in page.text
    assert "Points are measured latencies" not in page.text


def inside(line: str) -> list[tuple[float, float]]:
    points = [(float(x), float(y)) for x, y in (point.split(",") for point in line.split())]
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in points)
    return points


def test_the_networks_own_points_are_drawn_and_sums_are_called_estimates(browser: Browser, farm) -> None:
    farm.add_device()
    model = farm.ready_model(Scenario(tasks=2))
    timed, untimed = (farm.submit(model, trials=16, seed=seed) for seed in range(2))
    farm.run()
    with farm.services.uow.write() as repos:
        for number, (sec, covered, ms) in enumerate(((0.5, 0, 900.0), (0.9, 1, 300.0))):
            note_timing(repos, timed.id, number, tuned_sec=sec, covered=covered, latency_sec=ms * 1e-3)
        # As the artifact's own report does, once it is there.
        repos.jobs.set_numbers(
            timed.id, network_latency_sec=0.25, speedups={}, over_untuned=None, over_runtime=None
        )
    page = browser.page(f"/jobs/compare?job={timed.id}&job={untimed.id}")
    classes = sorted(line.attrs["class"] for line in page.all("polyline"))
    assert classes == ["curve estimate line-1", "curve measured line-0"], "measurements replace a sum"
    assert (len(page.all("circle", class_="dot")), len(page.all("rect", class_="dot"))) == (2, 1)
    assert len(page.all("line", class_="interval")) == 2
    assert (
        "Points are measured latencies of the whole networks, with 95 % intervals: untuned at 0 s"
        in page.text
    )
    assert "Squares are measured latencies of the artifacts." in page.text
    with farm.services.uow.read() as repos:
        chart = chart_of(compare_jobs(repos, [timed.id, untimed.id]).jobs)
    assert chart is not None
    dots = chart.lines[0].dots
    assert [dot.is_artifact for dot in dots] == [False, False, True]
    assert all(0 <= dot.high <= dot.y <= dot.low <= HEIGHT for dot in dots), "a longer time is further up"
    assert dots[0].y < dots[1].y < dots[2].y
    assert "300 ms, measured after 0.9 s of search, 1 of 2 kernels tuned" in dots[1].title
    assert inside(chart.lines[0].measured)[-1][0] == dots[2].x, "the curve goes on to the artifact"


def test_a_job_whose_search_timed_no_network_has_the_points_of_its_compile(farm) -> None:
    farm.add_device()
    model = farm.ready_model(Scenario(tasks=2))
    ids = [farm.submit(model, trials=16, seed=seed).id for seed in range(2)]
    farm.run()
    with farm.services.uow.read() as repos:
        jobs = compare_jobs(repos, ids).jobs
    twice = ReportRatio(value=2.0, low=None, high=None, verdict="faster", text="2.00×")
    measured = {"latency_sec": 0.25, "is_measured": True, "ratios": {"untuned": twice}}
    chart = chart_of([job.model_copy(update=measured) for job in jobs])
    assert chart is not None
    assert not chart.has_sums
    for line in chart.lines:
        untuned, artifact = line.dots
        assert (untuned.is_artifact, artifact.is_artifact) == (False, True)
        assert "500 ms, untuned, measured at the compile" in untuned.title
        assert untuned.y < artifact.y
        assert len(inside(line.measured)) > 2


def test_a_single_estimate_does_not_stretch_the_scale(farm) -> None:
    farm.add_device()
    model = farm.ready_model(Scenario(tasks=2))
    ids = [farm.submit(model, trials=16, seed=seed).id for seed in range(2)]
    farm.run()
    with farm.services.uow.read() as repos:
        measured, begun = compare_jobs(repos, ids).jobs
    twice = ReportRatio(value=2.0, low=None, high=None, verdict="faster", text="2.00×")
    measured = measured.model_copy(
        update={"latency_sec": 0.25, "is_measured": True, "ratios": {"untuned": twice}}
    )
    far, near = (begun.model_copy(update={"curve": [(0.1, sec)]}) for sec in (11.7, 0.3))
    chart, alone, within = chart_of([measured, far]), chart_of([far, near]), chart_of([measured, near])
    assert chart is not None
    assert [text for _, text in (chart.up[0], chart.up[-1])] == ["250 ms", "500 ms"]
    assert chart.left_out == (f"{begun.model_name} …{begun.id[-6:]}: 11.7 s",)
    assert chart.lines[1].sums == ""
    for shown, lines in ((alone, 2), (within, 1)):
        assert shown is not None
        assert shown.left_out == ()
        assert sum(len(inside(line.sums)) > 1 for line in shown.lines) == lines


def test_a_disturbed_latency_and_another_computation_are_called_so(browser: Browser, farm) -> None:
    farm.add_device()
    model = farm.ready_model(Scenario(tasks=1))
    disturbed, quiet = (
        farm.submit(model, trials=8, precision=precision).id for precision in ("as-model", "float16-weights")
    )
    farm.run()
    wild = {"value": 2.0, "low": 0.01, "high": 40.0}
    other = {"value": 1.7, "low": 1.69, "high": 1.71, "comparable": False}
    with farm.services.uow.write() as repos:
        for job_id, ratios in ((disturbed, {"untuned": wild}), (quiet, {"onnxruntime": other})):
            repos.jobs.set_numbers(
                job_id, network_latency_sec=0.25, speedups=ratios, over_untuned=None, over_runtime=None
            )
    page = browser.page(f"/jobs/compare?job={disturbed}&job={quiet}")
    first, second = (" ".join(row.text.split()) for row in page.all("tr")[1:3])
    assert "250 ms measured, disturbed" in first
    assert "not known" in first
    assert "disturbed" not in second
    assert "1.70× computes something else" in second
    assert ["float16-weights" in row for row in (first, second)] == [False, True]
    (label,) = (box.text for box in page.all("label") if quiet[-6:] in box.text)
    assert "float16-weights" in label
    titles = [title.text for title in page.element("svg", class_="curves").all("title")]
    assert [title.endswith(", disturbed by other work") for title in titles] == [True, True, False]


def test_only_kernels_of_two_jobs_are_compared(browser: Browser, farm) -> None:
    farm.add_device()
    jobs = [farm.submit(farm.ready_model(Scenario(tasks=tasks, seed=tasks)), trials=8) for tasks in (1, 2)]
    farm.run()
    page = browser.page(f"/jobs/compare?job={jobs[0].id}&job={jobs[1].id}")
    with farm.services.uow.read() as repos:
        kernels = compare_jobs(repos, [job.id for job in jobs]).kernels
    alone = [kernel for kernel in kernels if not kernel.is_shared]
    assert alone
    assert kernels[len(kernels) - len(alone) :] == alone, "they come last"
    assert [kernel.apart for kernel in alone] == [None] * len(alone)
    assert f"{len(alone)} kernel" in page.text
    assert "compared" in page.text
    assert [caption.text for caption in page.all("caption")][1:] == [
        text for text in ("Kernels",) if len(alone) < len(kernels)
    ]


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


def test_an_old_job_is_found_by_a_text(browser: Browser, farm) -> None:
    farm.add_device()
    model = farm.ready_model(Scenario(tasks=1))
    ids = [farm.submit(model, trials=8, seed=seed).id for seed in range(14)]
    page = browser.page(f"/jobs/compare?job={ids[9]}&text={ids[0][-9:]}")
    boxes = {box.attrs["value"]: "checked" in box.attrs for box in page.all("input", name="job")}
    assert boxes == {ids[9]: True, ids[0]: False}
    assert "1 job matches." in page.text
    assert "14 jobs; the newest are listed." in browser.page("/jobs/compare").text
    page = browser.page("/jobs/compare?text=potato")
    assert "No job matches." in page.text
    assert "There are no jobs yet." not in page.text


def test_matches_that_chosen_jobs_leave_no_room_for_are_told(browser: Browser, farm) -> None:
    farm.add_device()
    model = farm.ready_model(Scenario(tasks=1))
    chosen = [farm.submit(model, trials=8, seed=seed).id for seed in range(2)]
    for seed in range(12):
        farm.submit(model, trials=8, seed=seed, tags=("dozen",))
    page = browser.page(f"/jobs/compare?job={chosen[0]}&job={chosen[1]}&text=dozen")
    assert "12 jobs match; the newest are listed." in page.text
