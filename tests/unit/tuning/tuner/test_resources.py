"""Configs that need no less than one whose kernel spilled are not proposed any more."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
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


def config(
    i: tuple[int, ...] = (16, 2, 8, 2, 1), j: tuple[int, ...] = (16, 1, 16, 2, 1), *, unroll: int = 1
) -> Config:
    return Config(0, (i, j, (64, 4, 2), 3, unroll))


def result(config: Config, outcome: Outcome, cost_sec: float | None = None) -> TrialResult:
    return TrialResult(asked=config, config=config, outcome=outcome, cost_sec=cost_sec)


SPILLED = config()  # 128 threads with 8 results each
MORE_RESULTS = config((8, 2, 8, 4, 1))
FEWER_RESULTS = config((32, 1, 8, 2, 1))
MORE_UNROLLED = config(unroll=2)
LESS_UNROLLED = config(unroll=0)


def test_whatever_needs_no_less_than_a_kernel_that_spilled_is_expected_to_spill() -> None:
    limits = ResourceLimits(SPACE)
    assert not limits.exceeded_by(SPILLED)
    limits.learn([result(SPILLED, Outcome.RESOURCE_ERROR)])
    assert [limits.exceeded_by(each) for each in (SPILLED, MORE_RESULTS, MORE_UNROLLED)] == [True] * 3
    assert [limits.exceeded_by(each) for each in (FEWER_RESULTS, LESS_UNROLLED)] == [False] * 2
    # More results, but less unrolled: nobody knows.
    assert not limits.exceeded_by(config((8, 2, 8, 4, 1), unroll=0))
    tensor_cores = SPACE.configs(SPACE.sample_rows(np.random.default_rng(0), 64))
    assert not any(limits.exceeded_by(each) for each in tensor_cores if each.sketch == 1)


@pytest.mark.parametrize("outcome", [each for each in Outcome if each is not Outcome.RESOURCE_ERROR])
def test_other_ends_of_a_trial_say_nothing_about_registers(outcome: Outcome) -> None:
    limits = ResourceLimits(SPACE)
    limits.learn([result(SPILLED, outcome, 1e-3 if outcome is Outcome.OK else None)])
    assert not limits.exceeded_by(SPILLED)


def test_nothing_is_learnt_where_no_tiles_are_known() -> None:
    for space in (
        ConfigSpace([Sketch(plain_knobs(SIZE))], None),
        ConfigSpace([Sketch(plain_knobs(SIZE))], None, [None]),
    ):
        limits = ResourceLimits(space)
        limits.learn([result(SPILLED, Outcome.RESOURCE_ERROR)])
        assert not limits.exceeded_by(SPILLED)


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
