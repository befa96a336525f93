"""Tables, menus and forms in a real Chromium at the widths of a telephone, a laptop and a large screen."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page, expect
from replay_server import ReplayServer
from waiting import wait_until

from tunefarm.client import Client

TELEPHONE, *LARGER = 390, 1280, 1920
NARROW = pytest.mark.parametrize(
    "seat", [{"viewport": {"width": TELEPHONE, "height": 800}}], indirect=True, ids=["narrow"]
)
"""People do everything on a telephone; what they see is looked at in each width."""
_TOO_WIDE = """() => [
  document.documentElement.scrollWidth - document.documentElement.clientWidth,
  ...[...document.querySelectorAll(".table-scroll")].map((table) => table.scrollWidth - table.clientWidth)]"""


_SAMPLES_SEC = [0.0141, 0.0263, 0.0144, 0.0205, 0.0202]
_LATENCY: dict[str, Any] = {
    "onnxruntime_missing": None,
    **{
        name: {"median_sec": 0.0202, "samples_sec": samples_sec, "threads": 16}
        for name, samples_sec in (
            ("tuned", _SAMPLES_SEC[1:] + _SAMPLES_SEC[:1]),
            ("untuned", _SAMPLES_SEC),
            ("onnxruntime", _SAMPLES_SEC),
        )
    },
}


def each_width(page: Page) -> Iterator[int]:
    """Show the page in each width; a telephone's comes last, and stays."""
    for width in (*LARGER, TELEPHONE):
        page.set_viewport_size({"width": width, "height": 800})
        yield width


def nothing_is_cut_off(page: Page) -> None:
    """Check that in no width the page nor, except on a telephone, a table has to be scrolled sideways."""
    for width in each_width(page):
        page_over, *tables_over = page.evaluate(_TOO_WIDE)
        assert page_over <= 0, width
        assert width == TELEPHONE or max(tables_over, default=0) <= 0, width


def nothing_serious(seat: Any, page: Page) -> None:
    """Check in each width that there is no serious obstacle for accessibility."""
    for _ in each_width(page):
        seat.nothing_serious(page)


def database_of(server: ReplayServer) -> str:
    """Return the path of the server's database."""
    return server.services.settings.database_url.get_secret_value().removeprefix("sqlite:///")


@pytest.mark.exhaustive
@NARROW
def test_the_actions_of_a_device(seat: Any, server: ReplayServer) -> None:
    page = seat.sign_in()
    page.goto(f"{server.url}/devices")
    nothing_is_cut_off(page)
    page.locator("summary", has_text="Actions for node-1").click()
    drain = page.get_by_role("button", name="Drain")
    expect(drain).to_be_visible()
    nothing_is_cut_off(page)
    nothing_serious(seat, page)
    drain.click()
    expect(page.locator("#devices")).to_contain_text("draining")


