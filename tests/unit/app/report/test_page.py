"""The page of a report."""

from __future__ import annotations

import base64
import hashlib
import re

from app_farm import Farm
from html_page import Page
from reported_farm import HOSTILE, ReportingEngine, approx, finished_job, seconds_in

from tunefarm_app.report.assemble import job_report
from tunefarm_app.report.charts import _LARGEST, time_stacks
from tunefarm_app.report.document import JobReport
from tunefarm_app.report.hybrid import ReportHybrid, hybrid_sentence
from tunefarm_app.report.page import content_security_policy, report_page
from tunefarm_app.report.shape_sections import ReportOtherShapes
from tunefarm_text.coverage_words import REASONS

TASKS = 3


def test_the_pages_figures_are_the_documents(report: JobReport) -> None:
    page = Page(report_page(report))
    assert report.latency is not None
    assert report.latency.onnxruntime is not None
    ratios = report.latency.ratios
    for name, timing, text in (
        ("ONNX Runtime", report.latency.onnxruntime, ratios["onnxruntime"].text),
        ("TVM, untuned", report.latency.untuned, ratios["untuned"].text),
        ("The artifact", report.latency.tuned, "–"),
    ):
        _, median, spread, _, samples, threads, against = page.row("latency", name)
        assert seconds_in(median) == approx(timing.median_sec)
        if len(timing.samples_sec) == 1:
            assert spread == "one sample"
        else:
            fastest, slowest = spread.split(" to ")
            assert seconds_in(fastest) == approx(timing.min_sec)
            assert seconds_in(slowest) == approx(timing.max_sec)
        assert (int(samples), int(threads)) == (len(timing.samples_sec), timing.threads)
        assert against == text

    assert len(page.tables["kernels"]) == 1 + TASKS + 3
    for kernel in report.kernels:
        _, calls, before, after, *_, trials = page.row("kernels", kernel.name)
        assert (int(calls), int(trials)) == (kernel.weight, kernel.trials)
        if kernel.covered is False and kernel.reason is not None:
            assert f"untuned: {REASONS[kernel.reason]}" in after
        if kernel.before_sec is None:
            assert before == "–"
        else:
            assert seconds_in(before) == approx(kernel.before_sec)
            assert seconds_in(after) == approx(kernel.after_sec)
    assert report.breakdown is not None
    rest = page.row("kernels", "remainder")
    assert seconds_in(rest[2]) == approx(report.breakdown.rest_before_sec)
    assert seconds_in(rest[3]) == approx(report.breakdown.rest_after_sec)

    for outcome, number in report.outcomes.items():
        assert page.row("trials", outcome)[1:3] == [str(number), f"{number / 24:.1%}".replace("%", " %")]
    assert report.checks is not None
    cells = page.row("outputs", "y")
    assert (float(cells[2]), float(cells[3])) == (1.25e-5, 3.5e-6)
    assert "990 compared" in cells[7]
    assert len(page.tables["coverage"]) == 1 + 2 + 1
    for sentence in (*report.summary, *report.not_measured, *report.reproduce.caveats):
        assert sentence in page.text
    for text in (
        report.job.id,
        report.model.sha256,
        report.target.key,
        "Replay 9000",
        *report.versions.values(),
    ):
        assert text in page.text


