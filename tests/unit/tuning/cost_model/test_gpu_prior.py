"""The static prior of GPUs orders configs as their resources say, before anything was measured."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from gpu_spaces import CORES, PRODUCT, WARPS, gpu_space, plain_knobs

from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.cost_model.features import FeatureMap
from tunefarm_tuning.cost_model.gpu_prior import StaticGpuPrior
from tunefarm_tuning.cost_model.prior import load_prior
from tunefarm_tuning.cost_model.trial_data import TrialData
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.space.config_space import ConfigSpace, Sketch
from tunefarm_tuning.target.gpu import limits_of
from tunefarm_tuning.tuner import TrialResult
from tunefarm_tuning.tuner.xgb import XGBTuner


def scores(*configs: Config) -> list[float]:
    space = gpu_space()
    rows = [space.row_of(config) for config in configs]
    features, margins = TrialData(space).features(np.array(rows))
    np.testing.assert_array_equal(features[:, -1], margins)
    return [float(margin) for margin in margins]


def product(i: tuple[int, ...], j: tuple[int, ...], k: tuple[int, ...] = (64, 4, 2)) -> Config:
    return Config(0, (i, j, k, 3, 1))


GOOD = product((16, 2, 8, 2, 1), (16, 1, 16, 2, 1))  # 256 blocks of 128 threads, eight results each


def test_gpu_spaces_have_it_and_others_do_not() -> None:
    names = FeatureMap(gpu_space()).shared
    assert isinstance(load_prior(names, "throughput"), StaticGpuPrior)
    assert load_prior(names, "trial_sec") is None
    assert TrialData(gpu_space()).has_prior
    assert not TrialData(gpu_space(), use_prior=False).has_prior
    assert not TrialData(ConfigSpace([Sketch(plain_knobs(512))], None)).has_prior


def test_few_blocks_idle_lanes_and_little_reuse_are_slow() -> None:
    good, one_block, half_warps, one_result, small_steps = scores(
        GOOD,
        product((1, 2, 8, 32, 1), (16, 1, 16, 2, 1)),
        product((16, 2, 4, 4, 1), (32, 1, 4, 4, 1)),
        product((64, 1, 8, 1, 1), (32, 1, 16, 1, 1)),
        product((16, 2, 8, 2, 1), (16, 1, 16, 2, 1), (512, 1, 1)),
    )
    assert good > max(one_block, half_warps, one_result)
    assert abs(good - small_steps) < 0.1  # reuse within a step is that of the block


@pytest.mark.parametrize(("arch", "resident"), [("sm_90", 8), ("sm_86", 6), ("sm_120", 6), ("sm_75", 4)])
def test_an_sm_holds_as_many_warps_as_its_architecture_has(arch: str, resident: int) -> None:
    """Of 1,024 blocks of eight warps, one SM holds as many as fit into 64, 48 or 32 warps; the last wave leaves SMs idle."""
    space = ConfigSpace([Sketch(plain_knobs(512))], PRODUCT, [replace(CORES, device=limits_of(arch))])
    config = Config(0, ((32, 1, 16, 1, 1), (32, 1, 16, 1, 1), (64, 4, 2), 3, 1))
    waves = 1024 / (80 * resident)
    reference = 1024 / (80 * 8)
    expected = np.log2(waves / np.ceil(waves)) - np.log2(reference / np.ceil(reference))
    here, there = (
        float(TrialData(each).features(np.array([each.row_of(config)]))[1][0])
        for each in (space, ConfigSpace([Sketch(plain_knobs(512))], PRODUCT, [CORES]))
    )
    assert here - there == pytest.approx(expected, abs=1e-3)


def test_tensor_cores_are_faster_on_the_same_tiles() -> None:
    space = ConfigSpace(
        [Sketch(plain_knobs(512)), Sketch(plain_knobs(512))],
        PRODUCT,
        [replace(WARPS, tensor_cores=cores) for cores in (0, 1)],
    )
    tiles = ((4, 2, 2, 2, 16), (4, 2, 2, 2, 16), (16, 2, 16), 3, 1)
    rows = np.array([space.row_of(Config(sketch, tiles)) for sketch in (0, 1)])
    plain, fast = TrialData(space).features(rows)[1]
    assert fast > plain


def test_a_search_begins_with_what_it_prefers_and_then_believes_measurements() -> None:
    space = gpu_space()
    tuner = XGBTuner(space, seed=1)
    first = tuner.ask(16)
    random = space.sample(np.random.default_rng(0), 64)
    assert np.median(scores(*first)) > np.quantile(scores(*random), 0.75)

    def cost_sec(config: Config) -> float:  # the opposite of what the prior says
        return 1e-3 * 2.0 ** (0.3 * scores(config)[0])

    proposed = first
    for _ in range(5):
        tuner.tell([result(config, cost_sec(config)) for config in proposed])
        proposed = tuner.ask(16)
    assert np.median(scores(*proposed)) < np.median(scores(*first)) - 1


def result(config: Config, cost_sec: float) -> TrialResult:
    return TrialResult(asked=config, config=config, outcome=Outcome.OK, cost_sec=cost_sec)