@NARROW
def test_long_names_of_kernels(seat: Any, server: ReplayServer, tmp_path: Path) -> None:
    file = server.write_model(tmp_path / "net.onnx", tasks=2)
    with Client(server.url, server.api_key) as client:
        job = client.tune(file, trials=16)
        job.wait(timeout_sec=120)
    name = "fused_conv2d_" + "add_multiply_clip_" * 6 + "relu"
    with sqlite3.connect(database_of(server)) as connection:
        connection.execute(
            "UPDATE job_tasks SET name = ? || position, failures = 1234, trials = 12345", (name,)
        )
        keys = [key for (key,) in connection.execute("SELECT workload_key FROM job_tasks ORDER BY position")]
        coverage = {
            "tasks": 2,
            "covered": 1,
            "hits": [{"workload_key": keys[0]}],
            "misses": [
                {"workload_key": keys[1], "reason": "slower", "message": "slower than untuned: " + name}
            ],
        }
        (report,) = connection.execute("SELECT report FROM artifacts").fetchone()
        shapes = [
            {
                "inputs": [{"name": "x", "shape": [1, 3, 48, width]}],
                "latency": _LATENCY,
                "fallback": "the network took 15.2 ms tuned and 15.2 ms untuned, too uncertain to decide",
            }
            for width in (160, 320)
        ]
        open_shape = ["p2o.DynamicDimension.0", 3, 48, "p2o.DynamicDimension.1"]
        others = {"entry": "main_2", "inputs": [{"name": "x", "shape": open_shape}], "latency_sec": 0.02}
        report = json.dumps(
            {
                **json.loads(report),
                "coverage": coverage,
                "warnings": ["the first warning", "the second warning"],
                "latency": _LATENCY,
                "shapes": shapes,
                "other_shapes": others,
            }
        )
        speedups = {name: {"value": 1.1, "low": 0.49, "high": 12.3} for name in ("untuned", "onnxruntime")}
        connection.execute("UPDATE jobs SET speedups = ?, model_id = model_id", (json.dumps(speedups),))
        connection.execute("UPDATE models SET name = 'ch_ppocr_mobile_v2.0_cls_infer'")
        connection.execute("UPDATE artifacts SET report = ?", (report,))
    connection.close()
    page = seat.sign_in()
    page.goto(f"{server.url}/jobs/{job.id}")
    link = page.get_by_role("region", name="Kernels").get_by_role("link").first
    expect(link).to_have_attribute("title", f"{name}0")
    expect(page.locator("th", has_text="In the artifact")).to_have_count(1)
    expect(page.get_by_role("region", name="Measured latency")).to_contain_text("between")
    nothing_is_cut_off(page)
    sets = page.get_by_role("region", name="Latency in each set of shapes").get_by_role("row").nth(1)
    notes = page.locator(".card", has_text="Measured latency").locator(".note")
    for _ in each_width(page):
        boxes = [box for note in notes.all() if (box := note.bounding_box()) is not None]
        assert len(boxes) >= 2
        assert all(a["y"] + a["height"] + 8 <= b["y"] for a, b in pairwise(boxes)), "no two notes touch"
        assert link.evaluate("link => link.getBoundingClientRect().height") < 80, "at most three lines"
        assert sets.evaluate("row => row.getBoundingClientRect().height") < 250
    refused = {"entry": None, "reason": f"TVM cannot import node '{'jit_get_logits_/' * 9}'"}
    with sqlite3.connect(database_of(server)) as connection:
        told = json.dumps({**json.loads(report), "other_shapes": refused})
        connection.execute("UPDATE artifacts SET report = ?", (told,))
    connection.close()
    page.reload()
    expect(page.get_by_text("The artifact runs no other shapes")).to_be_visible()
    nothing_is_cut_off(page)
    page.goto(f"{server.url}/jobs")
    expect(page.get_by_role("row").nth(1)).to_contain_text("between")
    nothing_is_cut_off(page)
    page.goto(f"{server.url}/models")
    page.get_by_role("link", name="ch_ppocr_mobile_v2.0_cls_infer").click()
    page.locator("summary", has_text="Delete").click()
    for _ in each_width(page):
        expect(page.get_by_role("button", name="Delete the model")).to_be_in_viewport(ratio=1)
    nothing_is_cut_off(page)