def test_the_page_is_complete_in_itself(report: JobReport) -> None:
    html = report_page(report)
    page = Page(html)
    names = {name for name, _ in page.tags}
    assert not names & {
        "script",
        "link",
        "img",
        "iframe",
        "object",
        "embed",
        "base",
        "form",
        "a",
        "use",
        "image",
    }
    for _, attributes in page.tags:
        assert not [name for name in attributes if name.startswith("on") or name in ("style", "src", "href")]
    style = re.search(r"<style>(.*?)</style>", html, re.DOTALL)
    assert style is not None
    assert "url(" not in style[1]
    assert "@import" not in style[1]
    assert "@media print" in style[1]
    policy = next(a["content"] for _, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy == content_security_policy()
    assert "default-src 'none'" in str(policy)
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in str(policy)


def test_a_strangers_text_stays_text(farm: Farm) -> None:
    plain, plain_id = finished_job(farm, ReportingEngine())
    usual = Page(report_page(job_report(plain.services, plain_id)))
    farm, job_id = finished_job(farm, ReportingEngine(name=HOSTILE, message=HOSTILE), name=HOSTILE, seed=1)
    report = job_report(farm.services, job_id)
    assert report.model.name.startswith("<script>")
    assert report.coverage is not None
    assert {miss.name for miss in report.coverage.misses} != {"matmul_0"}
    html = report_page(report)
    assert "<script" not in html
    assert "\x1b" not in html
    assert "\u202e" not in html
    page = Page(html)
    assert {name for name, _ in page.tags} <= {name for name, _ in usual.tags}
    assert {key for _, attributes in page.tags for key in attributes} <= {
        key for _, attributes in usual.tags for key in attributes
    }
    assert "<script>alert('x')</script>" in page.text
    assert r"\x1b[31m\u202e&amp;{{7*7}}" in page.text


def test_one_kernel_more_than_the_bars_name_is_one_other_kernel(report: JobReport) -> None:
    timed = next(kernel for kernel in report.kernels if kernel.before_sec and kernel.after_sec)
    legends = []
    for others in (1, 2):
        kernels = [
            timed.model_copy(update={"position": at, "name": f"k{at}"}) for at in range(_LARGEST + others)
        ]
        stack, _ = time_stacks(report.model_copy(update={"kernels": kernels}))
        legends.append([segment.name for segment in stack.segments if segment.color == -1])
    assert legends == [["1 other kernel"], ["2 other kernels"]]


def test_the_page_says_what_onnx_runtime_runs_and_its_share(report: JobReport) -> None:
    part = {
        "file": "part_1.onnx",
        "nodes": 4,
        "operators": [["Gather", 2], ["NonMaxSuppression", 1], ["<b>", 1]],
        "reasons": [{"operator": "NonMaxSuppression", "node": "'nms'", "reason": "is not supported"}],
        "median_sec": 0.002,
        "share": 0.25,
    }
    hybrid = ReportHybrid.model_validate(
        {
            "method": "Timed once more.",
            "parts": [part],
            "median_sec": 0.008,
            "onnxruntime_share": 0.25,
            "not_timed": None,
        }
    )
    text = report_page(report.model_copy(update={"hybrid": hybrid}))
    assert "1 part of the network cannot be compiled, and runs in ONNX Runtime inside the artifact" in text
    assert "25 % are in ONNX Runtime and 75 % in compiled code" in text
    assert "2 Gather, NonMaxSuppression, &lt;b&gt;" in text
    assert "node &#39;nms&#39; (NonMaxSuppression) is not supported" in text
    assert "25 % of the time (2.00 ms)" in hybrid_sentence(hybrid)
    update = {"onnxruntime_share": None, "not_timed": "onnxruntime is missing"}
    untimed = hybrid.model_copy(update=update)
    assert "share of the time is not known: onnxruntime is missing" in hybrid_sentence(untimed)
    text = report_page(report.model_copy(update={"hybrid": untimed}))
    assert "The parts were not timed: onnxruntime is missing." in text
    assert "What ONNX Runtime runs" not in report_page(report)


def test_the_page_says_which_other_shapes_run(report: JobReport) -> None:
    others = ReportOtherShapes.model_validate(
        {
            "entry": "main_1",
            "reason": None,
            "inputs": [{"name": "<image>", "dtype": "float32", "shape": [1, 3, "h"]}],
            "outputs": [],
            "dimensions": [{"name": "h", "multiple": 32, "least": 64, "most": None}],
            "conditions": [{"text": "h * w has to be a multiple of <4>"}],
            "compared": [{"inputs": {"<image>": [1, 3, 64]}, "max_abs_error": 0.0}],
            "latency_sec": 0.25,
        }
    )
    text = report_page(report.model_copy(update={"other_shapes": others}))
    assert "All other shapes of &lt;image&gt; [1, 3, h] run with code for all sizes" in text
    assert "h: multiples of 32, at least 64" in text
    assert "h * w has to be a multiple of &lt;4&gt;" in text
    assert "in 1 set of shapes" in text
    refused = ReportOtherShapes(reason="node 'a' (EyeLike) needs <fixed> sizes")
    text = report_page(report.model_copy(update={"other_shapes": refused}))
    assert "The artifact runs no other shapes: node &#39;a&#39; (EyeLike) needs &lt;fixed&gt; sizes." in text


def test_kernels_that_are_untuned_for_one_reason_are_a_line(report: JobReport) -> None:
    assert report.coverage is not None
    (miss, *_) = report.coverage.misses
    misses = [
        miss.model_copy(update={"name": f"conv{number}", "reason": reason, "message": message, "weight": 2})
        for number, (reason, message) in enumerate(
            [("no-record", ""), ("no-record", ""), ("no-record", ""), ("slower-than-untuned", "1.2 times")]
        )
    ]
    coverage = report.coverage.model_copy(update={"misses": misses})
    rows = Page(report_page(report.model_copy(update={"coverage": coverage, "not_tunable": []}))).tables[
        "coverage"
    ]
    assert [row[:2] for row in rows[1:]] == [
        ["3 kernelsconv0conv1conv2", "6"],
        ["conv3 1.2 times", "2"],
    ]


def test_a_report_of_many_kernels_opens_with_those_that_take_longest(report: JobReport) -> None:
    (kernel, *_) = report.kernels
    kernels = [
        kernel.model_copy(update={"name": f"conv{number}", "position": number, "before_sec": 1e-3 * number})
        for number in range(50)
    ]
    text = report_page(report.model_copy(update={"kernels": kernels}))
    opened, folded = text.split("<summary>38 other kernels</summary>")
    assert [f">conv{number} " in opened for number in (49, 38, 37, 0)] == [True, True, False, False]
    assert [f">conv{number} " in folded for number in (37, 0)] == [True, True]
