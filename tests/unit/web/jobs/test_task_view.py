"""The kernels of a job's page."""

from __future__ import annotations

import pytest
from job_values import task

from tunefarm_api.web.jobs.job_view import Speedup
from tunefarm_api.web.jobs.task_view import task_lines
from tunefarm_tuning.core.latency import Latency


def test_a_finished_jobs_kernels_are_told_as_they_were_timed_side_by_side() -> None:
    tasks = [
        # The search saw each of them at its luckiest; what the compiler timed was another moment.
        task(position=0, workload_key="a", best_cost_sec=1e-6, untuned_cost_sec=600e-6, history=[[8, 2e-6]]),
        task(position=1, workload_key="b", best_cost_sec=9e-6, history=[[8, 18e-6]]),
        task(position=2, workload_key="c", best_cost_sec=3e-6, history=[[8, 6e-6]]),
    ]
    misses = [{"workload_key": "b", "name": "b", "weight": 1, "reason": "slower-than-untuned", "message": ""}]
    report = {
        "coverage": {
            "tasks": 3,
            "covered": 2,
            "hits": [{"workload_key": "a"}, {"workload_key": "c"}],
            "misses": misses,
        },
        "kernels": [
            {"workload_key": "a", "untuned_sec": [600e-6], "tuned_sec": [6e-6, 5e-6, 7e-6]},
            {"workload_key": "b", "untuned_sec": [1e-6], "tuned_sec": [9e-6]},
        ],
    }
    lines = {line.task.workload_key: line for line in task_lines(tasks, [], report)}
    assert lines["a"].speedup == Speedup.of(600e-6 / 6e-6, "untuned")
    assert lines["b"].speedup is None, "the artifact runs it untuned"
    assert lines["c"].speedup == Speedup.of(2.0, "first round"), "nobody timed it"
    assert lines["a"].speedup is not None
    assert lines["a"].speedup.text == "100×"
    assert [lines[key].share for key in "abc"] == [pytest.approx(share) for share in (0.6, 0.1, 0.3)]
    before = {line.task.workload_key: line for line in task_lines(tasks, [])}
    assert before["a"].speedup == Speedup.of(2.0, "first round")
    assert before["b"].share == pytest.approx(9 / 13)


def test_a_kernel_that_took_longer_alone_than_the_network_has_no_speed_up() -> None:
    """Of a network that takes 15 µs untuned, a kernel was timed beside other work at 1.2 ms: the page called it 259 times as fast."""
    network = {"tuned": [22e-6] * 3, "untuned": [15e-6] * 3}
    report = {
        "coverage": {"tasks": 1, "covered": 1, "hits": [{"workload_key": "a"}], "misses": []},
        "kernels": [{"workload_key": "a", "untuned_sec": [1.2e-3], "tuned_sec": [4.5e-6]}],
        "latency": {
            "onnxruntime": None,
            **{name: Latency.of(secs, 2).to_json() for name, secs in network.items()},
        },
    }
    (line,) = task_lines([task(workload_key="a", best_cost_sec=4.5e-6, history=[[8, 9e-6]])], [], report)
    assert line.speedup == Speedup.unknown("untuned")
    assert (line.speedup.text, line.speedup.doubt) == ("not known", "the timings do not tell")
