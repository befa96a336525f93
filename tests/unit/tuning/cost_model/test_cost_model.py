"""The cost model and its features."""

from __future__ import annotations

import numpy as np
import pytest

from tunefarm_tuning.cost_model.base import TrialGroup
from tunefarm_tuning.cost_model.features import FeatureMap
from tunefarm_tuning.cost_model.xgb import XGBCostModel
from tunefarm_tuning.measure.runner.landscape import SyntheticLandscape
from tunefarm_tuning.space.config_space import ConfigSpace, Sketch
from tunefarm_tuning.space.knob import Knob
from tunefarm_tuning.testing.synthetic import conv_space, tiny_space


def test_every_config_of_a_small_space_has_features_of_its_own() -> None:
    space = tiny_space()
    rows = [space.row_of(space.config_at(i)) for i in range(space.size)]
    features = FeatureMap(space)(np.array(rows))
    assert features.shape == (space.size, len(FeatureMap(space).names))
    assert len(np.unique(features, axis=0)) == space.size
    assert np.isfinite(features).all()


def test_features_mean_what_their_names_say() -> None:
    space = ConfigSpace(
        [
            Sketch(
                (
                    Knob.tile("h", 8, 3, 64),
                    Knob.tile("w", 16, 3, 64),
                    Knob.tile("k", 4, 2, 64),
                    Knob.categorical("unroll", (0, 64)),
                    Knob.location("at", (-2, -1, 3)),
                )
            )
        ]
    )
    features = FeatureMap(space)
    knobs = space.sketches[0].knobs
    decisions = ((2, 1, 4), (2, 4, 2), (1, 4), 1, 3)
    row = np.array([[0, *(k.find(d) for k, d in zip(knobs, decisions, strict=True))]])
    named = dict(zip(features.names, features(row)[0].tolist(), strict=True))
    assert named["sketch0"] == 1
    assert (named["1.log0"], named["1.log1"], named["1.log2"]) == (1, 0, 2)
    assert named["2.inner1"] == 3
    assert (named["all3.log0"], named["all3.log1"], named["all3.log2"]) == (2, 2, 3)
    assert named["all3.inner1"] == 5
    assert named["all2.log1"] == 2
    assert named["innermost block"] == 5
    assert named["4.value"] == pytest.approx(np.log2(65))
    assert (named["5.is0"], named["5.is2"], named["5.value"]) == (0, 1, 2)


def test_like_knobs_of_two_sketches_share_columns() -> None:
    space = conv_space()
    names = FeatureMap(space).names
    assert len(set(names)) == len(names)
    rows = space.sample_rows(np.random.default_rng(0), 2)
    rows[1] = rows[0]
    rows[:, 0] = (0, 1)
    rows[1, -1] = 0
    first, other = FeatureMap(space)(rows)
    differing = {name for name, a, b in zip(names, first, other, strict=True) if a != b}
    assert differing <= {n for n in names if n.startswith(("sketch", "9."))}


def test_equal_spaces_have_equal_columns() -> None:
    assert FeatureMap(conv_space()).names == FeatureMap(conv_space()).names


def test_the_model_orders_configs_that_it_never_saw() -> None:
    space = conv_space()
    landscape = SyntheticLandscape(space, seed=0)
    rows = space.sample_rows(np.random.default_rng(0), 400)
    costs = np.array([landscape.cost_sec(c) for c in space.configs(rows)])
    throughputs = (costs.min() / costs).astype(np.float32)
    features = FeatureMap(space)(rows)
    model = XGBCostModel(seed=1)
    halves = [_group(features[:100], throughputs[:100]), _group(features[100:200], throughputs[100:200])]
    model.fit(halves)
    scores = model.predict(features[200:], np.zeros(200, dtype=np.float32))
    assert _rank_correlation(scores, throughputs[200:]) > 0.6
    again = XGBCostModel(seed=1)
    again.fit(halves)
    assert (again.predict(features[200:], np.zeros(200, dtype=np.float32)) == scores).all()


def _group(features: np.ndarray, throughputs: np.ndarray) -> TrialGroup:
    return TrialGroup(
        features=features,
        throughputs=throughputs / throughputs.max(),
        margins=np.zeros(len(features), dtype=np.float32),
    )


def test_margins_are_what_is_expected_where_nothing_was_tried() -> None:
    """Trials that agree with the margins but for a constant change nothing in the order."""
    space = conv_space()
    features = FeatureMap(space)(space.sample_rows(np.random.default_rng(0), 200))
    margins = np.random.default_rng(1).uniform(-2, 0, 200).astype(np.float32)
    throughputs = np.exp2(margins[:50] - margins[:50].max())
    model = XGBCostModel()
    model.fit([TrialGroup(features=features[:50], throughputs=throughputs, margins=margins[:50])])
    scores = model.predict(features, margins)
    assert _rank_correlation(scores, margins) > 0.99


def test_groups_need_no_common_scale() -> None:
    """Two devices, one a hundred times slower."""
    space = conv_space()
    landscape = SyntheticLandscape(space, seed=0)
    rows = space.sample_rows(np.random.default_rng(0), 300)
    costs = np.array([landscape.cost_sec(c) for c in space.configs(rows)])
    throughputs = (np.where(np.arange(300) < 100, 1.0, 0.01) * costs.min() / costs).astype(np.float32)
    features = FeatureMap(space)(rows)
    model = XGBCostModel()
    model.fit([_group(features[:100], throughputs[:100]), _group(features[100:200], throughputs[100:200])])
    scores = model.predict(features[200:], np.zeros(100, dtype=np.float32))
    assert _rank_correlation(scores, -costs[200:]) > 0.6


def _rank_correlation(first: np.ndarray, other: np.ndarray) -> float:
    return float(np.corrcoef(first.argsort().argsort(), other.argsort().argsort())[0, 1])
