"""The resources of a GPU config, computed without a compiler: configs that do not fit are not proposed."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.cost_model.features import FeatureMap
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.space.config_space import ConfigSpace, Sketch
from tunefarm_tuning.space.gpu_tiling import BlockLimits, GpuTiling, SharedTile, Tile
from tunefarm_tuning.space.knob import Knob
from tunefarm_tuning.target.gpu import limits_of
from tunefarm_tuning.tuner import TrialResult
from tunefarm_tuning.tuner.baselines import RandomTuner
from tunefarm_tuning.tuner.ga import GATuner
from tunefarm_tuning.tuner.search_tuner import SearchTuner
from tunefarm_tuning.tuner.xgb import XGBTuner
from tunefarm_tuning.workload.computation import Access, Axis, Computation

SIZE = 512
_A, _B, _C = (((0, 1),), ((2, 1),)), (((2, 1),), ((1, 1),)), (((0, 1),), ((1, 1),))
PRODUCT = Computation(
    axes=(
        Axis(extent=SIZE, reduces=False),
        Axis(extent=SIZE, reduces=False),
        Axis(extent=SIZE, reduces=True),
    ),
    accesses=(
        Access(itemsize_bytes=4, writes=False, dims=_A),
        Access(itemsize_bytes=4, writes=False, dims=_B),
        Access(itemsize_bytes=4, writes=True, dims=_C),
    ),
    vector_bytes=16,
)
CORES = GpuTiling(
    tiles=(Tile(column=1, reduces=False), Tile(column=2, reduces=False), Tile(column=3, reduces=True)),
    shared=(SharedTile(itemsize_bytes=4, dims=_A), SharedTile(itemsize_bytes=4, dims=_B)),
    block_levels=1,
    vthreads=True,
    lanes=1,
    tensor_cores=0,
    fetch_columns=(4,),
    unroll_column=5,
    accumulator_bytes=4,
    limits=BlockLimits(
        max_threads=1024, min_threads=32, max_vthreads=8, max_shared_bytes=49152, max_static_bytes=49152
    ),
    device=limits_of("sm_90"),
)
WARPS = replace(
    CORES,
    tiles=tuple(replace(tile, unit=16) for tile in CORES.tiles),
    shared=tuple(
        replace(buffer, itemsize_bytes=2, pads=True, static=False, copies=3, whole_rows=32)
        for buffer in CORES.shared
    ),
    block_levels=2,
    vthreads=False,
    lanes=32,
    tensor_cores=1,
)


def knobs(extent: int) -> tuple[Knob, ...]:
    return (
        Knob.tile("i", extent, 5, 64),
        Knob.tile("j", extent, 5, 64),
        Knob.tile("k", extent, 3, 64),
        Knob.categorical("fetch", (1, 2, 3, 4)),
        Knob.categorical("unroll", (0, 16, 64)),
    )


def space() -> ConfigSpace:
    return ConfigSpace(
        [Sketch(knobs(SIZE), (0, 1, 2, -1, -1), "SSSRRSRS"), Sketch(knobs(SIZE // 16))],
        PRODUCT,
        [CORES, WARPS],
    )


def fits(config: Config) -> bool:
    row = space().row_of(config)
    assert row is not None
    return bool(space().fits(row[None])[0])


def test_a_blocks_use_is_that_of_its_tiles() -> None:
    config = Config(0, ((8, 2, 16, 1, 2), (16, 1, 8, 2, 2), (64, 4, 2), 3, 1))
    row = space().row_of(config)
    assert row is not None
    use = CORES.use(row[None], space().sketches[0].knobs)
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
    ],
)
def test_what_asks_for_too_much_does_not_fit(config: Config) -> None:
    assert not fits(config)


def test_what_is_drawn_and_changed_at_random_fits() -> None:
    ours, rng = space(), np.random.default_rng(1)
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
    ours = ConfigSpace([Sketch(knobs(SIZE))], PRODUCT, [none])
    assert len(ours.sample_rows(np.random.default_rng(0), 5)) == 5
    other = ConfigSpace([Sketch(knobs(SIZE)), Sketch(knobs(SIZE))], PRODUCT, [none, CORES])
    assert set(other.sample_rows(np.random.default_rng(0), 20)[:, 0]) == {1}


def test_a_space_survives_json() -> None:
    ours = space()
    again = ConfigSpace.from_json(json.loads(json.dumps(ours.to_json())))
    assert again == ours
    assert again.gpu == ours.gpu
    bad = ours.to_json()
    bad["gpu"][0]["unroll_column"] = 99
    with pytest.raises(ValueError, match="not a GPU's tiling"):
        ConfigSpace.from_json(bad)


def test_features_tell_threads_memory_and_cores() -> None:
    ours = space()
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
    plain = FeatureMap(ConfigSpace([Sketch(knobs(SIZE))], PRODUCT))
    assert not [name for name in plain.names if name.startswith("gpu.")]


@pytest.mark.parametrize("kind", [XGBTuner, GATuner, RandomTuner])
def test_tuners_propose_what_fits(kind: type[SearchTuner]) -> None:
    ours = space()
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
