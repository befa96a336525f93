"""The source of a kernel on its page: opened, made by a worker, shown in part, downloaded."""

from __future__ import annotations

from html import escape
from typing import Any

import pytest
from page_browser import Browser
from page_tree import read_page

from tunefarm_api.web.jobs.source_page import MOST_CHARACTERS, MOST_LINES, shown_text
from tunefarm_app.engines.replay import ReplayEngine
from tunefarm_app.engines.scenario import Scenario
from tunefarm_app.jobs.control import cancel_job
from tunefarm_db.values import Job
from tunefarm_tuning.compiler.kernel_source import KernelSource, SourceText
from tunefarm_tuning.core.cancellation import Cancellation
from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.records.record import TuningRecord
from tunefarm_tuning.workload.task import TuningTask


class Writing(ReplayEngine):
    """Makes the source that a test gives it."""

    def __init__(self, **texts: str) -> None:
        super().__init__()
        self._texts = [
            SourceText(kind=kind, text=text, size_bytes=len(text.encode())) for kind, text in texts.items()
        ]

    def kernel_source(
        self, task: TuningTask, record: TuningRecord, *, cancellation: Cancellation
    ) -> KernelSource:
        if not self._texts:
            raise InvalidInputError("<b>no</b>", code="does-not-apply")
        return KernelSource(toolchain=self.toolchain, texts=tuple(self._texts))


@pytest.fixture
def done(farm: Any) -> Job:
    farm.add_device()
    job = farm.submit(farm.ready_model(Scenario(tasks=1, seed=5)), trials=8, tuner="random")
    farm.run()
    finished: Job = farm.job(job.id)
    return finished


def part(browser: Browser, job: Job, kind: str, query: str = "") -> Any:
    answer = browser.get(f"/jobs/{job.id}/tasks/0/source/{kind}{query}", **{"HX-Request": "true"})
    assert answer.status_code == 200, answer.text
    return read_page(answer.text)


def test_the_page_offers_what_the_target_has(browser: Browser, done: Job) -> None:
    page = browser.page(f"/jobs/{done.id}/tasks/0")
    section = page.element("section", id="source")
    assert [details.attrs["hx-get"].rpartition("/")[2] for details in section.all("details")] == [
        "schedule",
        "llvm",
        "asm",
    ]
    assert "as the artifact has it" in section.text
    assert "data-live" not in section.attrs, "what somebody reads stays as it is"


def test_it_is_made_when_it_is_opened(browser: Browser, farm: Any, done: Job) -> None:
    first = part(browser, done, "llvm")
    assert "being generated" in first.text
    (body,) = first.all("div")
    assert body.attrs["hx-trigger"] == "every 1s"
    assert body.attrs["hx-get"] == f"/jobs/{done.id}/tasks/0/source/llvm?waiting=false"
    again = browser.get(body.attrs["hx-get"])
    assert again.status_code == 204, "nothing is new"
    farm.run()
    shown = part(browser, done, "llvm", "?waiting=false")
    assert "a simulation has no kernels: matmul_0" in shown.element("code").text
    assert shown.element("pre", class_="numbers").text == "1"
    assert "1 line" in shown.text
    assert "hx-get" not in shown.all("div")[0].attrs
    link = next(anchor for anchor in shown.all("a") if anchor.text == "Download")
    answer = browser.get(link.attrs["href"])
    assert answer.text.startswith("# a simulation")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-disposition"] == f'attachment; filename="{done.id}-kernel-0.ll"'
    etag = answer.headers["etag"]
    assert browser.get(link.attrs["href"], **{"If-None-Match": etag}).status_code == 304


def unescaped_quotes(text: str) -> str:
    """Return the page with quotation marks as they are: within text they need no escape."""
    return text.replace("&#34;", '"').replace("&#39;", "'")


def test_hostile_text_is_text(browser: Browser, farm: Any, done: Job) -> None:
    hostile = "</code></pre><script>alert(1)</script>\n{{ 7 * 7 }} & <img src=x onerror=alert(2)>\n"
    written = farm.with_engine(Writing(schedule=hostile))
    part(browser, done, "schedule")
    written.run()
    shown = part(browser, done, "schedule")
    answer = browser.get(f"/jobs/{done.id}/tasks/0/source/schedule")
    assert f"<code>{escape(hostile[:-1], quote=False)}</code>" in unescaped_quotes(answer.text)
    assert shown.all("script") == []
    assert shown.all("img") == []
    assert browser.get(f"/jobs/{done.id}/tasks/0/source/schedule/download").text == hostile
    assert browser.get(f"/jobs/{done.id}/tasks/0/source/asm").status_code == 404
    assert browser.get(f"/jobs/{done.id}/tasks/0/source/perl").status_code == 422


def test_why_there_is_none(browser: Browser, farm: Any, done: Job) -> None:
    part(browser, done, "llvm")
    farm.with_engine(Writing()).run()
    shown = part(browser, done, "llvm")
    assert "cannot be generated: <b>no</b>" in shown.text
    assert shown.all("b") == []
    assert "hx-get" not in shown.all("div")[0].attrs


def test_before_a_candidate_has_worked(browser: Browser, farm: Any) -> None:
    farm.add_device()
    job = farm.submit(farm.ready_model(Scenario(tasks=1, failing=1.0)), trials=8)
    farm.run(steps=1)
    path = f"/jobs/{job.id}/tasks/0"
    section = browser.page(path).element("section", id="source")
    assert "no config of this kernel was tried" in section.text
    assert "no config of this kernel was tried" in part(browser, job, "llvm").text.lower()
    farm.run(steps=1)
    section = browser.page(path).element("section", id="source")
    assert "no config of this kernel has worked yet" in section.text
    assert section.attrs["data-live"] == f"job:{job.id}", "it comes as soon as there is one"
    assert "no config of this kernel has worked yet" in part(browser, job, "llvm").text.lower()
    cancel_job(farm.services, job.id)
    assert (
        "no config of this kernel has worked yet" in browser.page(path).element("section", id="source").text
    )


@pytest.mark.parametrize("line", ["", "x", "y" * 5000])
def test_a_long_text_is_shown_in_part(line: str) -> None:
    for count in (1, MOST_LINES, MOST_LINES + 1, 50_000):
        text = f"{line}\n" * count
        shown = shown_text(SourceText(kind="asm", text=text, size_bytes=len(text)))
        assert shown.lines == count
        assert 0 < shown.shown <= min(count, MOST_LINES)
        assert len(shown.text) <= MOST_CHARACTERS
        assert shown.text.split("\n") == [line] * shown.shown
        assert shown.numbers.split("\n") == [str(number) for number in range(1, shown.shown + 1)]


def test_one_endless_line() -> None:
    shown = shown_text(SourceText(kind="asm", text="z" * (2 * MOST_CHARACTERS), size_bytes=1))
    assert (shown.shown, shown.lines, len(shown.text)) == (1, 1, MOST_CHARACTERS)
