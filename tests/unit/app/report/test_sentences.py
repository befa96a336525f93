"""The sentences of a report."""

from __future__ import annotations

from tunefarm_app.report.document import JobReport
from tunefarm_app.report.sections import ReportAlternative, ReportDisturbance
from tunefarm_app.report.sentences import not_measured, rough_latencies, summary


def test_an_artifact_is_larger_than_its_model_for_a_reason(report: JobReport) -> None:
    assert report.artifact is not None
    chosen = ReportAlternative(workload_key="w", algorithm="winograd-4", chosen=True, sum_sec=1e-3)
    sizes = {
        "artifact": report.artifact.model_copy(update={"size_bytes": 97_000_000}),
        "model": report.model.model_copy(update={"size_bytes": 47_000_000}),
    }
    large = report.model_copy(update={**sizes, "alternatives": [chosen]})
    (sentence,) = (each for each in summary(large) if "Winograd" in each)
    assert sentence.startswith(
        "The artifact has 97.0 MB, the model's file 47.0 MB: it holds the weights of 1 kernel"
    )
    left_out = large.model_copy(update={"alternatives": [chosen.model_copy(update={"chosen": False})]})
    small = large.model_copy(
        update={"artifact": report.artifact.model_copy(update={"size_bytes": 48_000_000})}
    )
    for other in (left_out, small):
        assert not any("Winograd" in each for each in summary(other))
    assert any("MB, the model's file 47.0 MB: beside the weights" in each for each in summary(left_out))
    assert not any("the model's file" in each for each in summary(small))


def test_a_rough_speed_up_says_what_other_work_did_and_what_counts(report: JobReport) -> None:
    assert report.latency is not None
    name, ratio = next(iter(report.latency.ratios.items()))
    wide = ratio.model_copy(update={"low": 1.0, "high": 1.3})
    disturbance = ReportDisturbance(blocks=40, dropped=30, others_cores=1.3)

    def said(disturbance: ReportDisturbance) -> list[str]:
        tuned = report.latency.tuned.model_copy(update={"disturbance": disturbance})
        return rough_latencies(report.latency.model_copy(update={"tuned": tuned, "ratios": {name: wide}}))

    why = "The speed-up of the artifact is known only roughly: other work took 1.30 cores on average, and 30 timings of 40 do not count"
    again = "Measure again on a quiet device."
    assert said(disturbance) == [f"{why}. {again}"]
    (single,) = said(disturbance.model_copy(update={"dropped": 1}))
    assert "1 timing of 40 does not count" in single
    fastest = disturbance.model_copy(update={"of_fastest": True})
    assert said(fastest) == [f"{why}, of the others only the fastest inferences. {again}"]
    (all_count,) = said(disturbance.model_copy(update={"dropped": 0}))
    assert all_count.endswith(f"1.30 cores on average. {again}")
    (none_dropped,) = said(fastest.model_copy(update={"dropped": 0}))
    assert none_dropped.endswith(f"1.30 cores on average, and only the fastest inferences count. {again}")


def test_a_speed_up_that_is_not_known_is_no_number_of_times(report: JobReport) -> None:
    assert report.latency is not None
    ratios = {
        name: ratio.model_copy(update={"low": 0.1, "high": 33.0, "text": "not known", "verdict": "same"})
        for name, ratio in report.latency.ratios.items()
    }
    said = summary(
        report.model_copy(update={"latency": report.latency.model_copy(update={"ratios": ratios})})
    )
    compared = [each for each in said if "not comparable with" in each]
    assert len(compared) == len(ratios)
    assert compared[0].startswith("The artifact takes ")
    assert "not comparable with untuned TVM (" in compared[0]
    assert compared[0].endswith("by these timings: other work disturbed them unequally.")
    assert not any("not known as fast" in each for each in said)


def test_kernels_without_a_time_say_why(report: JobReport) -> None:
    assert report.breakdown is not None
    untimed = {"before_sec": None, "after_sec": None}
    kernels = [
        kernel.model_copy(update={**untimed, "reason": reason})
        for kernel, reason in zip(
            report.kernels, ("not-tried", "no-record", "slower-than-untuned"), strict=True
        )
    ]
    parts = report.breakdown.model_copy(update={"timed": 0, "not_timed": 3})
    said = not_measured(report.model_copy(update={"kernels": kernels, "breakdown": parts}))
    assert any(each.startswith("2 kernels alone: without a record there is no tuned form") for each in said)
    assert any(each.startswith("1 kernel alone: the checks had no time left") for each in said)


def test_a_report_that_tells_of_other_work_does_not_say_that_nobody_sees_it(report: JobReport) -> None:
    assert report.latency is not None

    def said(others_cores: float | None) -> str:
        disturbance = ReportDisturbance(blocks=9, dropped=4, others_cores=others_cores)
        tuned = report.latency.tuned.model_copy(update={"disturbance": disturbance})
        changed = report.model_copy(update={"latency": report.latency.model_copy(update={"tuned": tuned})})
        return next(each for each in not_measured(changed) if each.startswith("Other programs"))

    assert said(1.6) == (
        "Other programs on the device while single kernels were timed: only the timing of the whole network watches them."
    )
    assert "does not tell what else it runs" in said(None)
