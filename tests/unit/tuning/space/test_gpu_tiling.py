"""The resources of a GPU config, computed without a compiler: configs that do not fit are not proposed."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from gpu_spaces import CORES, PRODUCT, SIZE, gpu_space, plain_knobs
from hypothesis import given, settings
from hypothesis import strategies as st

from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.cost_model.features import FeatureMap
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.space.config_space import ConfigSpace, Sketch
from tunefarm_tuning.target.gpu import limits_of
from tunefarm_tuning.target.gpu_launch import STATIC_SHARED_BYTES, registers_for, resident_blocks
from tunefarm_tuning.tuner import TrialResult
from tunefarm_tuning.tuner.baselines import RandomTuner
from tunefarm_tuning.tuner.ga import GATuner
from tunefarm_tuning.tuner.search_tuner import SearchTuner
from tunefarm_tuning.tuner.xgb import XGBTuner


def fits(config: Config) -> bool:
    row = gpu_space().row_of(config)
    assert row is not None
    return bool(gpu_space().fits(row[None])[0])


def test_a_blocks_use_is_that_of_its_tiles() -> None:
    config = Config(0, ((8, 2, 16, 1, 2), (16, 1, 8, 2, 2), (64, 4, 2), 3, 1))
    row = gpu_space().row_of(config)
    assert row is not None
    use = CORES.use(row[None], gpu_space().sketches[0].knobs)
    assert (use.blocks[0], use.vthreads[0], use.threads[0]) == (128, 2, 128)
    assert use.shared_bytes[0] == (64 * 8 + 8 * 32) * 4
    assert use.work[0] == 64 * 32 * 8
    assert fits(config)


@pytest.mark.parametrize(
    "config",
    [
        Config(0, ((1, 1, 64, 1, 8), (1, 1, 64, 1, 8), (512, 1, 1), 0, 0)),  # 4,096 threads
        Config(0, ((512, 1, 1, 1, 1), (32, 1, 16, 1, 1), (512, 1, 1), 0, 0)),  # half a warp
        Config(0, ((4, 16, 8, 1, 1), (64, 1, 8, 1, 1), (512, 1, 1), 0, 0)),  # 16 virtual threads
        Config(0, ((4, 1, 16, 8, 1), (4, 1, 16, 8, 1), (8, 8, 8), 0, 0)),  # 64 KiB of shared memory
        Config(1, ((4, 4, 2, 1, 1), (4, 4, 2, 1, 1), (32, 1, 1), 0, 0)),  # rows of half the length
        Config(0, ((4, 1, 8, 16, 1), (4, 1, 8, 16, 1), (512, 1, 1), 0, 0)),  # 256 results, of 255 registers
        Config(
            0, ((4, 2, 8, 8, 1), (4, 2, 8, 8, 1), (512, 1, 1), 0, 0)
        ),  # 64 for each of four virtual threads
    ],
)
def test_what_asks_for_too_much_does_not_fit(config: Config) -> None:
    assert not fits(config)


@pytest.mark.parametrize(("tile", "fitting"), [((8, 1, 32, 2, 1), True), ((4, 1, 32, 4, 1), False)])
def test_more_threads_have_fewer_registers_each(tile: tuple[int, ...], fitting: bool) -> None:
    """A block of 1,024 threads leaves 64 registers to each: for 4 by 16 results, not for 8 by 16."""
    other = (16, 1, 32, 1, 1)
    config = Config(0, (tile, other, (512, 1, 1), 0, 0))
    row = gpu_space().row_of(config)
    assert row is not None
    wide = replace(CORES, accumulator_bytes=128)  # of 32 numbers: shared memory is no matter
    use = wide.use(row[None], gpu_space().sketches[0].knobs)
    assert use.threads[0] == 1024
    assert use.results[0] == 64 * (1 if fitting else 2)
    assert bool(wide.fits(row[None], gpu_space().sketches[0].knobs)[0]) is fitting


def test_what_is_drawn_and_changed_at_random_fits() -> None:
    ours, rng = gpu_space(), np.random.default_rng(1)
    assert ours.fits(ours._draw(rng, 2000)).mean() < 0.2
    rows = ours.sample_rows(rng, 200)
    assert ours.fits(rows).all()
    assert set(rows[:, 0]) == {0, 1}
    assert ours.fits(ours.mutate_rows(rows, rng)).all()
    assert ours.fits(ours.crossover_rows(rows[:100], rows[100:], rng)).all()
    np.testing.assert_array_equal(
        ours.sample_rows(np.random.default_rng(7), 50), ours.sample_rows(np.random.default_rng(7), 50)
    )


def test_where_nothing_fits_something_is_drawn_all_the_same() -> None:
    none = replace(CORES, limits=replace(CORES.limits, max_threads=1))
    ours = ConfigSpace([Sketch(plain_knobs(SIZE))], PRODUCT, [none])
    assert len(ours.sample_rows(np.random.default_rng(0), 5)) == 5
    other = ConfigSpace([Sketch(plain_knobs(SIZE)), Sketch(plain_knobs(SIZE))], PRODUCT, [none, CORES])
    assert set(other.sample_rows(np.random.default_rng(0), 20)[:, 0]) == {1}


def test_a_space_survives_json() -> None:
    ours = gpu_space()
    again = ConfigSpace.from_json(json.loads(json.dumps(ours.to_json())))
    assert again == ours
    assert again.gpu == ours.gpu
    bad = ours.to_json()
    bad["gpu"][0]["unroll_column"] = 99
    with pytest.raises(ValueError, match="not a GPU's tiling"):
        ConfigSpace.from_json(bad)


def test_features_tell_threads_memory_and_cores() -> None:
    ours = gpu_space()
    features = FeatureMap(ours)
    gpu = [name for name in features.shared if name.startswith("gpu.")]
    assert {"gpu.threads", "gpu.shared_bytes", "gpu.registers", "gpu.occupancy", "gpu.fetch_width"} <= set(
        gpu
    )
    rows = ours.sample_rows(np.random.default_rng(3), 64)
    values = features(rows)
    assert np.isfinite(values[:, [features.names.index(name) for name in gpu]]).all()
    cores = values[:, features.names.index("gpu.tensor_cores")]
    np.testing.assert_array_equal(cores, rows[:, 0])
    occupancy = values[:, features.names.index("gpu.occupancy")]
    assert occupancy.min() >= 0
    assert occupancy.max() <= 1
    plain = FeatureMap(ConfigSpace([Sketch(plain_knobs(SIZE))], PRODUCT))
    assert not [name for name in plain.names if name.startswith("gpu.")]


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
@settings(max_examples=30)
@given(seed=st.integers(0, 2**32 - 1))
def test_each_architecture_can_launch_what_is_drawn_for_it(arch: str, seed: int) -> None:
    """By CUDA's table of each architecture: threads, shared memory, and registers for the results of a thread."""
    ours, limits = gpu_space(arch), limits_of(arch)
    rng = np.random.default_rng(seed)
    rows = ours.sample_rows(rng, 24)
    rows = np.concatenate([rows, ours.mutate_rows(rows, rng), ours.crossover_rows(rows[:12], rows[12:], rng)])
    for number, sketch in enumerate(ours.sketches):
        tiling = ours.gpu[number]
        assert tiling is not None
        use = tiling.use(rows[rows[:, 0] == number], sketch.knobs)
        shared = np.where(
            use.shared_bytes > STATIC_SHARED_BYTES, limits.shared_optin_bytes, STATIC_SHARED_BYTES
        )
        assert (use.threads <= limits.threads_per_block).all()
        assert (use.shared_bytes <= shared).all()
        assert (use.results <= registers_for(limits, use.threads)).all()
        for threads, size in zip(use.threads, use.shared_bytes, strict=True):
            fewest = resident_blocks(limits, threads=int(threads), registers=1, shared_bytes=int(size))
            assert fewest >= 1


@pytest.mark.parametrize("kind", [XGBTuner, GATuner, RandomTuner])
def test_tuners_propose_what_fits(kind: type[SearchTuner]) -> None:
    ours = gpu_space()
    tuner = kind(ours, seed=1)
    for _ in range(3):
        configs = tuner.ask(8)
        rows = np.array([ours.row_of(config) for config in configs])
        assert ours.fits(rows).all()
        results = [
            TrialResult(asked=config, config=config, outcome=Outcome.OK, cost_sec=1e-3 + 1e-5 * number)
            for number, config in enumerate(configs[1:])
        ]
        # A config that the compiler refuses is told to the tuner, and counts as bad.
        refused = TrialResult(asked=configs[0], config=configs[0], outcome=Outcome.INSTANTIATION_ERROR)
        tuner.tell([refused, *results])
