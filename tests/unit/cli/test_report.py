"""A report as people read it."""

from __future__ import annotations

from typing import Any

import pytest

from tunefarm.cli.base.output import Output
from tunefarm.cli.report import show_report, trials_text

REPORT: dict[str, Any] = {
    "latency": {
        "onnxruntime": {"median_sec": 0.02, "samples_sec": [0.019, 0.02, 0.03], "threads": 2},
        "untuned": {"median_sec": 1.5, "samples_sec": [1.5], "threads": 2},
        "tuned": {"median_sec": 0.025, "samples_sec": [0.024, 0.025, 0.026], "threads": 2},
        "onnxruntime_missing": None,
    },
    "checks": {"max_abs_error": 1.25e-5, "max_rel_error": 3e-6, "reference": "ONNX Runtime", "ok": True},
    "coverage": {
        "tasks": 9,
        "covered": 2,
        "misses": [
            *({"name": f"k{n}", "reason": "no-record", "message": ""} for n in range(6)),
            {"name": "bad\x1b[31m", "reason": "wrong-answer", "message": "off by 3"},
        ],
    },
    "warnings": ["the network was \x1b[1m[bold]slow[/bold]"],
}


def shown(capsys: pytest.CaptureFixture[str], report: dict[str, Any]) -> list[str]:
    show_report(Output(), report)
    out, err = capsys.readouterr()
    assert err == ""
    return [" ".join(line.split()) for line in out.splitlines() if line.strip()]


def test_everything_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, {**REPORT, "outcomes": {"ok": 10, "run-error": 2, "build-error": 2}})
    assert "ONNX Runtime 20 ms 19 ms to 30 ms 2 0.80×" in lines
    assert "TVM, untuned 1.5 s 1.5 s to 1.5 s 2 60.0×" in lines
    assert "the artifact (TVM, tuned) 25 ms 24 ms to 26 ms 2 –" in lines
    assert "largest output difference 1.25e-05 absolute, 3e-06 relative (ONNX Runtime)" in lines
    assert "kernels tuned 2 of 9" in lines
    assert "untuned: 6 kernels, no config worked: k0, k1, k2, k3 and 2 more" in lines
    assert "untuned: 1 kernel, the tuned form computes a different result: bad\\x1b[31m (off by 3)" in lines
    assert "trials 14: 10 ok, 2 build-error, 2 run-error" in lines
    assert "note: the network was \\x1b[1m[bold]slow[/bold]" in lines


def test_many_kernels_that_are_slower_than_untuned_are_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    misses = [
        {"name": f"k{n}", "reason": "slower-than-untuned", "message": f"{n + 1} ms tuned, 0.5 ms untuned"}
        for n in range(21)
    ]
    lines = shown(capsys, {"coverage": {"tasks": 56, "covered": 6, "misses": misses}})
    (line,) = [line for line in lines if line.startswith("untuned:")]
    assert line.startswith(
        "untuned: 21 kernels, the tuned form is slower than the untuned one: k0 (1 ms tuned,"
    )
    assert line.endswith("k3 (4 ms tuned, 0.5 ms untuned) and 17 more")


def test_what_was_not_measured_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    latency = {**REPORT["latency"], "onnxruntime": None, "onnxruntime_missing": "another machine"}
    assert "ONNX Runtime – – – another machine" in shown(capsys, {**REPORT, "latency": latency})


def test_torch_compile_is_there_where_it_was_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    timing = {"median_sec": 0.05, "samples_sec": [0.05, 0.06], "threads": None}
    timed = shown(capsys, {**REPORT, "latency": {**REPORT["latency"], "torch_compile": timing}})
    assert "PyTorch, torch.compile 50 ms 50 ms to 60 ms – 2.00×" in timed
    missing = {**REPORT["latency"], "torch_compile": None, "torch_compile_missing": "PyTorch is not there"}
    assert "PyTorch, torch.compile – – – PyTorch is not there" in shown(
        capsys, {**REPORT, "latency": missing}
    )
    assert not any("torch" in line for line in shown(capsys, REPORT))


def test_a_job_without_an_artifact_says_how_it_ended(capsys: pytest.CaptureFixture[str]) -> None:
    report = {"latency": None, "summary": ["The job failed: \x1b[1m[bold]no[/bold]."], "outcomes": {"ok": 1}}
    assert shown(capsys, report) == ["The job failed: \\x1b[1m[bold]no[/bold].", "trials 1: 1 ok"]


def test_a_report_with_little_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, {"simulated": True, "coverage": {"tasks": 2, "covered": 1}}) == [
        "kernels tuned 1 of 2"
    ]
    assert trials_text({}) == "0: "


def test_other_runtimes_are_there_where_they_were_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    timing = {"median_sec": 0.05, "samples_sec": [0.05, 0.06], "threads": 2}
    checks = {"ok": False, "max_rel_error": 0.03, "mean_rel_error": 0.0012}
    facts: dict[str, Any] = {
        "openvino": {"missing": "", "computes": "float32", "checks": {**checks, "ok": True}},
        "openvino_default": {"missing": "", "computes": "bfloat16", "checks": checks},
        "litert": {"missing": "not installed\x1b[31m"},
    }
    of_the_compiler = {
        **REPORT["latency"],
        "openvino": timing,
        "openvino_default": timing,
        "baselines": facts,
    }
    of_a_job = {
        **REPORT["latency"],
        "baselines": {**facts, "openvino": {**facts["openvino"], "timing": timing}},
    }
    lines = shown(capsys, {**REPORT, "latency": of_the_compiler})
    assert "OpenVINO, float32 50 ms 50 ms to 60 ms 2 2.00×" in lines
    assert "OpenVINO, default precision (bfloat16) 50 ms 50 ms to 60 ms 2 2.00×" in lines
    assert "LiteRT – – – not installed\\x1b[31m" in lines
    off = "OpenVINO, default precision (bfloat16) computes something else: outputs differ by mean 0.0012, largest 0.03 relative"
    assert f"note: {off}" in lines
    assert "OpenVINO, float32 50 ms 50 ms to 60 ms 2 2.00×" in shown(capsys, {**REPORT, "latency": of_a_job})
    assert not any("LiteRT" in line for line in shown(capsys, REPORT))
