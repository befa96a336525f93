"""A speed-up's interval holds the quiet ratio while a load generator runs."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
from benchmarks.disturbed import BUSY, QUIET_RUNS, Contest, holds, load, networks


def test_other_work_is_noticed_and_widens_the_interval(tmp_path: Path) -> None:
    with ExitStack() as stack:
        contest = Contest(networks()["dense layers"], tmp_path, stack)
        quiet = contest.ratio(0.0)[0]
        with load("two processes"):
            ratio, latency = contest.ratio(0.0)
    assert latency.disturbance is not None
    assert latency.disturbance.others_cores is not None
    assert latency.disturbance.others_cores > 0.3
    assert latency.disturbance.slowdown > 1.2
    assert not ratio.is_tight
    assert ratio.low is not None
    assert ratio.high is not None
    assert ratio.low < ratio.value < ratio.high
    assert holds(ratio, [quiet])


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", networks())
def test_the_interval_holds_the_quiet_ratio_in_19_of_20_runs(name: str, tmp_path: Path) -> None:
    held = []
    with ExitStack() as stack:
        contest = Contest(networks()[name], tmp_path, stack)
        quiet = [contest.ratio(2.0)[0] for _ in range(QUIET_RUNS)]
        for run in range(20):
            with load(BUSY[run % len(BUSY)], seed=run):
                held.append(holds(contest.ratio(2.0)[0], quiet))
    assert sum(held) >= 19
