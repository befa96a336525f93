"""What people are told of the network during its search, and why there is nothing to tell yet."""

from __future__ import annotations

from typing import Any

import pytest
from app_farm import farm_settings
from job_values import job, network_timing

from tunefarm_app.report.networks import curve_words, fastest_network, network_words, networks_of
from tunefarm_db.states.job import JobState
from tunefarm_db.values import Step, StepState

CPU = {"kind": "llvm"}


@pytest.fixture
def settings(tmp_path: Any) -> Any:
    return farm_settings(tmp_path, max_drafts_bytes=1 << 20)


def test_the_fastest_network_and_when_it_was_timed() -> None:
    timed = {"tuned_sec": 62.0, "timed_at": 1.0, "device": "dev-1", "tasks": 20}
    rows = [
        network_timing(number=0, latency_sec=0.02, quiet=True, **timed),
        network_timing(number=1, latency_sec=0.01, covered=3, quiet=False, **timed),
        network_timing(number=2, error={"code": "run-failed", "message": "it crashed"}),
    ]
    networks = networks_of(rows)
    assert [network.number for network in networks] == [0, 1]
    fastest = fastest_network(networks)
    assert fastest is not None
    assert network_words(networks[0]) == "measured after 1 min 02 s of search, untuned"
    assert (
        network_words(fastest)
        == "measured after 1 min 02 s of search, 3 of 20 kernels tuned, disturbed by other work"
    )
    assert fastest_network([]) is None


ELSEWHERE = {"code": "draft-elsewhere", "message": "none of the workers that took it can run it (3 tries)"}


def draft_step(state: StepState, error: dict[str, Any] | None) -> Step:
    plain: dict[str, Any] = dict.fromkeys(Step.__dataclass_fields__)
    return Step(**{**plain, "state": state, "error": error})


@pytest.mark.parametrize(
    ("changes", "rows", "off", "words"),
    [
        ({}, [], {}, "The network itself is timed after 1 min 00 s of search"),
        ({"target": {"kind": "cuda"}}, [], {}, "on a GPU the compile needs the device"),
        ({}, [], {"network_timing_share": 0.0}, "this farm's settings switch these timings off"),
        ({}, [], {"max_drafts_bytes": 0}, "this farm's settings switch these timings off"),
        ({"budget": {"wall_sec": 45.0}}, [], {}, "a search of 45 s is too short"),
        ({}, [network_timing(error={"message": "it crashed"})], {}, "when the job compiles: it crashed."),
        ({}, [network_timing(error={"code": "runs-parts"})], {}, "ONNX Runtime runs parts of the network"),
        ({}, [network_timing()], {}, "as soon as it is compiled"),
    ],
)
def test_a_search_without_a_timing_says_why(
    settings: Any, changes: dict[str, Any], rows: list[Any], off: dict[str, Any], words: str
) -> None:
    settings = settings.model_copy(update=off)
    changes = {"target": CPU, **changes}
    text = curve_words(job(**changes), rows, settings)
    assert words in text
    assert text.endswith("Until then the latency is an estimate: the sum of the kernels' best times.")
    ended = curve_words(job(**changes, state=JobState.SUCCEEDED, tuned_sec=45.0), rows, settings)
    assert ended.startswith("The network itself was not timed during the search: ")
    assert ended.endswith(". The curve is an estimate: the sum of the kernels' best times.")
    if "when the job compiles" in text:
        assert words.removeprefix("when the job compiles: ") in ended


@pytest.mark.parametrize("state", [StepState.READY, StepState.FAILED])
def test_it_says_that_no_worker_has_such_a_cpu(settings: Any, state: StepState) -> None:
    text = curve_words(job(target=CPU), [], settings, draft_step(state, ELSEWHERE))
    assert "no worker's machine can run code for this target" in text
    assert "tries" not in text


def test_it_says_why_the_network_could_not_be_compiled(settings: Any) -> None:
    draft = draft_step(StepState.FAILED, {"code": "x", "message": "an operator is missing"})
    assert "when the job compiles: an operator is missing." in curve_words(
        job(target=CPU), [], settings, draft
    )


@pytest.mark.parametrize(
    ("tuned_sec", "rows", "words"),
    [
        (30.0, [], "the search ended after 30 s, and timing begins after 1 min 00 s"),
        (90.0, [], "the search ended before the network was compiled"),
        (90.0, [network_timing()], "the search ended before a timing was due: timings may take 3% of it"),
    ],
)
def test_a_search_that_ended_says_what_it_did_not_reach(
    settings: Any, tuned_sec: float, rows: list[Any], words: str
) -> None:
    ended = job(target=CPU, state=JobState.SUCCEEDED, tuned_sec=tuned_sec, budget={"trials": 10})
    assert words in curve_words(ended, rows, settings)


def test_what_the_points_are_and_what_a_job_without_a_search_shows(settings: Any) -> None:
    timed = [network_timing(latency_sec=0.1)]
    assert curve_words(job(target=CPU), timed, settings).startswith("Points are the whole network")
    assert curve_words(job(target=CPU, options={"search": False}), [], settings) == (
        "The job did not search, so there is no curve."
    )


def test_the_compiles_own_points_are_said_to_be_the_ends(settings: Any) -> None:
    ended = job(target=CPU, state=JobState.SUCCEEDED, tuned_sec=12.0)
    text = curve_words(ended, [], settings, at_compile=True)
    assert text.startswith("The compile measured the first and the last point: ")
    assert "Between them the network was not timed: the search ended after 12 s" in text
