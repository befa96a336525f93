"""Which measurement of an artifact is shown, and what its report keeps of the others."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from app_farm import Farm
from reported_farm import ReportingEngine, finished_job
from timing_engine import WITH_RUNTIME, measured, timed

from tunefarm_app.jobs.measure_again import measuring_of
from tunefarm_app.report.assemble import job_report
from tunefarm_app.report.document import JobReport
from tunefarm_app.report.measurements import KEPT, which_is_shown
from tunefarm_app.report.page import report_page
from tunefarm_app.report.sections import ReportKernelSums
from tunefarm_db.values import Json
from tunefarm_tuning.compiler.report import LatencyEvidence
from tunefarm_tuning.core.latency import Latency, TimedAgain

GPU = {"untuned": 0.04}
"""What is timed again on a GPU, in seconds."""


def compiled(farm: Farm, *, slowdown: float | None = 1.0, **others: float) -> tuple[Farm, str]:
    """Return a farm and a job whose compile timed these networks beside the artifact, and rejected a tuned one."""
    latencies = LatencyEvidence(
        latency=timed(0.01, slowdown=slowdown, others={"untuned": 0.04, **others}).latency,
        rejected=Latency.of([0.05] * 3, 2),
        alone={"tuned_sec": 0.008, "untuned_sec": 0.03, "kernels": 4},
        no_torch_compile="" if "torch_compile" in others else "PyTorch is not installed there",
    )
    return finished_job(farm, ReportingEngine(latency=latencies.to_json()))


def checked_report(farm: Farm, job_id: str) -> JobReport:
    report = job_report(farm.services, job_id)
    assert not [warning for warning in report.warnings if "contradicts" in warning]
    assert report_page(report)
    return report


def shown(farm: Farm, job_id: str) -> list[bool]:
    with farm.services.uow.read() as repos:
        return [taken.shown for taken in measuring_of(repos, job_id).items]


def test_no_comparison_of_the_compile_is_lost(farm: Farm) -> None:
    farm, job_id = compiled(farm, torch_compile=0.008, onnxruntime=0.03)
    before, job = checked_report(farm, job_id), farm.job(job_id)
    measured(farm, job_id, timed(0.02, others=GPU), timed(0.02, others=WITH_RUNTIME))
    after = checked_report(farm, job_id)
    assert after.latency == before.latency
    assert shown(farm, job_id) == [True, False, False]
    assert farm.job(job_id).speedups == job.speedups
    assert farm.job(job_id).over_runtime == pytest.approx(0.8), "slower than torch.compile"
    assert which_is_shown(after.measurements) == (
        "among those that also timed ONNX Runtime and torch.compile, the latest on a quiet device counts"
    )
    measured(farm, job_id, timed(0.02, others={**WITH_RUNTIME, "torch_compile": 0.03}))
    assert shown(farm, job_id) == [False, False, False, True]
    assert farm.job(job_id).over_runtime == pytest.approx(1.5)


def test_what_only_the_compile_found_out_stays(farm: Farm) -> None:
    farm, job_id = compiled(farm, onnxruntime=0.03)
    measured(farm, job_id, timed(0.02), timed(0.025))
    latency = checked_report(farm, job_id).latency
    assert latency is not None
    assert latency.tuned.median_sec == 0.025
    assert latency.rejected is not None
    assert latency.rejected.median_sec == 0.05
    assert latency.alone == ReportKernelSums(tuned_sec=0.008, untuned_sec=0.03, kernels=4)
    assert latency.torch_compile_missing == "PyTorch is not installed there"


def test_a_baseline_that_the_compile_lacked_is_added(farm: Farm) -> None:
    farm, job_id = compiled(farm)
    measured(farm, job_id, timed(0.02))
    latency = checked_report(farm, job_id).latency
    assert latency is not None
    assert latency.onnxruntime is not None
    assert latency.onnxruntime_missing is None


def test_the_device_is_that_of_the_shown_latency(farm: Farm) -> None:
    farm, job_id = compiled(farm, onnxruntime=0.03)
    first = checked_report(farm, job_id).device
    assert first is not None
    with farm.services.uow.write() as repos:
        (device,) = repos.devices.list().items
        lease = repos.devices.lease("pool", "somebody else", 60.0)
        assert lease is not None
    farm.add_device("node-9", info={"cpu": "Another 9000", "cores": 4})
    measured(farm, job_id, timed(0.02))
    device_after = checked_report(farm, job_id).device
    assert device_after is not None
    assert (device_after.name, device_after.cpu) == ("node-9", "Another 9000")
    measured(farm, job_id, timed(0.03, slowdown=2.0))
    report = checked_report(farm, job_id)
    assert [taken.device for taken in report.measurements] == [device.name, "node-9", "node-9"]


def test_an_unwatched_compile_does_not_count_as_quiet(farm: Farm) -> None:
    farm, job_id = compiled(farm, slowdown=None, onnxruntime=0.03)
    measurements = measured(farm, job_id, timed(0.02, slowdown=1.5))
    assert [taken.quiet for taken in measurements.items] == [None, False]
    assert shown(farm, job_id) == [False, True], "none is known to be quiet: the latest"
    page = report_page(checked_report(farm, job_id))
    assert "No measurement is known to be from a quiet device: the latest counts." in page
    assert "not watched" in page
    measured(farm, job_id, timed(0.02), timed(0.03, slowdown=None))
    assert shown(farm, job_id) == [False, False, True, False]
    assert "The latest on a quiet device counts." in report_page(checked_report(farm, job_id))


def stored_report(farm: Farm, job_id: str) -> Json:
    with farm.services.uow.read() as repos:
        artifact = repos.artifacts.for_job(job_id)
    assert artifact is not None
    return artifact.report


def test_a_report_does_not_grow_without_limit(farm: Farm) -> None:
    farm, job_id = compiled(farm, onnxruntime=0.03)
    before = len(json.dumps(stored_report(farm, job_id)))
    measured(farm, job_id, timed(0.02), *(timed(0.03, slowdown=2.0) for _ in range(KEPT + 3)))
    items = checked_report(farm, job_id).measurements
    assert len(items) == 2 + KEPT
    assert items[0].at_compile
    assert [number for number, taken in enumerate(items) if taken.shown] == [1]
    report = stored_report(farm, job_id)
    assert "samples_sec" not in json.dumps(report["measurements"])
    assert len(json.dumps(report)) < before + 600 * (2 + KEPT)


BASELINES: dict[str, Json] = {
    "openvino": {
        "missing": "",
        "version": "2026.4",
        "computes": "float32",
        "checks": {
            "ok": True,
            "max_abs_error": 1e-6,
            "max_rel_error": 1e-6,
            "mean_rel_error": 1e-7,
            "message": "",
        },
    },
    "openvino_default": {
        "missing": "",
        "version": "2026.4",
        "computes": "bfloat16",
        "checks": {
            "ok": False,
            "max_abs_error": 0.1,
            "max_rel_error": 0.03,
            "mean_rel_error": 0.002,
            "message": "<i>",
        },
    },
    "litert": {"missing": "not installed <b>", "version": "", "computes": "", "checks": {}},
}


def beside(tuned_sec: float) -> TimedAgain:
    others = {"untuned": 0.04, "onnxruntime": 0.03, "openvino": 0.025, "openvino_default": 0.015}
    return replace(timed(tuned_sec, others=others), baselines=BASELINES)


def test_a_report_shows_other_runtimes_as_onnx_runtime(farm: Farm) -> None:
    farm, job_id = finished_job(farm, ReportingEngine())
    measured(farm, job_id, timed(0.02), beside(0.01))
    report = checked_report(farm, job_id)
    assert report.latency is not None
    assert {name: baseline.title for name, baseline in report.latency.baselines.items()} == {
        "openvino": "OpenVINO, float32",
        "openvino_default": "OpenVINO, default precision (bfloat16)",
        "litert": "LiteRT",
    }
    assert [name for name, taken in report.latency.others().items() if taken.median_sec == 0.025] == [
        "openvino"
    ]
    assert report.latency.baselines["litert"].missing == "not installed <b>"
    assert report.latency.ratios["openvino_default"].comparable is False
    assert "It is 2.50× as fast as OpenVINO, float32 on the same device (25.0 ms)." in report.summary
    off = next(
        sentence for sentence in report.summary if "OpenVINO, default precision (bfloat16)" in sentence
    )
    assert "its outputs are further off than the artifact's may be" in off
    assert "LiteRT's latency: not installed <b>." in report.not_measured
    page = report_page(report)
    assert "OpenVINO, float32 2026.4" in page
    assert "not timed: not installed &lt;b&gt;" in page
    assert "OpenVINO, default precision (bfloat16) computes something else" in page
    assert page.count('class="openvino median"') == page.count('class="openvino-default median"') == 1
    assert "Speed-up over OpenVINO, float32" in page, "the table of measurements has its column"
    job = farm.job(job_id)
    assert job.over_runtime == pytest.approx(2.5), "OpenVINO in float32: what computes less is not counted"
    assert [
        taken.ratios["openvino"].value for taken in report.measurements if "openvino" in taken.ratios
    ] == [pytest.approx(2.5)]


def test_one_without_the_other_runtimes_does_not_replace_it(farm: Farm) -> None:
    farm, job_id = finished_job(farm, ReportingEngine())
    measured(farm, job_id, beside(0.01), timed(0.02))
    assert shown(farm, job_id)[-2:] == [True, False]
    assert which_is_shown(checked_report(farm, job_id).measurements).startswith(
        "among those that also timed OpenVINO, float32 and "
    )
