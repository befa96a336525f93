"""The numbers of a report fit together, whatever the job was like."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from statistics import median
from typing import Any

import pytest
from html_page import Page
from hypothesis import given, settings
from hypothesis import strategies as st
from job_values import job, task

from tunefarm_app.records.farm_facts import FARM, PEAK
from tunefarm_app.report.assemble import assemble_report
from tunefarm_app.report.contradictions import contradictions
from tunefarm_app.report.document import JobReport
from tunefarm_app.report.evidence import ratio_of
from tunefarm_app.report.numbers import (
    best_runtime,
    latency_of,
    listed_numbers,
    measured_words,
    ratios_of,
    reach_sentence,
    speedups_of,
    to_tune_words,
    tuned_words,
    untried_sentence,
)
from tunefarm_app.report.page import report_page
from tunefarm_db.states.job import JobState
from tunefarm_db.values import Artifact, Draft, JobTask, Model, ModelState, Workload
from tunefarm_text.coverage_words import NOT_TRIED, REASONS
from tunefarm_tuning.core.latency import Disturbance, Latency
from tunefarm_tuning.core.ratio import Ratio, speedups
from tunefarm_tuning.measure.peak import Peak, Rate
from tunefarm_tuning.records.coverage import MissReason

MODEL = Model(
    id="mod_1", name="net", sha256="0" * 64, size_bytes=1, shapes={}, values={}, state=ModelState.READY, error=None,
    inputs=[], outputs=[], operators=[], opset=17, num_params=1, created_at=1.0, updated_at=1.0,
)  # fmt: skip
SPEC = {"name": "x", "shape": [4, 4], "dtype": "float32"}
SECONDS = st.floats(1e-7, 10.0)


def samples(least: int = 1, most: int = 9) -> st.SearchStrategy[list[float]]:
    return st.lists(SECONDS, min_size=least, max_size=most)


@st.composite
def latencies(draw: st.DrawFn) -> dict[str, Any]:
    """The whole network's latency, as the compiler writes it today, or as earlier releases did."""
    names = [
        "tuned",
        "untuned",
        *draw(st.sampled_from([[], ["onnxruntime"], ["onnxruntime", "torch_compile"]])),
    ]
    others = Disturbance(blocks=9, dropped=2, slowdown=draw(st.floats(1, 4)), others_cores=0.5)
    disturbance = draw(st.sampled_from([None, others]))
    timed = {
        name: Latency(samples_sec=tuple(draw(samples())), threads=2, disturbance=disturbance)
        for name in names
    }
    noted = {"ratios": {name: ratio.to_json() for name, ratio in speedups(timed).items()}}
    return {
        "onnxruntime": None,
        **{name: latency.to_json() for name, latency in timed.items()},
        **(noted if draw(st.booleans()) else {}),
    }


