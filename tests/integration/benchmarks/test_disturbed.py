"""Other work on the machine is noticed. How often intervals hold the quiet ratio beside it is for `benchmarks.disturbed` to say."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from benchmarks.disturbed import Contest, load, networks


def test_other_work_is_noticed_and_widens_the_interval(tmp_path: Path) -> None:
    with ExitStack() as stack:
        contest = Contest(networks()["dense layers"], tmp_path, stack)
        with load("two processes"):
            ratio, latency = contest.ratio(0.0, [])
    assert latency.disturbance is not None
    assert latency.disturbance.others_cores is not None
    assert latency.disturbance.others_cores > 0.3
    assert latency.disturbance.slowdown > 1.0, "by how much depends on what else went on before"
    assert not ratio.is_tight or latency.disturbance.slowdown < 1.2
    assert ratio.low is not None
    assert ratio.high is not None
    assert ratio.low < ratio.value < ratio.high
