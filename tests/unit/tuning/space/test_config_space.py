"""ConfigSpace: enumeration, rows, moves and the JSON round trip."""

from __future__ import annotations

import json
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tunefarm_tuning.space.config import Config, KnobKind
from tunefarm_tuning.space.config_space import ConfigSpace, Sketch
from tunefarm_tuning.space.knob import Knob
from tunefarm_tuning.space.misfit import misfit


def conv_space(*, locations: tuple[int, ...] = (-1, 3, 5, 7)) -> ConfigSpace:
    tiles = tuple(Knob.tile(f"tile_{i}", extent, 4, 64) for i, extent in enumerate((1, 56, 56, 64)))
    reduce = tuple(Knob.tile(f"reduce_{i}", extent, 2, 64) for i, extent in enumerate((3, 3, 64)))
    unroll = Knob.categorical("unroll", (0, 16, 64, 512), (0.25, 0.25, 0.25, 0.25))
    base = (*tiles, *reduce, unroll)
    return ConfigSpace([Sketch((*base, Knob.location("write", locations))), Sketch(base)])


def tiny_space() -> ConfigSpace:
    return ConfigSpace(
        [
            Sketch((Knob.tile("t", 12, 2, 6), Knob.location("l", (-2, -1, 4)))),
            Sketch(()),
            Sketch((Knob.categorical("c", (0, 8), (0.9, 0.1)),)),
        ]
    )


knobs = st.one_of(
    st.builds(
        Knob.tile,
        st.just("t"),
        st.integers(1, 720),
        st.integers(2, 4),
        st.integers(1, 64),
    ),
    st.builds(
        Knob.categorical, st.just("c"), st.lists(st.integers(0, 1024), min_size=1, max_size=5, unique=True)
    ),
    st.builds(Knob.location, st.just("l"), st.lists(st.integers(-2, 12), min_size=1, max_size=6)),
)
spaces = st.lists(st.lists(knobs, max_size=4).map(tuple).map(Sketch), min_size=1, max_size=3).map(ConfigSpace)


@given(spaces, st.data())
@settings(max_examples=60, deadline=None)
def test_no_config_of_a_space_is_a_misfit(space: ConfigSpace, data: st.DataObject) -> None:
    config = space.config_at(data.draw(st.integers(0, space.size - 1)))
    assert misfit(space.to_json(), config) == ""


def test_tiny_space_is_enumerated_completely() -> None:
    space = tiny_space()
    # 12 = a·b with b ≤ 6: b in 1, 2, 3, 4, 6
    assert space.size == 5 * 3 + 1 + 2
    configs = [space.config_at(i) for i in range(space.size)]
    assert len({c.key for c in configs}) == space.size
    assert [space.index_of(c) for c in configs] == list(range(space.size))
    assert configs[0] == Config(0, ((2, 6), -2))
    assert all(space.contains(c) for c in configs)
    with pytest.raises(IndexError):
        space.config_at(space.size)


@given(spaces, st.randoms(use_true_random=False))
@settings(deadline=None)
def test_index_row_and_json_round_trips(space: ConfigSpace, random: object) -> None:
    rng = np.random.default_rng(random.randrange(2**32))  # type: ignore[attr-defined]
    for config in space.sample(rng, 5):
        assert space.config_at(space.index_of(config)) == config
        row = space.row_of(config)
        assert row is not None
        assert space.configs(row[None]) == [config]
        assert space.contains(Config.from_json(json.loads(json.dumps(config.to_json()))))
    again = ConfigSpace.from_json(json.loads(json.dumps(space.to_json())))
    assert again == space
    assert again.key == space.key
    assert again.to_json() == space.to_json()