@st.composite
def reports(draw: st.DrawFn) -> JobReport:
    """The report of any job: some kernels tuned, some rejected, some replaced, some never tried."""
    tasks: list[JobTask] = []
    hits, misses, kernels, candidates = [], [], [], []
    outcomes: dict[int, dict[str, int]] = {}
    for position in range(draw(st.integers(1, 6))):
        key, trials = f"key-{position}", draw(st.sampled_from([0, 0, 1, 8, 300]))
        failures = draw(st.integers(0, trials))
        works = trials > failures
        tasks.append(
            task(
                position=position, workload_key=key, name=f"kernel_{position}", weight=draw(st.integers(1, 40)), toolchain="t",
                trials=trials, failures=failures, best_cost_sec=draw(SECONDS) if works else None, confirmations=0, spent_sec=0.1,
            )
        )  # fmt: skip
        if trials:
            outcomes[position] = {"ok": trials - failures, "build-error": failures}
        named = {"workload_key": key, "name": f"kernel_{position}", "weight": tasks[-1].weight}
        untuned = draw(st.one_of(st.just([]), samples()))
        tuned = draw(samples()) if works and untuned else []
        if works and draw(st.booleans()):
            hits.append(named)
        else:
            reason = draw(st.sampled_from(MissReason)) if works else MissReason.NO_RECORD
            misses.append({**named, "reason": reason.value, "message": draw(st.sampled_from(["", "why"]))})
        if untuned:
            kernels.append({"workload_key": key, "names": ["k"], "untuned_sec": untuned, "tuned_sec": tuned})
        if draw(st.integers(0, 3)) == 0:
            direct_sec = None if not untuned else median(tuned or untuned)
            candidates.append(
                {**named, "algorithm": "winograd-4", "chosen": draw(st.booleans()), "direct_sec": direct_sec, "sum_sec": draw(SECONDS)}
            )  # fmt: skip
    most = draw(st.sampled_from([None, 1e3, 1e12]))
    rate = Rate(one_core=most or 1.0, all_cores=2 * (most or 1.0))
    peak = Peak(key="p", threads=2, measured_at=1.0, flops_per_sec={"float32": rate}) if most else None
    raw = {
        "coverage": {"tasks": len(tasks), "covered": len(hits), "hits": hits, "misses": misses},
        "kernels": kernels,
        "alternatives": {"candidates": candidates},
        "latency": draw(st.one_of(st.none(), latencies())),
        "place": {"device_model": "d", "this_machine": True, "threads": 2, "seed": 0, "system": None},
        FARM: {PEAK: None if peak is None else peak.to_json(), "records": {}},
    }
    artifact = Artifact(
        id="art_1", job_id="job_1", sha256="0" * 64, size_bytes=1, name="net.tunefarm", manifest={"device_model": "d"}, report=raw, created_at=1.0
    )  # fmt: skip
    trials = sum(each.trials for each in tasks)
    finished = job(
        state=JobState.SUCCEEDED, model_id="mod_1", target_key="llvm", target={"kind": "llvm"}, device_key="local", tuner="evolutionary",
        seed=0, options={}, trials=trials, failures=sum(each.failures for each in tasks), created_at=1.0, finished_at=2.0,
    )  # fmt: skip
    flops = draw(st.sampled_from([0.0, 1e4, 1e9]))
    workloads = {
        each.workload_key: Workload(
            key=each.workload_key, toolchain="t", name=each.name, flops=flops, args=[SPEC], ir=""
        )
        for each in tasks
    }
    return assemble_report(
        finished, MODEL, draw(st.sampled_from([artifact, artifact, None])), tasks, outcomes, workloads, {}
    )


@given(report=reports())
@settings(max_examples=150, deadline=None)
def test_no_job_makes_a_report_contradict_itself(report: JobReport) -> None:
    assert contradictions(report) == []
    for kernel in report.kernels:
        assert (kernel.reason == NOT_TRIED) <= (kernel.trials == 0)
        if kernel.reason == MissReason.NO_RECORD.value:
            assert kernel.trials
    if report.breakdown is not None and report.latency is not None:
        after = sum(kernel.share_after or 0.0 for kernel in report.kernels)
        assert 0 <= after <= 1 + 1e-9
        whole_sec = max(report.latency.tuned.median_sec, report.breakdown.kernels_after_sec)
        assert report.breakdown.shares_after_known or not after
        assert not report.breakdown.shares_after_known or report.breakdown.rest_after_sec == pytest.approx(
            (1 - after) * whole_sec, abs=1e-9
        )
    page = Page(report_page(report))
    assert "−" not in "".join(page.row("kernels", "remainder") if report.breakdown else [])
    assert (REASONS[NOT_TRIED] in page.text) == any(kernel.reason == NOT_TRIED for kernel in report.kernels)


def broken(change: Callable[[dict[str, Any]], None]) -> list[str]:
    """Return what is said of a sound report after a change of its JSON."""
    data = sound().model_dump()
    change(data)
    return contradictions(JobReport.model_validate(data))


