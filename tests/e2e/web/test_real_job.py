"""A new user's whole path through the dashboard of a farm that compiles and measures."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from playwright.sync_api import expect
from repository import ROOT
from waiting import wait_until

from tunefarm.client import Client
from tunefarm.embedded import EmbeddedFarm, FarmOptions

EXAMPLE = ROOT / "examples" / "tiny_convnet.py"
LONG_MS = 600_000.0

COMPARE = """
import sys
import numpy, onnxruntime, tunefarm

artifact, model = sys.argv[1:]
tuned = tunefarm.load(artifact)
reference = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
random = numpy.random.default_rng(0)
for _ in range(5):
    x = random.standard_normal((1, 64)).astype("float32")
    (expected,) = reference.run(["y"], {"x": x})
    numpy.testing.assert_allclose(tuned(x=x)["y"], expected, rtol=1e-3, atol=1e-4)
print("the same")
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedFarm]:
    options = FarmOptions(settings={"ROUND_SIZE": "4"})
    with EmbeddedFarm(tmp_path_factory.mktemp("farm"), options) as farm:
        farm.wait_ready()
        yield farm


def kill_api(farm: EmbeddedFarm) -> None:
    """Kill the API process; the farm starts another one."""
    (supervisor,) = [
        child for child in psutil.Process().children() if f"--home={farm.home.path}" in child.cmdline()
    ]
    (api,) = [child for child in supervisor.children() if "tunefarm_api" in child.cmdline()]
    api.kill()
    wait_until(lambda: not api.is_running(), "the API's end")


@pytest.mark.exhaustive  # test_command.py goes the same way without a browser, test_beginning.py with one but without TVM
def test_from_the_first_link_to_an_artifact_that_runs(seat, server: EmbeddedFarm, tmp_path: Path) -> None:
    model = tmp_path / "mlp.onnx"
    subprocess.run([sys.executable, EXAMPLE, model, "--kind", "mlp"], check=True, timeout=300)
    with Client(server.url, server.api_key) as client:
        link = client.keys.sign_in_link().url
    page = seat.open(link.removeprefix(server.url))
    page.get_by_role("button", name="Continue").click()
    page.wait_for_url("**/jobs")
    expect(page.get_by_text("There are no jobs yet.")).to_be_visible()

    seat.drop(page, model.name, model.read_bytes())
    page.wait_for_url("**/models/mdl_*")
    start = page.get_by_role("button", name="Start the job")
    expect(start).to_be_visible(timeout=LONG_MS)
    # The device may still be looked over; the page says when it is through.
    expect(page.get_by_label("Devices")).to_contain_text("local: 1 of 1 online", timeout=LONG_MS)
    page.get_by_label("Time for the whole job").fill("")
    page.get_by_label("Maximum number of trials").fill("24")
    start.click()
    page.wait_for_url("**/jobs/job_*")

    page.get_by_role("button", name="Pause").click()
    expect(page.locator("#state")).to_contain_text("paused")
    page.get_by_role("button", name="Resume").click()
    expect(page.locator(".log .kind", has_text="round").first).to_be_visible(timeout=LONG_MS)
    kill_api(server)
    # The page goes on by itself when there is an API again: from here to the end nobody reloads it.
    expect(page.locator("#state")).to_contain_text("succeeded", timeout=LONG_MS)
    expect(page.locator("#link")).to_have_attribute("data-state", "live")
    seat.forgive_restart()
    expect(page.locator(".phases li.done")).to_have_count(7)
    expect(page.locator(".figures")).to_contain_text("over untuned, measured")
    expect(page.locator("#chart canvas")).to_be_visible()
    seat.nothing_serious(page)

    with page.expect_download() as download:
        page.get_by_role("link", name=re.compile("Artifact")).click()
    artifact = tmp_path / download.value.suggested_filename
    assert artifact.name == "mlp.tunefarm"
    download.value.save_as(artifact)
    ran = subprocess.run(
        [sys.executable, "-c", COMPARE, artifact, model], capture_output=True, text=True, timeout=600
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "the same\n"

    page.get_by_role("link", name="Report", exact=True).click()
    # Its policy forbids scripts, axe's among them: tests/e2e/test_report_page.py looks at it in a file.
    expect(page.get_by_role("heading", name="mlp.onnx", exact=True)).to_be_visible()
    page.goto(f"{server.url}/devices")
    page.get_by_role("button", name="Sign out", exact=True).click()
    page.wait_for_url("**/sign-in")
    page.goto(f"{server.url}/jobs")
    expect(page.get_by_label("API key")).to_be_visible()
