"""Features of a loop nest against numbers computed by hand, and the prior that reads them."""

from __future__ import annotations

import json
from dataclasses import replace
from math import log2

import numpy as np
import pytest

from tunefarm_tuning.cost_model.nest_features import NestFeatures
from tunefarm_tuning.cost_model.prior import load_prior
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.space.config_space import ConfigSpace, Sketch
from tunefarm_tuning.space.knob import Knob
from tunefarm_tuning.testing.synthetic import conv_space
from tunefarm_tuning.workload.computation import Access, Axis, Computation

MATMUL = Computation(
    axes=(
        Axis(extent=64, reduces=False),
        Axis(extent=128, reduces=False),
        Axis(extent=32, reduces=True),
    ),
    accesses=(
        Access(itemsize_bytes=4, writes=False, dims=(((0, 1),), ((2, 1),))),
        Access(itemsize_bytes=4, writes=False, dims=(((2, 1),), ((1, 1),))),
        Access(itemsize_bytes=4, writes=True, dims=(((0, 1),), ((1, 1),))),
    ),
    vector_bytes=64,
)


def matmul_space(rows: int = 64, columns: int = 128) -> ConfigSpace:
    knobs = (
        Knob.tile("i", rows, 4, 64),
        Knob.tile("j", columns, 4, 64),
        Knob.tile("k", 32, 2, 64),
        Knob.categorical("unroll", (0, 16, 64, 512)),
    )
    return ConfigSpace([Sketch(knobs, (0, 1, 2, -1), "SSRSRS", 1)], MATMUL)


def named(space: ConfigSpace, config: Config) -> dict[str, float]:
    row = space.row_of(config)
    assert row is not None
    nest = NestFeatures(space)
    return dict(zip(nest.names, nest(row[None])[0].tolist(), strict=True))


def test_features_of_a_matrix_product() -> None:
    features = named(matmul_space(), Config(0, ((2, 4, 2, 4), (1, 2, 2, 32), (8, 4), 2)))
    assert features["SSRSRS.trips0"] == log2(2 * 1)
    assert features["SSRSRS.trips2"] == log2(8)
    assert features["SSRSRS.trips5"] == log2(4 * 32)
    # Inside the outermost reduction loop: 8 x 4 of the left, 4 x 64 of the right, 8 x 64 of the result.
    assert features["bytes3.read0"] == log2(4 * 8 * 4)
    assert features["bytes3.read1"] == log2(4 * 4 * 64)
    assert features["bytes3.write"] == log2(4 * 8 * 64)
    assert features["bytes3.all"] == pytest.approx(log2(4 * (8 * 4 + 4 * 64 + 8 * 64)))
    assert features["run5.read1"] == log2(32)
    assert features["S0.extent"] == log2(128)
    assert features["S0.level5"] == log2(32)
    assert features["S1.level5"] == log2(4)
    assert features["R0.level4"] == log2(4)
    assert features["vector.width"] == log2(32 / 16)
    assert features["vector.accumulators"] == log2(2 * 4)
    assert features["unroll.limit"] == pytest.approx(log2(65))
    assert features["epilogue.level"] == 1


def test_fewer_and_narrower_registers_are_scarcer() -> None:
    config = Config(0, ((2, 4, 2, 4), (1, 2, 2, 32), (8, 4), 2))
    space = matmul_space()
    avx2 = ConfigSpace(space.sketches, replace(MATMUL, vector_bytes=32, registers=16))
    features = named(avx2, config)
    assert features["vector.width"] == log2(32 / 8)
    assert features["vector.accumulators"] == log2(4 * 4 * 2), (
        "of 16 registers, which are twice as scarce as 32"
    )


def test_windows_overlap() -> None:
    """Four outputs, two apart, of a window of three read nine inputs."""
    computation = Computation(
        axes=(Axis(extent=16, reduces=False), Axis(extent=3, reduces=True)),
        accesses=(
            Access(itemsize_bytes=4, writes=False, dims=(((0, 2), (1, 1)),)),
            Access(itemsize_bytes=4, writes=True, dims=(((0, 1),),)),
        ),
        vector_bytes=32,
    )
    knobs = (Knob.tile("x", 16, 4, 64), Knob.tile("r", 3, 2, 64))
    space = ConfigSpace([Sketch(knobs, (0, 1), "SSRSRS")], computation)
    features = named(space, Config(0, ((4, 1, 1, 4), (1, 3))))
    assert features["bytes4.read0"] == pytest.approx(log2(4 * 9))
    assert np.isnan(features["bytes4.read1"])
    assert features["bytes4.write"] == log2(4 * 4)


def test_spaces_of_a_kind_have_equal_columns_and_others_none() -> None:
    assert NestFeatures(matmul_space()).names == NestFeatures(matmul_space(32, 96)).names
    assert NestFeatures(conv_space()).names == ()


def test_a_space_keeps_its_computation_in_json() -> None:
    space = matmul_space()
    again = ConfigSpace.from_json(json.loads(json.dumps(space.to_json())))
    assert again.to_json() == space.to_json()
    assert again.computation == MATMUL
    assert again.family == space.family != ""
    assert again.extents == (64, 128, 32)
    assert again.key == ConfigSpace([Sketch(space.sketches[0].knobs)]).key, "no part of the identity"


def test_a_computation_without_registers_is_of_a_cpu_with_32() -> None:
    data = replace(MATMUL, registers=16).to_json()
    assert Computation.from_json(data).registers == 16
    del data["registers"]
    assert Computation.from_json(data) == MATMUL


@pytest.mark.parametrize(
    "broken", [{"axes": []}, {"axes": [[4, False]], "accesses": [[4, False, [[[7, 1]]]]]}]
)
def test_a_broken_computation_is_refused(broken: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="not a computation"):
        Computation.from_json({"vector_bytes": 64, **broken})


def test_the_prior_reads_the_features_that_the_engine_makes() -> None:
    """It breaks when features change and the prior was not fitted anew (`benchmarks/prior/fit.py`)."""
    names = NestFeatures(matmul_space()).names
    prior = load_prior(names, "throughput")
    assert prior is not None
    assert prior.names == names
    assert load_prior((), "throughput") is None
    assert load_prior(("XYZ.trips0",), "throughput") is None


def test_far_unrolled_nests_are_expected_to_take_longer_to_try() -> None:
    space = matmul_space()
    blocks = ((4, 2, 2, 4), (8, 1, 4, 4), (4, 8))
    unrolled, rolled = Config(0, (*blocks, 3)), Config(0, (*blocks, 0))
    rows = np.array([space.row_of(unrolled), space.row_of(rolled)])
    prior = load_prior(NestFeatures(space).names, "trial_sec")
    assert prior is not None
    longer, shorter = prior.predict(NestFeatures(space)(rows))
    assert longer > shorter


def test_the_prior_prefers_full_vectors_in_registers() -> None:
    space = matmul_space()
    good = Config(0, ((8, 1, 1, 8), (4, 1, 1, 32), (32, 1), 2))
    scalar = Config(0, ((8, 8, 1, 1), (128, 1, 1, 1), (1, 32), 0))
    rows = np.array([space.row_of(good), space.row_of(scalar)])
    prior = load_prior(NestFeatures(space).names, "throughput")
    assert prior is not None
    better, worse = prior.predict(NestFeatures(space)(rows))
    assert better > worse + 1