def sound(*, timed_kernels: int = 2, slowed: float = 1.0) -> JobReport:
    """Return a report of two kernels, of which the first ones are timed alone, `slowed` times as slow as in the network."""
    tasks = [
        task(position=0, workload_key="a", name="a", weight=2, trials=9, toolchain="t", best_cost_sec=1e-3, confirmations=0, spent_sec=1.0),
        task(position=1, workload_key="b", name="b", weight=1, trials=0, toolchain="t", confirmations=0, spent_sec=0.0),
    ]  # fmt: skip
    peak = Peak(
        key="p", threads=2, measured_at=1.0, flops_per_sec={"float32": Rate(one_core=1e10, all_cores=2e10)}
    )
    timed = {"tuned": Latency.of([0.005] * 9, 2), "untuned": Latency.of([0.02] * 9, 2)}
    raw = {
        "coverage": {
            "tasks": 2, "covered": 1, "hits": [{"workload_key": "a"}],
            "misses": [{"workload_key": "b", "name": "b", "weight": 1, "reason": "no-record", "message": ""}],
        },
        "kernels": [
            {"workload_key": "a", "untuned_sec": [slowed * 0.004] * 3, "tuned_sec": [slowed * 0.001] * 3},
            {"workload_key": "b", "untuned_sec": [slowed * 0.002] * 3, "tuned_sec": []},
        ][:timed_kernels],
        "alternatives": {"candidates": [{"workload_key": "b", "algorithm": "w", "chosen": False, "direct_sec": slowed * 0.002, "sum_sec": 1.0}]},
        "latency": {"onnxruntime": None, **{name: latency.to_json() for name, latency in timed.items()}},
        FARM: {PEAK: peak.to_json(), "records": {}},
    }  # fmt: skip
    artifact = Artifact(
        id="art_1", job_id="job_1", sha256="0" * 64, size_bytes=1, name="net.tunefarm", manifest={}, report=raw, created_at=1.0
    )  # fmt: skip
    finished = job(
        state=JobState.SUCCEEDED, model_id="mod_1", target_key="llvm", target={}, device_key="local", tuner="random", seed=0, options={},
        trials=9, failures=0, created_at=1.0, finished_at=2.0,
    )  # fmt: skip
    workloads = {
        key: Workload(key=key, toolchain="t", name=key, flops=1e6, args=[SPEC], ir="") for key in ("a", "b")
    }
    return assemble_report(finished, MODEL, artifact, tasks, {0: {"ok": 9}}, workloads, {})


def test_a_sound_report() -> None:
    report = sound()
    assert contradictions(report) == []
    assert [kernel.reason for kernel in report.kernels] == [None, NOT_TRIED]
    assert [kernel.share_after for kernel in report.kernels] == [pytest.approx(0.4), pytest.approx(0.4)]
    assert report.kernels[0].speedup == pytest.approx(4.0)
    assert "1 kernel of 2 (50 %) had a turn: it was not tried" in "".join(report.warnings)
    assert "was not tried" in Page(report_page(report)).text


def test_one_timed_kernel_of_a_busy_device_is_not_the_whole_network() -> None:
    all_timed, one_timed = sound(slowed=9.0), sound(slowed=9.0, timed_kernels=1)
    assert contradictions(all_timed) == contradictions(one_timed) == []
    assert [kernel.share_after for kernel in all_timed.kernels] == [pytest.approx(0.5)] * 2
    assert "Shares are of the kernels' sum." in " ".join(all_timed.warnings)
    assert [kernel.share_after for kernel in one_timed.kernels] == [None, None], (
        "it was 100 % of an inference"
    )
    assert "Shares are not known, because 1 kernel of 2 was not timed." in " ".join(one_timed.warnings)
    kernel = all_timed.kernels[0]
    assert (kernel.disturbed, kernel.speedup) == (True, None), "it took 72 ms alone, and the network 20"
    assert "not known" in " ".join(Page(report_page(all_timed)).row("kernels", "a"))
    data = one_timed.model_dump()
    data["kernels"][0]["share_after"] = 1.0
    said = " ".join(contradictions(JobReport.model_validate(data)))
    assert "not known how long the others take" in said


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: data["kernels"][0].update(share_after=0.5), "add up to"),
        (lambda data: data["breakdown"].update(rest_after_sec=-0.1), "do not add up"),
        (lambda data: data["latency"]["ratios"]["untuned"].update(value=5.0), "not the ratio"),
        (lambda data: data["latency"]["ratios"]["untuned"].update(high=3.0), "outside of its interval"),
        (lambda data: data["kernels"][1].update(reason="no-record"), "was not tried"),
        (lambda data: data["kernels"][1].update(trials=1), "trials, the job"),
        (lambda data: data["kernels"][0]["roofline"].update(share_of_peak=1.7), "above the device's peak"),
        (lambda data: data["kernels"][0]["roofline"].update(share_of_bound=1.7), "above its roofline"),
        (lambda data: data["alternatives"][0].update(direct_sec=0.04), "another untuned time"),
        (lambda data: data["outcomes"].update(ok=8), "outcomes"),
        (lambda data: data["kernels"][0].update(before_sec=0.1), "longer alone than the whole network"),
    ],
)
def test_a_contradiction_is_found(change: Callable[[dict[str, Any]], None], said: str) -> None:
    assert any(said in sentence for sentence in broken(change))


