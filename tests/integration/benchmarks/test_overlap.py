"""The benchmark of rounds that overlap: its replayed machine, a run of each side, its table."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from benchmarks.overlap import lag
from benchmarks.overlap.machine import RecordedKernel, recorded_kernels
from benchmarks.overlap.run import SIDES, Regime, run, side
from benchmarks.overlap.table import table_of

pytestmark = pytest.mark.exhaustive


@pytest.fixture(scope="module")
def kernels() -> list[RecordedKernel]:
    return recorded_kernels()[:2]


def test_any_config_has_a_cost_like_those_that_were_recorded(kernels: list[RecordedKernel]) -> None:
    for kernel in kernels:
        for config in kernel.space.sample(np.random.default_rng(0), 20):
            cost_sec, build_sec, run_sec = kernel.answer(config)
            assert 1e-6 < cost_sec < 10.0
            assert 0.0 < build_sec < 10.0
            assert 0.0 < run_sec < 10.0
            assert kernel.answer(config) == (cost_sec, build_sec, run_sec)


def test_each_side_spends_the_budget_and_has_its_row(kernels: list[RecordedKernel]) -> None:
    regime = Regime(build=0.01, run=0.01, workers=2)
    runs = []
    for name in dict.fromkeys(itertools.chain(*SIDES.values())):
        with side(name):
            measured = run(kernels, regime, 20, 0, slow=2.0)
        assert measured["trials"] == 20
        assert 0 < measured["busy_sec"] < measured["wall_sec"]
        runs.append({"regime": "fast", "search": "model", "side": name, "seed": 0, **measured})
    lines = table_of(runs).splitlines()
    assert len(lines) == 2 + len(runs)
    assert lines[2].startswith("| fast | model | off |")
    assert lines[2].endswith("| 1.000 | 1.000 |")


def test_a_search_that_lags_tries_as_much(kernels: list[RecordedKernel]) -> None:
    bests = lag.search(kernels[0], "random", 0, *lag.LAGS["2 from 4"])
    assert len(bests) == len(lag.AT)
    assert bests == sorted(bests, reverse=True)
