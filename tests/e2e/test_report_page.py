"""The report's page in a real browser: it keeps its content policy, loads nothing, is accessible, and prints."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from app_farm import farm_settings, make_farm
from reported_farm import HOSTILE, ReportingEngine
from repository import ROOT

from tunefarm_app.engines.scenario import Scenario
from tunefarm_app.report.assemble import job_report
from tunefarm_app.report.page import report_page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="there is no Chromium here: apt-get install chromium"
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    driver = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed here")
    with driver.sync_playwright() as playwright:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield started
        started.close()


@pytest.fixture(scope="module", params=["net.onnx", HOSTILE], ids=["plain", "hostile"])
def page_file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a job whose model, and all that is in it, is called so."""
    name: str = request.param
    folder = tmp_path_factory.mktemp("report")
    settings = farm_settings(
        folder,
    )
    farm = make_farm(settings, ReportingEngine(name=name if name == HOSTILE else None, message=name))
    try:
        farm.add_device(info={"cpu": name})
        model = farm.upload(Scenario(tasks=3, failing=0.2), name=name)
        farm.run()
        job = farm.submit(farm.model(model.id), trials=24)
        farm.run()
        path = folder / "report.html"
        path.write_text(report_page(job_report(farm.services, job.id)), encoding="utf-8")
    finally:
        farm.services.close()
    return path


@pytest.mark.matrix(every=3, each_value=False)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1200])
def test_it_is_shown_as_it_is_meant(browser: Any, page_file: Path, scheme: str, width: int) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    messages: list[str] = []
    urls: list[str] = []
    page.on("console", lambda message: messages.append(message.text))
    page.on("dialog", lambda dialog: messages.append(dialog.message))
    page.on("request", lambda request: urls.append(request.url))
    page.goto(page_file.as_uri())
    assert messages == []
    assert urls == [page_file.as_uri()]
    # Corners are round only if the browser accepts the style sheet, whose digest the page's policy names.
    assert page.eval_on_selector(".tile", "tile => getComputedStyle(tile).borderTopLeftRadius") == "8px"
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator("script, img, link, iframe").count() == 0
    page.close()


def test_its_tables_fit_on_a_desk(browser: Any) -> None:
    sample = ROOT / "docs" / "sample" / "report.html"
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(sample.as_uri())
    widths = page.eval_on_selector_all(
        ".scroll", "all => all.map((one) => [one.scrollWidth, one.clientWidth])"
    )
    assert widths
    assert [table for table in widths if table[0] > table[1]] == []
    page.close()


@pytest.mark.matrix(every=2, each_value=False)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_can_read_it(browser: Any, page_file: Path, scheme: str) -> None:
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="axe-core is not installed here"
    )
    context = browser.new_context(
        bypass_csp=True, color_scheme=scheme, viewport={"width": 390, "height": 900}
    )
    page = context.new_page()
    page.goto(page_file.as_uri())
    violations = axe.Axe().run(page).response["violations"]
    assert [
        (violation["id"], violation["impact"], violation["nodes"][0]["html"]) for violation in violations
    ] == []
    context.close()


@pytest.mark.matrix(every=2, each_value=False)
def test_it_prints(browser: Any, page_file: Path) -> None:
    page = browser.new_page(color_scheme="dark")
    page.goto(page_file.as_uri())
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    printed = page.pdf(format="A4", prefer_css_page_size=True)
    assert printed.startswith(b"%PDF")
    assert len(printed) > 20_000
    page.close()