def test_what_the_search_did_not_reach() -> None:
    tasks = [task(trials=trials, best_cost_sec=1.0 if trials else None) for trials in (0, 5, 0, 9)]
    assert untried_sentence(tasks).startswith("The search ended before 2 kernels of 4 (50 %) had a turn")
    assert untried_sentence(tasks[1:2]) == untried_sentence(tasks[:1]) == "", (
        "a job without a search misses nothing"
    )
    assert measured_words(tasks) == "2 of 4 kernels measured"


def test_alternatives_are_told_from_kernels_of_the_network() -> None:
    own = [task(best_cost_sec=1.0) for _ in range(6)]
    tasks = [*own, task(best_cost_sec=1.0, alternative={"algorithm": "winograd-4"})]
    draft = Draft(job_id="j", sha256="", size_bytes=1, name="n", tasks=6, covered=5, created_at=0.0)
    assert to_tune_words(tasks) == "6 kernels to tune, and 1 alternative to them"
    assert tuned_words(tasks, draft) == (
        "6 of 6 kernels measured, and 1 of 1 alternative to them. "
        "5 of 6 kernels tuned in the network so far: the others are faster untuned, or were measured later."
    )
    for newest in (None, replace(draft, covered=6), replace(draft, covered=0)):
        assert tuned_words(tasks, newest) == ""
    assert to_tune_words(own[:1]) == "1 kernel to tune"


def test_what_an_earlier_job_tuned_is_not_missed() -> None:
    tasks = [task(trials=trials, workload_key=key) for key, trials in (("a", 0), ("b", 9), ("c", 0))]
    report = {"coverage": {"hits": [{"workload_key": "a"}], "misses": []}}
    assert untried_sentence(tasks, report).startswith("The search ended before 1 kernel of 3")
    slower = {"workload_key": "a", "name": "a", "weight": 1, "reason": "slower-than-untuned", "message": ""}
    untuned = {**slower, "workload_key": "c", "reason": "no-record"}
    report = {"coverage": {"tasks": 3, "covered": 1, "hits": [], "misses": [slower, untuned]}}
    assert untried_sentence(tasks, report).startswith("The search ended before 1 kernel of 3"), (
        "an earlier job's record was tried, and is slower"
    )


def test_without_an_artifact_a_kernel_with_a_record_of_an_earlier_job_is_not_missed() -> None:
    tasks = [task(trials=0, best_cost_sec=1.0), task(trials=3, best_cost_sec=1.0), task(trials=0)]
    assert untried_sentence(tasks).startswith("The search ended before 1 kernel of 3")
    assert untried_sentence(tasks[:2]) == ""


def test_how_far_the_time_reaches() -> None:
    tasks = [task(trials=trials) for trials in (1, 1, 0, 0, 0, 0, 0, 0)]
    budget = {"wall_sec": 60.0}
    said = reach_sentence(job(budget=budget, tuned_sec=30.0, trials=2), tasks)
    assert said.startswith("At this pace, about 4 of 8 kernels")
    assert reach_sentence(job(budget=budget, tuned_sec=30.0, trials=9), tasks) == "", "all are reached"
    assert reach_sentence(job(budget=budget, tuned_sec=1.0, trials=2), tasks) == "", "too early to tell"
    assert reach_sentence(job(budget={"trials": 9}, tuned_sec=30.0, trials=2), tasks) == ""