@pytest.mark.exhaustive
@NARROW
def test_jobs_are_chosen_and_compared(seat: Any, server: ReplayServer, tmp_path: Path) -> None:
    page = seat.sign_in()
    with Client(server.url, server.api_key) as client:
        for trials in (12, 24):
            file = server.write_model(tmp_path / f"net{trials}.onnx", tasks=trials // 6)
            client.tune(file, trials=trials).wait(poll_sec=0.05)
    names = ("untuned", "onnxruntime", "openvino", "openvino_default")
    speedups = json.dumps({name: {"value": 1.1, "low": 0.49, "high": 12.3} for name in names})
    with sqlite3.connect(database_of(server)) as connection:
        connection.execute("UPDATE jobs SET speedups = ?, tuned_sec = 92.4", (speedups,))
    connection.close()
    page.goto(f"{server.url}/jobs")
    page.get_by_role("link", name="Compare").click()
    expect(page.locator("#choose time").first).not_to_contain_text("UTC")  # but in the reader's zone
    for trials in (12, 24):
        page.get_by_role("checkbox", name=f"net{trials}").check()
    page.get_by_role("button", name="Compare").click()
    expect(page.locator("svg.curves polyline")).to_have_count(2)
    expect(page.get_by_role("region", name="Kernels")).to_contain_text("matmul_1")
    expect(page.get_by_text("2 kernels are in only one of the jobs")).to_be_visible()
    nothing_is_cut_off(page)
    chart = page.locator("svg.curves")
    assert chart.evaluate("chart => getComputedStyle(chart).overflow") == "visible"
    for width in each_width(page):
        for mark in chart.locator(".mark:visible").all():
            box = mark.bounding_box()
            assert box is not None
            assert box["x"] >= 0, f"the longest times are not cut off: {width}"
        boxes = [mark.bounding_box() for mark in chart.locator(".across:visible").all()]
        ends = [(box["x"], box["x"] + box["width"]) for box in boxes if box is not None]
        assert len(ends) >= 3
        assert all(end < begin for (_, end), (begin, _) in pairwise(ends)), f"no two times overlap: {width}"
    nothing_serious(seat, page)


@pytest.mark.exhaustive
@NARROW
def test_a_sweep_is_watched_to_its_end(seat: Any, server: ReplayServer, tmp_path: Path) -> None:
    page = seat.sign_in()
    with Client(server.url, server.api_key) as client:
        name = "a-network-with-a-rather-long-name-" * 3
        files = [server.write_model(tmp_path / f"{name}{seed}.onnx", tasks=1, seed=seed) for seed in range(2)]
        models = [client.models.wait(client.models.upload(file).id).id for file in files]
        refused = [{"name": "bad.onnx", "code": "not-protobuf", "message": "it is no network, " * 20}]
        sweep = client.sweeps.create(
            models, precisions=["as-model", "float16-weights"], trials=32, refused=refused, tags=["nightly"]
        )
        page.goto(f"{server.url}/sweeps/{sweep.id}")
        nothing_is_cut_off(page)
        client.sweeps.wait(sweep.id, poll_sec=0.05)
    expect(page.locator("#sweep h1")).to_contain_text("ended")
    expect(page.get_by_role("region", name="The jobs of the sweep").get_by_role("link")).to_have_count(4)
    for _ in each_width(page):
        head, card = (page.locator(f"#sweep > {part}").bounding_box() for part in (".head", ".card"))
        assert head is not None
        assert card is not None
        assert card["y"] - head["y"] - head["height"] >= 8, "the table does not touch the words above it"
        buttons = page.locator("#sweep .head a.button").evaluate_all(
            "all => all.map((link) => link.offsetTop)"
        )
        assert len(set(buttons)) == 1, "the buttons are side by side"
        reasons = page.locator("#sweep .reasons li").first.bounding_box()
        assert reasons is not None
        assert reasons["x"] >= card["x"] + 30, "the marks of the list are within the card"
    nothing_is_cut_off(page)
    nothing_serious(seat, page)
    page.get_by_role("link", name="Report", exact=True).click()
    row = page.locator("#results tbody tr").first
    expect(row).to_contain_text("succeeded")
    for width in each_width(page):
        over = page.locator(".scroll").evaluate("table => table.scrollWidth - table.clientWidth")
        height = row.evaluate("row => row.getBoundingClientRect().height")
        assert width == TELEPHONE or (over <= 0 and height < 160)
    page.go_back()
    page.get_by_role("link", name="Sweeps").first.click()
    expect(page.get_by_role("region", name="Sweeps")).to_contain_text("4 succeeded")
    nothing_is_cut_off(page)
    nothing_serious(seat, page)


@pytest.mark.exhaustive
@NARROW
def test_a_sweep_is_started_by_its_form(seat: Any, server: ReplayServer, tmp_path: Path) -> None:
    with Client(server.url, server.api_key) as client:
        for seed, name in enumerate(("net", "a-network-with-a-rather-long-name-" * 3)):
            model = client.models.upload(server.write_model(tmp_path / f"{name}.onnx", tasks=1, seed=seed))
            client.models.wait(model.id)
        np.savez(tmp_path / "day.npz", x=np.ones((3, 1, 8), np.float32))
        client.samples.upload_all(model.id, tmp_path / "day.npz")
    page = seat.sign_in()
    page.goto(f"{server.url}/sweeps")
    page.get_by_role("link", name="Start a sweep").click()
    expect(page.get_by_role("button", name="Start the sweep")).to_be_visible()
    nothing_is_cut_off(page)
    nothing_serious(seat, page)
    page.get_by_role("checkbox", name="net@1", exact=True).check()
    page.get_by_role("checkbox", name="a-network-with").check()
    page.get_by_role("checkbox", name="float16-weights", exact=True).check()
    page.get_by_label("Samples of a-network").select_option(label="day.npz: 3 sample sets")
    page.get_by_label("Time for the whole sweep").fill("")
    page.get_by_role("button", name="Start the sweep").click()
    expect(page.get_by_role("alert")).to_contain_text("set a limit")
    seat.complaints.clear()  # of the status 422
    expect(page.get_by_role("checkbox", name="net@1", exact=True)).to_be_checked()
    nothing_is_cut_off(page)
    page.get_by_label("number of trials").fill("32")
    page.get_by_role("button", name="Start the sweep").click()
    page.wait_for_url("**/sweeps/swp_*")
    expect(page.locator("#sweep h1")).to_contain_text("ended")
    expect(page.get_by_role("region", name="The jobs of the sweep")).to_contain_text("float16-weights")
    nothing_is_cut_off(page)


@NARROW
def test_an_imported_model_shows_its_network_without_a_reload(
    seat: Any, server: ReplayServer, tmp_path: Path
) -> None:
    page = seat.sign_in()
    with Client(server.url, server.api_key) as client:
        job = client.tune(server.write_model(tmp_path / "long.onnx", tasks=1, trial_sec=0.5), trials=100)
        wait_until(lambda: job.refresh().state == "tuning", "the only worker is busy")
        model = client.models.upload(server.write_model(tmp_path / "net.onnx", tasks=2))
        page.goto(f"{server.url}/models/{model.id}")
        expect(page.locator("#state")).to_contain_text("importing")
        page.evaluate("window.notReloaded = true")
        job.cancel()
        client.models.wait(model.id)
    expect(page.get_by_role("region", name="Inputs and outputs")).to_contain_text("1×8 float32")
    expect(page.get_by_role("region", name="Operators")).to_contain_text("MatMul")
    expect(page.get_by_role("region", name="Kernels to tune")).to_contain_text("matmul_1")
    assert page.evaluate("window.notReloaded") is True
    nothing_is_cut_off(page)


@pytest.mark.exhaustive
@NARROW
def test_a_model_shows_what_its_inputs_are_bound_to(seat: Any, server: ReplayServer, tmp_path: Path) -> None:
    file = server.write_model(tmp_path / "net.onnx")
    with Client(server.url, server.api_key) as client:
        model = client.models.upload(file, values={"sr": 16000, "mean": [0.485, 0.456, 0.406] * 20})
        client.models.wait(model.id)
    page = seat.sign_in()
    page.goto(f"{server.url}/models/{model.id}")
    rows = page.get_by_role("region", name="Inputs and outputs").locator("tr", has_text="bound value")
    expect(rows).to_have_count(2)
    expect(rows.filter(has_text="sr")).to_contain_text("16000")
    expect(rows.filter(has_text="mean")).to_contain_text("[0.485, 0.456")
    nothing_is_cut_off(page)
    nothing_serious(seat, page)


@pytest.mark.exhaustive
@NARROW
def test_a_refused_form_keeps_its_values(seat: Any, server: ReplayServer, tmp_path: Path) -> None:
    page = seat.sign_in()
    with Client(server.url, server.api_key) as client:
        model = client.models.upload(server.write_model(tmp_path / "net.onnx", tasks=1))
        client.models.wait(model.id)
    page.goto(f"{server.url}/models/{model.id}")
    page.get_by_label("Time for the whole job").fill("0")
    page.get_by_label("Priority").select_option("high")
    page.get_by_text("More options", exact=True).click()
    page.get_by_label("Seed").fill("7")
    page.get_by_role("button", name="Start the job").click()
    expect(page.get_by_role("alert")).to_contain_text(
        "The job was not started: set a limit: minutes, trials, or both."
    )
    seat.complaints.clear()  # of the status 422
    expect(page.get_by_label("Priority")).to_have_value("high")
    expect(page.get_by_label("Seed")).to_have_value("7")
    nothing_is_cut_off(page)
    nothing_serious(seat, page)
    page.goto(page.url)  # the address can be opened, too
    assert page.url == f"{server.url}/models/{model.id}"
    page.get_by_label("number of trials").fill("4")
    page.get_by_role("button", name="Start the job").click()
    page.wait_for_url("**/jobs/job_*")


@pytest.mark.exhaustive
@NARROW
def test_tags_notes_and_filters(seat: Any, server: ReplayServer, tmp_path: Path) -> None:
    with Client(server.url, server.api_key) as client:
        tagged = client.tune(
            server.write_model(tmp_path / "net.onnx", tasks=1),
            trials=8,
            tags=["customer-7", "x" * 40],
            note="w" * 90,
        )
        client.tune(server.write_model(tmp_path / "other.onnx", tasks=2), trials=8).wait(poll_sec=0.05)
        tagged.wait(poll_sec=0.05)
        client.models.change(tagged.job.model_id, tags=["ocr", "y" * 40])
    page = seat.sign_in()
    page.goto(f"{server.url}/jobs/{tagged.id}")
    nothing_is_cut_off(page)
    page.locator("summary", has_text="Tags and note").click()
    page.get_by_label("Tags", exact=True).fill("customer-7 nightly")
    page.get_by_label("Note", exact=True).fill("from Monday")
    nothing_is_cut_off(page)
    nothing_serious(seat, page)
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".noted")).to_have_text("from Monday")
    page.get_by_role("link", name="nightly").click()
    page.wait_for_url("**/jobs?tag=nightly")
    expect(page.locator("#jobs tbody tr")).to_have_count(1)
    nothing_is_cut_off(page)
    page.goto(f"{server.url}/jobs?order=runtime")
    expect(page.locator("#jobs tbody tr")).to_have_count(2)
    nothing_is_cut_off(page)
    nothing_serious(seat, page)
    page.goto(f"{server.url}/models?text=NET")
    expect(page.locator("#models tbody tr")).to_have_count(1)
    nothing_is_cut_off(page)
    nothing_serious(seat, page)


@pytest.mark.exhaustive
@NARROW
def test_an_artifact_is_measured_again(seat: Any, server: ReplayServer, tmp_path: Path) -> None:
    with Client(server.url, server.api_key) as client:
        job = client.tune(server.write_model(tmp_path / "net.onnx", tasks=2), trials=8)
        job.wait(poll_sec=0.05)
        client.jobs.measure(job.id, timeout_sec=60)
    page = seat.sign_in()
    page.goto(f"{server.url}/jobs/{job.id}")
    page.get_by_role("button", name="Measure again").click()
    table = page.get_by_role("region", name="Measurements")
    expect(table.locator("tbody tr")).to_have_count(2)
    expect(table).to_contain_text("1.50×")
    nothing_is_cut_off(page)
    nothing_serious(seat, page)
