"""What people are told of the network during its search, and why there is nothing to tell yet."""

from __future__ import annotations

from typing import Any

import pytest
from app_farm import farm_settings
from job_values import job, network_timing

from tunefarm_app.report.networks import fastest_network, network_words, networks_of, why_not_timed
from tunefarm_db.states.job import JobState

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


@pytest.mark.parametrize(
    ("changes", "rows", "off", "words"),
    [
        ({}, [], {}, "The network itself is timed after 1 min 00 s of search"),
        ({"target": {"kind": "cuda"}}, [], {}, "timed when the job compiles, as on all GPUs"),
        ({}, [], {"network_timing_share": 0.0}, "this farm's settings leave out timings before"),
        ({}, [], {"max_drafts_bytes": 0}, "this farm's settings leave out timings before"),
        ({"budget": {"wall_sec": 45.0}}, [], {}, "the search is too short for it"),
        ({}, [network_timing(error={"message": "it crashed"})], {}, "when the job compiles: it crashed."),
        ({}, [network_timing()], {}, "as soon as it is compiled"),
    ],
)
def test_a_search_without_a_timing_says_why(
    settings: Any, changes: dict[str, Any], rows: list[Any], off: dict[str, Any], words: str
) -> None:
    settings = settings.model_copy(update=off)
    text = why_not_timed(job(**{"target": CPU, **changes}), rows, settings)
    assert words in text
    assert text.endswith("Until then the latency is an estimate: the sum of the kernels' best times.")


def test_nothing_is_said_once_it_was_timed_or_nobody_searches(settings: Any) -> None:
    searching = job(target=CPU)
    assert why_not_timed(searching, [network_timing(latency_sec=0.1)], settings) == ""
    assert why_not_timed(job(target=CPU, state=JobState.CANCELLED), [], settings) == ""
    assert why_not_timed(job(target=CPU, options={"search": False}), [], settings) == ""
