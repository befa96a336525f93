"""Tiles that leave a tail: which extents have them, and the knobs that list them."""

from __future__ import annotations

import json
from math import prod

import numpy as np
import pytest

from tunefarm_tuning.cost_model.features import FeatureMap
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.space.config_space import ConfigSpace, Sketch
from tunefarm_tuning.space.knob import Knob
from tunefarm_tuning.space.tail_tiles import num_tails, tail_extents


def test_extents_that_good_tiles_divide_have_none() -> None:
    for extent in (1, 3, 7, 12, 14, 28, 49, 56, 64, 77, 100, 112, 128, 196, 224, 1000, 1536):
        assert tail_extents(extent) == ()
    for extent in (1, 3, 10, 16, 24, 40, 49, 56, 58, 64, 72, 96, 128, 200, 768, 1000, 1280, 3072):
        assert tail_extents(extent, lanes=16) == ()


@pytest.mark.parametrize("extent", [17, 58, 116, 197, 232, 577, 1025, 30522, 50257])
@pytest.mark.parametrize("lanes", [0, 8, 16])
def test_others_have_a_few_that_are_a_little_larger(extent: int, lanes: int) -> None:
    extents = tail_extents(extent, lanes=lanes)
    assert list(extents) == sorted(set(extents))
    assert len(extents) <= 5
    assert all(extent < padded <= 1.3 * extent for padded in extents)
    assert bool(extents) == (extent > 4 * lanes)


@pytest.mark.parametrize("lanes", [0, 2, 4, 8, 16, 32])
def test_none_of_them_is_the_extent_itself(lanes: int) -> None:
    """The best tile may divide a large extent of awkward primes, which is then rounder than larger numbers."""
    large = (41_616, 83_232, 110_976, 115_600, 144_400, 166_464, 2_088_960, 27_744, 29_750, 38_250)
    for extent in (*range(1, 300), *large):
        tails = tail_extents(extent, lanes=lanes)
        assert extent not in tails
        Knob.tile("i", extent, 4, 64, tails)


def test_vectors_do_not_run_along_every_loop() -> None:
    """Seven rows fill registers well, seven elements no vector."""
    assert tail_extents(77) == ()
    assert tail_extents(77, lanes=16) == (80, 96)
    assert tail_extents(58, lanes=8) == (60, 64, 72)
    assert tail_extents(58, lanes=16) == (), "four vectors are one tile"


def test_tails_are_counted_level_by_level() -> None:
    tilings = np.array([[17, 1, 1, 12], [1, 17, 1, 12], [5, 5, 1, 8], [1, 1, 1, 208], [197, 1, 1, 1]])
    # 16 tiles of 12 and 5 rows; the same; 4 of 40 and 37, which are 4 of 8 and 5; one tile that is not full; all tiles full.
    assert num_tails(tilings, 197).tolist() == [1, 1, 2, 0, 0]


def test_a_knob_lists_tilings_with_one_tail_beside_the_perfect_ones() -> None:
    knob = Knob.tile("i", 197, 4, 64, (204, 208))
    choices = list(knob.choices)
    assert {prod(tiling) for tiling in choices if isinstance(tiling, tuple)} == {197, 204, 208}
    assert (17, 1, 1, 12) in choices
    assert (1, 2, 8, 13) not in choices, "a tile of 104 leaves 93, which leave 2"
    perfect = Knob.tile("i", 197, 4, 64)
    assert choices[: len(perfect)] == list(perfect.choices)
    assert [knob.find(tiling) for tiling in choices] == list(range(len(knob)))
    assert knob.find((1, 1, 1, 200)) is None
    assert perfect.find((17, 1, 1, 12)) is None


def test_moves_stay_among_the_tilings_and_reach_all_products() -> None:
    knob = Knob.tile("i", 197, 4, 64, (204, 208))
    rng = np.random.default_rng(0)
    here = np.arange(len(knob)).repeat(20)
    there = knob.step_indices(here, rng)
    assert (there != here).all()
    products = knob.table.prod(axis=1)
    assert set(zip(products[here].tolist(), products[there].tolist(), strict=True)) >= {
        (204, 208),
        (208, 204),
        (204, 204),
    }
    for index in range(len(knob)):
        for near in knob.neighbour_indices(index):
            assert products[near] == products[index]


def test_json_round_trip_and_what_makes_a_space_another() -> None:
    plain, tails = Knob.tile("i", 197, 4, 64), Knob.tile("i", 197, 4, 64, (204,))
    assert plain.to_json() == ["tile", "i", 197, 4, 64], "as it was written before there were such"
    assert Knob.from_json(json.loads(json.dumps(tails.to_json()))) == tails
    spaces = [ConfigSpace([Sketch((knob, Knob.categorical("u", (0, 16))))]) for knob in (plain, tails)]
    assert spaces[0].key != spaces[1].key
    again = ConfigSpace.from_json(json.loads(json.dumps(spaces[1].to_json())))
    assert again == spaces[1]
    for config in again.sample(np.random.default_rng(0), 50):
        assert again.config_at(again.index_of(config)) == config
    assert FeatureMap(spaces[0]).names == FeatureMap(spaces[1]).names
    assert not spaces[0].contains(Config(0, ((17, 1, 1, 12), 0)))


@pytest.mark.parametrize("others", [(190,), (204, 200), (204, 204), (500,), tuple(range(198, 230))])
def test_nonsense_is_refused(others: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="knob i"):
        Knob.tile("i", 197, 4, 64, others)
    with pytest.raises(ValueError, match="not a knob"):
        Knob.from_json(["tile", "i", 197, 4, 64, list(others)])
