"""Configs with more results than any kernel kept in registers are not proposed any more, once some of them spilled."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import pytest
from gpu_spaces import SIZE, gpu_space, plain_knobs

from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.space.config_space import ConfigSpace, Sketch
from tunefarm_tuning.tuner import TrialResult
from tunefarm_tuning.tuner.baselines import RandomTuner
from tunefarm_tuning.tuner.ga import GATuner
from tunefarm_tuning.tuner.resources import ResourceLimits
from tunefarm_tuning.tuner.search_tuner import SearchTuner
from tunefarm_tuning.tuner.xgb import XGBTuner

SPACE = gpu_space()


def result(config: Config, outcome: Outcome, cost_sec: float | None = None) -> TrialResult:
    return TrialResult(asked=config, config=config, outcome=outcome, cost_sec=cost_sec)


def with_results(count: int, *, sketch: int = 0) -> Config:
    """Return a config whose threads have so many results: 8, 16, 32 or 64."""
    return Config(sketch, ((512 // count, 1, 1, count, 1), (32, 1, 16, 1, 1), (64, 4, 2), 3, 1))


def variants(count: int) -> list[Config]:
    """Return 60 configs of so many results."""
    i, j, *_ = with_results(count).decisions
    return [
        Config(0, (i, j, (512 // k, k, 1), fetch, unroll))
        for k in (4, 8, 16, 32, 64)
        for fetch in range(4)
        for unroll in range(3)
    ]


def test_what_has_more_results_than_ever_were_kept_in_registers_is_expected_to_spill() -> None:
    limits = ResourceLimits(SPACE)
    limits.learn([result(with_results(16), Outcome.RESOURCE_ERROR)])  # for another reason than its results
    limits.learn([result(with_results(count), Outcome.RESOURCE_ERROR) for count in (32, 32, 64)])
    limits.learn([result(with_results(16), Outcome.OK, 1e-3)])
    assert limits.ceiling(0) == inf, "three say too little"
    limits.learn([result(with_results(64), Outcome.RESOURCE_ERROR)])
    assert limits.ceiling(0) == 32
    assert limits.ceiling(1) == inf, "tensor cores are another matter"
    assert not any(limits.exceeded_by(config) for count in (8, 16) for config in variants(count))
    for count in (32, 64):
        held_back = [limits.exceeded_by(config) for config in variants(count)]
        assert 0.6 < sum(held_back) / len(held_back) < 0.9, "one of four tests the ceiling"
    limits.learn([result(with_results(32), Outcome.RUN_TIMEOUT)])  # it was run, so it did not spill
    assert limits.ceiling(0) == inf


@pytest.mark.parametrize("outcome", [each for each in Outcome if each is not Outcome.RESOURCE_ERROR])
def test_other_ends_of_a_trial_hold_nothing_back(outcome: Outcome) -> None:
    limits = ResourceLimits(SPACE)
    limits.learn([result(with_results(64), outcome, 1e-3 if outcome is Outcome.OK else None)] * 8)
    assert limits.ceiling(0) == inf


def test_a_failed_build_does_not_prove_that_results_were_kept() -> None:
    limits = ResourceLimits(SPACE)
    limits.learn([result(with_results(64), Outcome.RESOURCE_ERROR)] * 4)
    limits.learn([result(with_results(64), Outcome.BUILD_TIMEOUT)])
    assert limits.ceiling(0) == 64


def test_nothing_is_learnt_where_no_tiles_are_known() -> None:
    for space in (
        ConfigSpace([Sketch(plain_knobs(SIZE))], None),
        ConfigSpace([Sketch(plain_knobs(SIZE))], None, [None]),
    ):
        limits = ResourceLimits(space)
        limits.learn([result(with_results(64), Outcome.RESOURCE_ERROR)] * 8)
        assert not any(limits.exceeded_by(config) for config in variants(64))


@pytest.mark.parametrize("tuner_class", [XGBTuner, GATuner, RandomTuner])
def test_no_tuner_proposes_what_is_expected_to_spill(
    tuner_class: Callable[..., SearchTuner],
) -> None:
    """A kernel spills from 16 results of a thread on; the tuners learn where that is, also one that was rebuilt from results."""
    tuner = tuner_class(SPACE, seed=3)
    limits = ResourceLimits(SPACE)
    told: list[TrialResult] = []
    for _ in range(6):
        proposals = tuner.ask(16)
        assert len(proposals) == 16
        assert not any(limits.exceeded_by(each) for each in proposals)
        results = [trial(each) for each in proposals]
        tuner.tell(results)
        limits.learn(results)
        told += results
    spilled = [each for each in told if each.outcome is Outcome.RESOURCE_ERROR]
    assert spilled, "else the test says nothing"
    rebuilt = tuner_class(SPACE, seed=3)
    rebuilt.tell(told)
    assert not any(limits.exceeded_by(each) for each in rebuilt.ask(64))
    assert not any(limits.exceeded_by(each) for each in tuner.ask(64))


def trial(proposed: Config) -> TrialResult:
    row = SPACE.row_of(proposed)
    tiling = SPACE.gpu[proposed.sketch]
    assert row is not None
    assert tiling is not None
    results = tiling.use(row[None], SPACE.sketches[proposed.sketch].knobs).results[0]
    if results >= 16:
        return result(proposed, Outcome.RESOURCE_ERROR)
    return result(proposed, Outcome.OK, 1e-3 / results)