@given(spaces, st.integers(0, 2**32 - 1))
@settings(deadline=None)
def test_moves_stay_inside_the_space(space: ConfigSpace, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = space.sample_rows(rng, 16)
    for moved in (
        space.mutate_rows(rows, rng),
        space.mutate_rows(rows, rng, jump=0.0),
        space.crossover_rows(rows, rows[::-1], rng),
    ):
        assert all(space.contains(c) for c in space.configs(moved))
        for row in moved:  # padding stays zero: rows can be compared as bytes
            assert not row[1 + len(space.sketches[row[0]].knobs) :].any()


def test_mutation_changes_one_knob() -> None:
    space, rng = conv_space(), np.random.default_rng(0)
    rows = space.sample_rows(rng, 500)
    moved = space.mutate_rows(rows, rng)
    assert set((moved != rows).sum(axis=1)) == {1}
    assert not (moved[:, 0] != rows[:, 0]).any()


def test_a_step_that_is_not_legal_ends_elsewhere() -> None:
    knob = Knob.tile("t", 12, 2, 2)  # (6, 2) and (12, 1): most moves break the bound
    here = np.arange(len(knob)).repeat(50)
    assert (knob.step_indices(here, np.random.default_rng(0)) != here).all()


def test_sample_is_distinct_and_follows_the_seed() -> None:
    space = conv_space()
    sample = space.sample(np.random.default_rng(3), 200)
    assert len({c.key for c in sample}) == 200
    assert sample == space.sample(np.random.default_rng(3), 200)
    tiny = tiny_space()
    assert len(tiny.sample(np.random.default_rng(0), 100)) == tiny.size


def test_categorical_is_sampled_by_weight() -> None:
    knob = Knob.categorical("c", (0, 8), (0.9, 0.1))
    drawn = knob.sample_indices(np.random.default_rng(0), 4000)
    assert 0.07 < drawn.mean() < 0.13


def test_location_outside_the_choices_snaps_to_the_nearest() -> None:
    space = conv_space()
    config = space.config_at(0)
    snapped = Config(config.sketch, (*config.decisions[:-1], 6))
    assert not space.contains(snapped)
    with pytest.raises(ValueError, match="no choice 6"):
        space.index_of(snapped)
    row = space.row_of(snapped)
    assert row is not None
    assert space.configs(row[None])[0].decisions[-1] in (5, 7)


def test_config_of_another_space_has_no_row() -> None:
    space = tiny_space()
    for config in (Config(9, ()), Config(0, ((2, 6),)), Config(0, (3, -1)), Config(2, ((1, 2),))):
        assert not space.contains(config)
        assert space.row_of(config) is None
        assert list(space.neighbours(config)) == []


@pytest.mark.parametrize("factor", [0, -1, 10**30, -(10**30), 10**400])
def test_factors_that_are_nonsense_have_no_row(factor: int) -> None:
    space = conv_space()
    config = space.config_at(0)
    nonsense = Config(config.sketch, ((1, 1, 1, factor), *config.decisions[1:]))
    assert not space.contains(nonsense)
    assert space.row_of(nonsense) is None


def test_crossover_between_sketches_exchanges_like_knobs_only() -> None:
    space, rng = conv_space(), np.random.default_rng(1)
    first = space.sample_rows(rng, 64)
    first[:, 0] = 0
    other = space.sample_rows(rng, 64)
    other[:, 0], other[:, -1] = 1, 0
    child = space.crossover_rows(first, other, rng)
    assert (child[:, 0] == 0).all()
    assert (child[:, -1] == first[:, -1]).all()
    assert ((child == first) | (child == other)).all()
    assert (child != first).any()


def test_neighbours_differ_in_one_knob_by_one_step() -> None:
    space = conv_space()
    config = space.sample(np.random.default_rng(5), 1)[0]
    near = list(space.neighbours(config))
    assert near
    assert len({c.key for c in near}) == len(near)
    for other in near:
        changed = [(a, b) for a, b in zip(config.decisions, other.decisions, strict=True) if a != b]
        assert len(changed) == 1
        before, after = changed[0]
        if isinstance(before, tuple) and isinstance(after, tuple):
            assert prod(before) == prod(after)
            assert sum(a != b for a, b in zip(before, after, strict=True)) == 2


def test_key_ignores_names_and_weights_but_not_choices() -> None:
    assert conv_space().key == conv_space().key
    assert conv_space().key != conv_space(locations=(-1, 3, 5)).key
    named = [
        Sketch((Knob.categorical(name, (0, 1), probs),)) for name, probs in (("a", None), ("b", (0.1, 0.9)))
    ]
    assert ConfigSpace(named[:1]).key == ConfigSpace(named[1:]).key


def test_key_is_stable_across_versions() -> None:
    """Records are found by it: a change here makes every user's records miss."""
    assert tiny_space().key == "d2c5d2ff7679a95c"


def test_huge_extent_is_thinned_and_survives() -> None:
    extent = 2**8 * 3**4 * 5**2 * 7 * 11
    knob = Knob.tile("t", extent, 5, 1024)
    assert len(knob) == 1 << 16
    assert len({tuple(row) for row in knob.table.tolist()}) == len(knob)
    assert all(prod(c) == extent for c in knob.table[::997].tolist())
    rng = np.random.default_rng(0)
    indices = knob.sample_indices(rng, 100)
    assert (knob.find_factors(knob.table[indices]) == indices).all()
    moved = knob.step_indices(indices, rng)
    assert ((moved >= 0) & (moved < len(knob))).all()
    every = {tuple(row) for row in knob.table.tolist()}
    missing = next(c for c in ((extent // d, 1, 1, 1, d) for d in (1, 2, 3, 4, 5, 6, 7, 8)) if c not in every)
    assert knob.find(missing) is None
    assert knob.nearest(missing) is not None


@pytest.mark.parametrize(
    "make",
    [
        lambda: ConfigSpace([]),
        lambda: Knob.tile("t", 0, 2, 4),
        lambda: Knob.tile("t", 8, 1, 4),
        lambda: Knob.categorical("c", ()),
        lambda: Knob.categorical("c", (1, 2), (1.0,)),
        lambda: Knob.categorical("c", (1, 2), (0.0, 0.0)),
        lambda: Knob.location("l", ()),
        lambda: Knob.from_json(["tile", "t", 3]),
        lambda: Knob.from_json(["other", "t", 3]),
        lambda: Knob.from_json([]),
        lambda: ConfigSpace.from_json({"version": 99, "sketches": []}),
        lambda: ConfigSpace.from_json({"version": 1, "sketches": []}),
    ],
)
def test_nonsense_is_refused(make: object) -> None:
    with pytest.raises(ValueError, match=r".+"):
        make()  # type: ignore[operator]


def test_a_hundred_thousand_configs_at_once() -> None:
    space, rng = conv_space(), np.random.default_rng(0)
    rows = space.sample_rows(rng, 100_000)
    assert rows.shape == (100_000, space.width)
    assert space.mutate_rows(rows, rng).shape == rows.shape


def test_kinds_are_stable_names() -> None:
    assert [k.value for k in KnobKind] == ["tile", "categorical", "location"]


def test_a_row_is_kept_and_cannot_be_changed() -> None:
    space = tiny_space()
    config = space.config_at(2)
    row = space.row_of(config)
    assert row is not None
    with pytest.raises(ValueError, match="read-only"):
        row[0] = 1
    assert space.row_of(Config(config.sketch, config.decisions)) is row
