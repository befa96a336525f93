"""The sample report of the documentation: today's code reads the document and draws the page."""

from __future__ import annotations

from html_page import Page
from repository import DOCS

from tunefarm_app.report.document import JobReport
from tunefarm_app.report.page import report_page

AGAIN = "run: python docs/make_report_sample.py"


def test_the_sample_is_what_is_drawn_today() -> None:
    kept = (DOCS / "sample" / "report.json").read_text(encoding="utf-8")
    report = JobReport.model_validate_json(kept)
    assert report.model_dump_json(indent=1) + "\n" == kept, AGAIN
    assert (DOCS / "sample" / "report.html").read_text(encoding="utf-8") == report_page(report), AGAIN


def test_the_sample_is_of_a_real_job() -> None:
    report = JobReport.model_validate_json((DOCS / "sample" / "report.json").read_bytes())
    assert not report.simulated
    assert report.latency is not None
    assert report.checks is not None
    assert report.checks.ok
    # A kernel of another algorithm has the record of that algorithm's kernel.
    by_themselves = {kernel.name for kernel in report.kernels if kernel.covered and kernel.algorithm is None}
    assert by_themselves == {record.name for record in report.records}
    page = Page(report_page(report))
    # The longest kernels are open with three sums; the others fold into a table of their own. Each has a header.
    assert len(page.tables["kernels"]) == 1 + len(report.kernels) + 3 + 1
    assert (DOCS / "images" / "report.png").read_bytes().startswith(b"\x89PNG")
