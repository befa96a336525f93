"""Take the screenshots of the dashboard in Chromium, with a real job in a farm of its own.

    python docs/make_screenshots.py --seconds 120

Tunes the demo's ResNet-18 on this machine, and photographs the job's page and one kernel's page when it is done.
``--output FOLDER`` keeps the job's report there, from which `make_report_sample.py` makes the sample.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Page, ViewportSize, sync_playwright

from tunefarm.client import Client, JobHandle
from tunefarm.embedded import EmbeddedFarm

IMAGES = Path(__file__).parent / "images"
EXAMPLE = Path(__file__).parent.parent / "examples" / "resnet18.py"
_SIZE = ViewportSize(width=1200, height=1050)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=120.0, help="of search (default: %(default)g)")
    parser.add_argument("--output", type=Path, help="folder for the job's artifact and report")
    options = parser.parse_args()
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        print("there is no Chromium here: the pictures are as they were", file=sys.stderr)
        return 1
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "resnet18.onnx"
        subprocess.run([sys.executable, str(EXAMPLE), str(model)], check=True)
        with EmbeddedFarm(Path(folder) / "farm") as farm:
            farm.wait_ready()
            with Client(farm.url, farm.api_key) as client:
                job = client.tune(model, seconds=options.seconds)
                job.wait()
                _photograph(browser, client, job)
                if options.output is not None:
                    job.download(options.output)
    return 0


def _photograph(browser: str, client: Client, job: JobHandle) -> None:
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=arguments)
        page = chromium.new_page(viewport=_SIZE)
        page.goto(client.keys.sign_in_link().url)
        page.get_by_role("button", name="Continue").click()
        page.wait_for_url("**/jobs")
        _take(page, f"/jobs/{job.id}", "dashboard-job.png")
        page.locator("a[href*='/tasks/']").first.click()
        page.wait_for_url("**/tasks/*")
        _take(page, None, "dashboard-kernel.png")
        chromium.close()


def _take(page: Page, path: str | None, name: str) -> None:
    if path is not None:
        page.goto(page.url.split("/jobs")[0] + path)
    page.locator(".u-wrap").first.wait_for()  # the curve is drawn
    page.screenshot(path=IMAGES / name)
    print(IMAGES / name)


if __name__ == "__main__":
    sys.exit(main())