def test_ratios_of_a_report_without_latency() -> None:
    assert ratios_of(None) == ratios_of({"latency": None}) == ratios_of({"latency": 3}) == {}


def test_the_latency_is_measured_where_it_can_be() -> None:
    latency = latency_of(job(best_latency_sec=0.5))
    assert (latency.sec, latency.is_measured) == (0.5, False)
    numbers = listed_numbers({"latency": {"tuned": {"median_sec": 0.6}}})
    latency = latency_of(job(best_latency_sec=0.5, **numbers))
    assert (latency.sec, latency.is_measured) == (0.6, True)
    for unmeasured in (None, {}, {"latency": None}, {"latency": 3}, {"latency": {"tuned": None}}):
        assert latency_of(job(best_latency_sec=0.5, **listed_numbers(unmeasured))).sec == 0.5


def test_a_speedup_that_is_not_known_is_not_the_first_of_a_list() -> None:
    ratio = {"value": 1944.5, "low": 0.12, "high": 21_741.7}
    latency = {
        name: Latency(samples_sec=(0.1,) * 5, threads=2).to_json()
        for name in ("tuned", "untuned", "onnxruntime")
    }
    report = {"latency": {**latency, "ratios": {"untuned": ratio, "onnxruntime": {**ratio, "high": 2.0}}}}
    numbers = listed_numbers(report)
    assert ratios_of(report)["untuned"].text == "not known"
    for low in (0.12, 59.0):
        untold = ratio_of(Ratio(value=1944.5, low=low, high=21_741.7))
        assert (untold.text, untold.verdict) == ("not known", "same")
    assert (numbers["over_untuned"], numbers["over_runtime"]) == (None, 1944.5)


def test_lists_have_the_numbers_of_the_report() -> None:
    latency = {
        name: Latency(samples_sec=(sec,) * 5, threads=2)
        for name, sec in (("tuned", 0.1), ("untuned", 0.4), ("onnxruntime", 0.3), ("torch_compile", 0.2))
    }
    report = {
        "latency": {name: taken.to_json() for name, taken in latency.items()}
        | {"ratios": {name: ratio.to_json() for name, ratio in speedups(latency).items()}}
    }
    numbers = listed_numbers(report)
    stored = job(**{**numbers, "speedups": json.loads(json.dumps(numbers["speedups"]))})
    assert speedups_of(stored) == ratios_of(report)
    assert (stored.over_untuned, stored.over_runtime) == (pytest.approx(4), pytest.approx(2))
    assert best_runtime(speedups_of(stored)) == "torch_compile"
    assert best_runtime({}) is best_runtime(speedups_of(job(**listed_numbers(None)))) is None


def test_a_runtime_that_computes_something_else_is_not_the_fastest() -> None:
    latency = {
        name: Latency(samples_sec=(sec,) * 5, threads=2)
        for name, sec in (("tuned", 0.1), ("untuned", 0.4), ("openvino", 0.3), ("openvino_default", 0.2))
    }
    checks = {"max_abs_error": 0.0, "max_rel_error": 0.0, "mean_rel_error": 0.0}
    facts = {
        name: {"computes": computes, "checks": {"ok": ok, **checks}}
        for name, computes, ok in (("openvino", "float32", True), ("openvino_default", "bfloat16", False))
    }
    report = {
        "latency": {name: taken.to_json() for name, taken in latency.items()}
        | {"ratios": {name: ratio.to_json() for name, ratio in speedups(latency).items()}, "baselines": facts}
    }
    numbers = listed_numbers(report)
    stored = job(**{**numbers, "speedups": json.loads(json.dumps(numbers["speedups"]))})
    assert speedups_of(stored) == ratios_of(report)
    assert {name: ratio.comparable for name, ratio in speedups_of(stored).items()} == {
        "untuned": True,
        "openvino": True,
        "openvino_default": False,
    }
    assert best_runtime(speedups_of(stored)) == "openvino"
    assert stored.over_runtime == pytest.approx(3)
