"""The report of a finished job."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from app_farm import Farm
from html_page import Page
from reported_farm import HOSTILE, ReportingEngine, approx, finished_job, seconds_in

from tunefarm_app.engines.replay import ReplayEngine
from tunefarm_app.engines.scenario import Scenario
from tunefarm_app.jobs.control import cancel_job
from tunefarm_app.jobs.whole_budget import JobBudget
from tunefarm_app.report.assemble import job_report
from tunefarm_app.report.document import JobReport
from tunefarm_app.report.page import report_page
from tunefarm_db.states.job import JobState
from tunefarm_tuning.core.errors import ConflictError, InvalidModelError, NotFoundError
from tunefarm_tuning.workload.task import Alternative, TuningTask

TASKS = 3


class AlternativeEngine(ReportingEngine):
    """Finds that the last of its tasks is an alternative to the first, and puts it in."""

    def extract_tasks(self, *args: Any, **named: Any) -> tuple[TuningTask, ...]:
        tasks = super().extract_tasks(*args, **named)
        key = tasks[0].workload.key
        timed = {
            "workload_key": key, "name": "conv", "algorithm": "winograd-4", "chosen": True, "reason": "", "weight": 2, "direct_sec": 3e-4,
            "kernels_sec": {"product": 1e-4}, "sum_sec": 1e-4, "expected_gain_sec": 4e-4, "network_gain_sec": 2.7e-4, "border_cost_sec": 1.3e-4,
        }  # fmt: skip
        left_out = {
            "workload_key": key, "name": "conv", "algorithm": "winograd-2", "chosen": False, "sum_sec": 5e-4, "reason": "its kernels <take longer>",
        }  # fmt: skip
        networks_sec = {"direct": 1.9e-2, "chosen": 1.87e-2}
        self._changes["alternatives"] = {"candidates": [timed, left_out], "networks_sec": networks_sec}
        alternative = Alternative(algorithm="winograd-4", instead_of=(key,), overhead=0.5)
        return (*tasks[:-1], replace(tasks[-1], alternative=alternative))


def test_how_near_its_kernels_are_to_what_the_device_can_do(farm: Farm) -> None:
    farm = farm.with_engine(ReportingEngine())
    device = farm.add_device()
    farm.note_peak(device, flops_per_sec=500e9, bytes_per_sec=20e9)
    model = farm.upload(Scenario(tasks=TASKS), name="net.onnx")
    farm.run()
    job = farm.submit(farm.model(model.id), trials=24, seed=5)
    farm.run()
    farm.note_peak(device, flops_per_sec=77e9)  # later: no business of this report
    report = job_report(farm.services, job.id)
    assert report.peak is not None
    assert (report.peak.threads, report.peak.missing) == (2, "")
    assert report.peak.flops_per_sec["float32"].all_cores == 1e12
    assert report.peak.memory_bytes_per_sec is not None
    assert report.peak.memory_bytes_per_sec.all_cores == 40e9
    covered = next(kernel for kernel in report.kernels if kernel.covered)
    assert covered.roofline is not None
    assert covered.flops is not None
    # 2e-4 s by itself, on two threads; 1e6 operations or more on 32 bytes.
    assert covered.roofline.flops_per_sec == approx(covered.flops / 2e-4)
    assert covered.roofline.share_of_peak == approx(covered.flops / 2e-4 / 1e12)
    assert (covered.roofline.memory_bound, covered.roofline.intensity) == (False, covered.flops / 32)
    assert covered.roofline.share_of_bound == covered.roofline.share_of_peak
    for kernel in report.kernels:
        assert kernel.roofline is not None
    page = report_page(report)
    assert "1.00 TFLOP/s on 2" in page
    assert "from memory 40.0 GB/s" in page
    assert f"{100 * covered.flops / 2e-4 / 1e12:.1f} %" in page


def test_a_peak_that_a_kernel_exceeds_is_no_peak(farm: Farm) -> None:
    farm = farm.with_engine(ReportingEngine())
    device = farm.add_device()
    farm.note_peak(device, flops_per_sec=3e8, bytes_per_sec=20e9)
    model = farm.upload(Scenario(tasks=TASKS), name="net.onnx")
    farm.run()
    job = farm.submit(farm.model(model.id), trials=24, seed=5)
    farm.run()
    report = job_report(farm.services, job.id)
    assert report.peak is not None
    assert not report.peak.flops_per_sec
    assert "a kernel reached" in report.peak.missing
    assert all(kernel.roofline and kernel.roofline.share_of_peak is None for kernel in report.kernels)
    assert "a kernel reached" in Page(report_page(report)).text
    with farm.services.uow.read() as repos:
        known = repos.peaks.get(device.id)
    assert known is not None
    assert known.measured_at == 0, "it is measured again at the next calibration"


def test_without_a_measured_peak_there_are_no_shares_of_it(report: JobReport) -> None:
    assert report.peak is None
    for kernel in report.kernels:
        assert kernel.roofline is not None
        assert kernel.roofline.flops_per_sec > 0
        assert kernel.roofline.share_of_peak is None
        assert kernel.roofline.share_of_bound is None
    assert "peak was not measured" in report_page(report)


def test_everything_that_is_known_is_in_it(farm: Farm) -> None:
    farm, job_id = finished_job(farm, ReportingEngine())
    report = job_report(farm.services, job_id)
    job = farm.job(job_id)
    assert (report.format, report.format_version, report.simulated) == ("tunefarm-job-report", 1, False)
    assert (report.job.state, report.job.trials, report.job.seed) == (JobState.SUCCEEDED, 24, 5)
    assert report.job.failures == job.failures == 24 - report.outcomes["ok"] > 0
    assert report.outcomes == {
        outcome: sum(kernel.outcomes.get(outcome, 0) for kernel in report.kernels)
        for outcome in report.outcomes
    }
    assert report.model.sha256 == farm.model(job.model_id).sha256
    assert report.target.key == job.target_key
    assert report.artifact is not None
    assert report.artifact.name == "net.tunefarm"
    assert report.device is not None
    assert (report.device.name, report.device.cpu) == ("dev-1", "Replay 9000")
    assert report.place is not None
    assert (report.place.threads, report.place.seed) == (2, 7)

    assert report.latency is not None
    assert report.latency.speedup_over_onnxruntime == approx(0.002 / 0.00112)
    assert report.latency.tuned.inferences == [90, 90, 90]
    assert not report.latency.tuned_is_untuned
    assert not report.latency.overlaps_onnxruntime
    assert report.checks is not None
    assert report.checks.max_abs_error == 1.25e-5
    assert report.coverage is not None
    assert (report.coverage.tasks, report.coverage.covered) == (TASKS, 1)
    assert {miss.reason for miss in report.coverage.misses} == {"slower-than-untuned", "no-record"}
    assert [kernel.position for kernel in report.kernels] == list(range(TASKS))
    covered = next(kernel for kernel in report.kernels if kernel.covered)
    assert covered.before_sec == approx(covered.weight * 0.01)
    assert covered.after_sec == approx(covered.weight * 2e-4)
    slow = next(kernel for kernel in report.kernels if kernel.reason == "slower-than-untuned")
    assert slow.before_sec == slow.after_sec == approx(slow.weight * 3.5e-6)
    assert slow.tuned is not None
    assert report.breakdown is not None
    assert (report.breakdown.timed, report.breakdown.not_timed) == (2, 1)
    assert report.breakdown.kernels_after_sec + report.breakdown.rest_after_sec == approx(0.00112)
    (record,) = report.records
    assert (record.workload_key, record.job_id) == (covered.workload_key, job_id)
    assert record.device == "dev-1"
    with farm.services.uow.read() as repos:
        known = {record.id: record for record in repos.records.for_job(job_id)}
    assert record.record_id is not None
    assert known[record.record_id].cost_sec == record.cost_sec
    assert any("1 kernel alone" in sentence for sentence in report.not_measured)
    assert any("real data" in sentence for sentence in report.not_measured)
    assert report.warnings == []
    code = "\n".join(step.code for step in report.reproduce.steps)
    assert "--trials 24 --tuner xgb --seed 5" in code
    assert report.model.sha256 in code
    assert "apache-tvm==" in code


def test_the_command_repeats_the_users_own_limits(farm: Farm) -> None:
    farm.add_device()
    commands = []
    for limits in ({"wall_sec": 30.0}, {}):
        budget = JobBudget(job_sec=600.0, trials=8, **limits)
        job = farm.submit(farm.ready_model(Scenario(tasks=1)), budget=budget)
        farm.run()
        steps = job_report(farm.services, job.id).reproduce.steps
        commands += [step.code for step in steps if step.code.startswith("tunefarm tune")]
    assert ["--seconds 30 " in command for command in commands] == [True, False]
    assert all("--job-seconds 600 " in command for command in commands)


def test_libraries_are_part_of_the_commands_and_not_of_the_records(farm: Farm) -> None:
    farm.add_device()
    job = farm.submit(
        farm.ready_model(Scenario(tasks=1)), target="llvm -libs=dnnl", budget=JobBudget(trials=8)
    )
    farm.run()
    report = job_report(farm.services, job.id)
    assert "llvm -libs=dnnl" in Page(report_page(report)).text
    steps = report.reproduce.steps
    (command,) = (step.code for step in steps if step.code.startswith("tunefarm tune"))
    assert "--target 'llvm -libs=dnnl'" in command
    (again,) = (step.code for step in steps if "compile(" in step.code)
    assert "'llvm -libs=dnnl'" in again
    with farm.services.uow.read() as repos:
        assert {record.target_key for record in repos.records.for_job(job.id)} == {"llvm"}


def test_nothing_is_told_that_finds_a_machine(farm: Farm) -> None:
    farm, job_id = finished_job(farm, ReportingEngine())
    report = job_report(farm.services, job_id)
    assert "secret" not in report.model_dump_json() + report_page(report)


def test_it_does_not_change_with_time_or_with_its_device(farm: Farm) -> None:
    farm, job_id = finished_job(farm, ReportingEngine())
    first = job_report(farm.services, job_id)
    with farm.services.uow.write() as repos:
        repos.models.delete(first.model.id)
    farm.newcomer(info={"cpu": "Another"})  # the same device, changed
    second = job_report(farm.services, job_id)
    assert first == second
    assert JobReport.model_validate_json(first.model_dump_json()) == first
    assert report_page(first) == report_page(second)


def test_an_algorithm_that_replaced_a_kernel_is_reported(farm: Farm) -> None:
    farm, job_id = finished_job(farm, AlternativeEngine())
    report = job_report(farm.services, job_id)
    direct, part = report.kernels[0], report.kernels[-1]
    assert (direct.algorithm, direct.alternative, direct.covered) == ("winograd-4", None, True)
    assert direct.after_sec == pytest.approx(direct.weight * 1e-4)
    assert direct.roofline is None
    assert (part.algorithm, part.alternative) == (None, "winograd-4")
    assert part.before_sec is None  # its time is in that of the kernel whose place it took
    assert part.after_sec is None
    text = Page(report_page(report)).text
    assert "by Winograd" in text
    assert "part of Winograd" in text
    first, second = report.alternatives
    assert (first.chosen, first.network_gain_sec, first.border_cost_sec) == (True, 2.7e-4, 1.3e-4)
    assert (second.chosen, second.network_gain_sec, second.border_cost_sec) == (False, None, None)
    assert "Other algorithms" in text
    table = Page(report_page(report)).tables["alternatives"]
    assert table[1][5:] == ["400 µs", "270 µs", "130 µs", "yes"]
    assert table[2][5:] == ["–", "–", "–", "no its kernels <take longer>"]
    assert table[3][5:8] == ["400 µs", "300 µs", "100 µs"]
    with farm.services.uow.read() as repos:
        job = repos.jobs.get(job_id)
        tasks = repos.jobs.tasks(job_id)
    whole_sec = [task.weight * (task.best_cost_sec or 0.0) for task in tasks[1:-1]]
    either_sec = [tasks[0].best_cost_sec or 0.0, 1.5 * (tasks[-1].best_cost_sec or 0.0)]
    assert job.best_latency_sec == pytest.approx(sum(whole_sec) + tasks[0].weight * min(either_sec))


def test_a_simulated_job_says_so(farm: Farm) -> None:
    farm, job_id = finished_job(farm, ReplayEngine())
    report = job_report(farm.services, job_id)
    assert report.simulated
    assert report.latency is None
    assert report.coverage is not None
    assert report.coverage.covered == TASKS
    assert all(kernel.covered is None for kernel in report.kernels)
    assert "synthetic" in Page(report_page(report)).text


def test_a_part_that_cannot_be_read_is_left_out_and_named(farm: Farm) -> None:
    changes = {
        "latency": {"tuned": 3},
        "checks": [1],
        "kernels": [3],
        "records": "x",
        "method": 5,
        "place": {},
    }
    farm, job_id = finished_job(farm, ReportingEngine(**changes))
    report = job_report(farm.services, job_id)
    assert report.latency is None
    assert report.checks is None
    assert report.records == []
    assert {text.rpartition(": ")[2] for text in report.warnings} == set(changes)
    assert report.coverage is not None
    assert "cannot be read: latency" in Page(report_page(report)).text


@pytest.mark.parametrize(
    ("median_sec", "warning"),
    [(0.5, "slower"), (0.0205, "do not tell the two apart"), (0.001, "rough")],
)
def test_a_bad_outcome_is_not_hidden(farm: Farm, median_sec: float, warning: str) -> None:
    def timing(*samples: float) -> dict[str, Any]:
        return {"samples_sec": list(samples), "threads": 2}

    latency = {
        "onnxruntime": timing(0.02, 0.021),
        "untuned": timing(0.5, 0.6),
        "tuned": timing(median_sec, median_sec, *([5 * median_sec] if warning == "rough" else [])),
    }
    farm, job_id = finished_job(farm, ReportingEngine(latency=latency))
    report = job_report(farm.services, job_id)
    assert any(warning in sentence for sentence in (*report.summary, *report.warnings))
    assert warning in Page(report_page(report)).text


def test_an_artifact_without_tuned_kernels_says_so(farm: Farm) -> None:
    untuned = {"samples_sec": [0.5, 0.6], "threads": 2}
    latency = {
        "onnxruntime": None,
        "onnxruntime_missing": "not asked for",
        "untuned": untuned,
        "tuned": untuned,
        "rejected": {"samples_sec": [0.7, 0.8], "threads": 2},
    }
    coverage = {"tasks": TASKS, "covered": 0, "hits": [], "misses": []}
    farm, job_id = finished_job(farm, ReportingEngine(latency=latency, coverage=coverage))
    report = job_report(farm.services, job_id)
    assert report.latency is not None
    assert report.latency.tuned_is_untuned
    text = Page(report_page(report)).text
    assert "has no tuned kernel" in text
    assert "not timed: not asked for" in text
    assert "rejected at the compile 750 ms" in text


def test_another_algorithm_without_a_tuned_kernel_is_not_called_the_untuned_network(farm: Farm) -> None:
    latency = {
        "onnxruntime": None,
        "untuned": {"samples_sec": [0.5, 0.6], "threads": 2},
        "tuned": {"samples_sec": [0.2, 0.25], "threads": 2},
    }
    candidate = {"workload_key": "a", "algorithm": "winograd-4", "chosen": True, "sum_sec": 0.1}
    engine = ReportingEngine(
        latency=latency,
        coverage={"tasks": TASKS, "covered": 0, "hits": [], "misses": []},
        alternatives={"candidates": [candidate]},
    )
    farm, job_id = finished_job(farm, engine)
    report = job_report(farm.services, job_id)
    assert report.latency is not None
    assert not report.latency.tuned_is_untuned
    text = Page(report_page(report)).text
    assert "like the untuned network" not in text
    assert "as fast as untuned TVM (550 ms)" in text
    assert "The artifact (TVM, not tuned, with Winograd)" in text


@pytest.mark.parametrize("timed", [True, False])
def test_torch_compile_is_reported_where_it_was_asked_for(farm: Farm, timed: bool) -> None:
    def timing(*samples: float) -> dict[str, Any]:
        return {"samples_sec": list(samples), "threads": 1}

    latency = {
        "onnxruntime": timing(0.02, 0.021),
        "torch_compile": timing(0.03, 0.031) if timed else None,
        "torch_compile_missing": None if timed else "PyTorch is not installed there",
        "untuned": timing(0.5, 0.6),
        "tuned": timing(0.01, 0.011),
    }
    farm, job_id = finished_job(farm, ReportingEngine(latency=latency))
    report = job_report(farm.services, job_id)
    text = Page(report_page(report)).text
    if timed:
        assert any("torch.compile" in sentence for sentence in report.summary)
        assert "PyTorch, torch.compile 30.5 ms" in text
    else:
        assert "not timed: PyTorch is not installed there" in text
        assert any("PyTorch is not installed there" in sentence for sentence in report.not_measured)


def test_a_cancelled_job_has_a_report_of_what_there_is(farm: Farm) -> None:
    farm.add_device()
    job = farm.submit(farm.ready_model(Scenario(tasks=2)), trials=100)
    farm.run(steps=2)
    assert not farm.job(job.id).state.is_finished
    with pytest.raises(ConflictError) as caught:
        job_report(farm.services, job.id)
    assert caught.value.code == "not-finished"
    cancel_job(farm.services, job.id)
    report = job_report(farm.services, job.id)
    assert report.job.state is JobState.CANCELLED
    assert report.artifact is None
    assert sum(report.outcomes.values()) == report.job.trials > 0
    assert "cancelled" in report.summary[0]
    text = Page(report_page(report)).text
    assert report.summary[0] in text
    assert "there is no artifact" in text


def test_a_failed_job_says_why(farm: Farm) -> None:
    class Failing(ReplayEngine):
        def compile(self, *args: Any, **named: Any) -> Any:
            raise InvalidModelError(f"no: {HOSTILE}", code="wrong-output")

    farm, job_id = finished_job(farm, Failing())
    assert farm.job(job_id).state is JobState.FAILED
    report = job_report(farm.services, job_id)
    assert report.job.error is not None
    assert report.job.error["code"] == "wrong-output"
    html = report_page(report)
    assert "<script" not in html
    page = Page(html)
    assert "The job failed" in page.text
    for kernel in report.kernels:
        assert kernel.best_cost_sec is not None
        _, _, trials, failed, best = page.row("kernels", kernel.name)
        assert (int(trials), int(failed)) == (kernel.trials, kernel.trials - kernel.outcomes["ok"])
        assert seconds_in(best) == approx(kernel.best_cost_sec)


def test_no_job_no_report(farm: Farm) -> None:
    with pytest.raises(NotFoundError):
        job_report(farm.services, "job_nothing")
