"""The check boxes of other runtimes, where a job is made and where its artifact is measured again."""

from __future__ import annotations

from page_browser import Browser

from tunefarm_app.report.measurements import measured_beside


def test_other_runtimes_have_check_boxes(browser: Browser, farm) -> None:
    farm.add_device()
    form = browser.page(f"/models/{farm.ready_model().id}").element("form", id="new-job")
    boxes = [
        box for box in form.all("input", type="checkbox") if box.attrs.get("name", "").startswith("baseline-")
    ]
    assert [box.attrs["name"] for box in boxes] == [
        "baseline-openvino",
        "baseline-openvino_default",
        "baseline-litert",
    ]
    page = browser.post(
        form.attrs["action"], trials="8", **{"baseline-openvino": "1", "baseline-litert": "1"}
    )
    job = farm.job(page.url.path.rpartition("/")[2])
    assert job.options["baselines"] == ["openvino", "litert"]
    farm.run_until_quiet()
    measuring = browser.page(f"/jobs/{job.id}").element("form", action=f"/jobs/{job.id}/measure")
    again = {box.attrs["name"]: "disabled" in box.attrs for box in measuring.all("input", type="checkbox")}
    assert again == {"baseline-openvino": True, "baseline-openvino_default": False, "baseline-litert": True}
    browser.post(f"/jobs/{job.id}/measure", **{"baseline-openvino_default": "1"})
    with farm.services.uow.read() as repos:
        artifact = repos.artifacts.for_job(job.id)
    assert measured_beside(farm.job(job.id), artifact) == ("openvino", "litert", "openvino_default")
