from __future__ import annotations

from playwright.sync_api import expect
from replay_server import ReplayServer
from sqlalchemy import update
from waiting import wait_until

from tunefarm_app.engines.scenario import Scenario
from tunefarm_db.states.job import JobState
from tunefarm_db.tables import ArtifactRow


def shapes_report() -> dict[str, object]:
    return {
        "shapes": [
            {
                "weight": weight,
                "inputs": [{"name": "x", "shape": [1, 3, 48, width], "dtype": "float32"}],
                "latency": {
                    name: {"median_sec": sec * width, "samples_sec": [sec * width] * 5, "threads": 2}
                    for name, sec in (("tuned", 1e-5), ("untuned", 2e-5), ("onnxruntime", 3e-5))
                },
                "batches": [],
                "fallback": None,
            }
            for weight, width in ((5, 160), (3, 320), (1, 640))
        ],
        "other_shapes": {
            "entry": "main_3",
            "reason": None,
            "inputs": [{"name": "x", "shape": [1, 3, 48, "width"], "dtype": "float32"}],
            "latency_sec": 0.004,
        },
    }


def test_shapes_from_the_form_to_the_results(seat, server: ReplayServer) -> None:
    page = seat.sign_in()
    page.goto(f"{server.url}/models")
    page.get_by_text("Shapes of dynamic inputs").click()
    page.get_by_label("Shapes, one input per line").fill("x=1,8|")
    seat.drop(page, "net.onnx", Scenario(tasks=1, trial_sec=0.01).to_bytes())
    expect(page.get_by_text("at character 5 of '1,8|'")).to_be_visible()
    seat.complaints.clear()  # the browser's own line about the status 422
    page.get_by_label("Shapes, one input per line").fill("x=1,8")
    seat.drop(page, "net.onnx", Scenario(tasks=1, trial_sec=0.01).to_bytes())
    page.wait_for_url("**/models/mdl_*")
    expect(page.get_by_role("button", name="Start the job")).to_be_visible()
    page.get_by_text("More options", exact=True).click()
    page.get_by_label("Leave out the code for other shapes").check()
    seat.nothing_serious(page)
    page.get_by_label("Maximum number of trials").fill("8")
    page.get_by_role("button", name="Start the job").click()
    page.wait_for_url("**/jobs/job_*")
    expect(page.locator("#state")).to_contain_text("succeeded")
    expect(page.get_by_text("no code for other shapes")).to_be_visible()
    expect(page.get_by_text("The artifact runs no other shapes: not asked for.")).to_be_visible()

    job_id = page.url.rpartition("/")[2]
    with server.services.uow.read() as repos:
        wait_until(lambda: repos.jobs.get(job_id).state is JobState.SUCCEEDED, "the job's end")
    with server.services.uow.engine.begin() as connection:
        changed = update(ArtifactRow).where(ArtifactRow.job_id == job_id).values(report=shapes_report())
        connection.execute(changed)
    page.reload()
    table = page.get_by_role("region", name="Latency in each set of shapes")
    expect(table.locator("tbody tr")).to_have_count(3)
    expect(table.locator("tbody tr").nth(1).locator("td, th")).to_have_text(
        ["x 1×3×48×320", "3", "3.2 ms", "6.4 ms", "9.6 ms", "3.00×", "–"]
    )
    expect(page.get_by_text("Other shapes of x 1×3×48×width run untuned code for all sizes")).to_be_visible()
    seat.nothing_serious(page)
    page.set_viewport_size({"width": 360, "height": 740})
    expect(table).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_several_files_have_shapes_of_their_own_in_one_form(seat, server: ReplayServer) -> None:
    page = seat.sign_in()
    page.goto(f"{server.url}/models")
    page.get_by_text("Shapes of dynamic inputs").click()
    page.get_by_label("Shapes, one input per line").fill(
        "x=1,8\nb.onnx:x=1,16\n--shape c.onnx:y=1,4 --value 'b.onnx:sr=8000'"
    )
    page.get_by_label("Values, one input per line").fill("sr=16000")
    files = [
        {"name": name, "mimeType": "", "buffer": Scenario(tasks=tasks).to_bytes()}
        for tasks, name in enumerate(("a.onnx", "b.onnx"), start=1)
    ]
    page.get_by_label("Choose a model").set_input_files(files)
    expect(page.locator("#uploads a")).to_have_count(2)
    expect(page.locator("#upload-error")).to_have_text(
        "c.onnx has shapes or values above, but no file with this name was chosen."
    )
    with server.services.uow.read() as repos:
        bound = {model.name: (model.shapes, model.values) for model in repos.models.list(limit=10).items}
    assert bound == {
        "a.onnx": ({"x": [1, 8]}, {"sr": 16000}),
        "b.onnx": ({"x": [1, 16]}, {"sr": 8000}),
    }
    seat.nothing_serious(page)
    page.get_by_role("link", name="Start a sweep with these models").click()
    page.wait_for_url("**/sweeps/new?*")
    for name in ("a.onnx@1", "b.onnx@1"):
        expect(page.get_by_role("checkbox", name=name)).to_be_checked()
    seat.nothing_serious(page)
