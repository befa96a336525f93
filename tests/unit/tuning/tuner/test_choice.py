"""Tuners by name, and their seeds."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.measure.runner.landscape import SyntheticLandscape
from tunefarm_tuning.testing.synthetic import conv_space, synthetic_task, tiny_space
from tunefarm_tuning.testing.tuner_contract import answers
from tunefarm_tuning.tuner import TUNERS, make_tuner, task_seed
from tunefarm_tuning.tuner.xgb import space_filling_rows

TASK = synthetic_task()


@pytest.mark.parametrize("name", TUNERS)
def test_every_name_makes_the_tuner_of_that_name(name: str) -> None:
    tuner = make_tuner(name, TASK, tiny_space(), seed=3)
    assert tuner.name == name
    assert tuner.seed == 3
    tuner.close()


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("XGBTuner", "xgb"),
        ("gaa", "ga"),
        ("rand", "random"),
        ("gridsearch", "grid"),
        ("evolution", "evolutionary"),
    ],
)
def test_an_unknown_name_lists_its_nearest(name: str, hint: str) -> None:
    with pytest.raises(InvalidInputError, match=f"did you mean {hint}"):
        make_tuner(name, TASK, tiny_space())


def test_a_name_like_no_other_lists_all() -> None:
    with pytest.raises(InvalidInputError, match="there are xgb, ga, random") as caught:
        make_tuner("\x1b[31m?", TASK, tiny_space())
    assert caught.value.fields["known"] == list(TUNERS)
    assert "\x1b" not in caught.value.message


def test_tasks_have_seeds_of_their_own() -> None:
    first, other = synthetic_task("one"), synthetic_task("other")
    assert task_seed(0, first) == task_seed(0, first)
    assert len({task_seed(s, t) for s in (0, 1) for t in (first, other)}) == 4
    assert 0 <= task_seed(10**12, first) < 2**32


def test_ga_breeds_from_the_fastest() -> None:
    """Once parents are alike, so are their children."""
    space = conv_space()
    tuner = make_tuner("ga", TASK, space, seed=1)
    rng = np.random.default_rng(0)
    slow = space.sample(rng, 30)
    fast = [space.sample(rng, 1)[0]]
    fast += list(space.neighbours(fast[0]))[:15]
    landscape = SyntheticLandscape(space)
    tuner.tell(answers(slow, landscape))
    from dataclasses import replace

    tuner.tell([replace(r, cost_sec=1e-9) for r in answers(fast, landscape)])
    row = space.row_of(fast[0])
    children = [space.row_of(c) for c in tuner.ask(16)]
    assert row is not None
    away = [int((child != row).sum()) for child in children if child is not None]
    assert np.mean(away) < 4


def test_xgb_fills_the_space_first() -> None:
    space = conv_space()
    first = make_tuner("xgb", TASK, space, seed=5).ask(16)
    assert first == space.configs(space_filling_rows(space, 16, np.random.default_rng(5)))


def test_space_filling_rows_cover_the_choices_of_every_knob_evenly() -> None:
    space = conv_space()
    rows = space_filling_rows(space, 16, np.random.default_rng(0))
    assert sorted(rows[:, 0]) == [0] * 8 + [1] * 8
    for column, knob in enumerate(space.sketches[1].knobs, start=1):
        quarters = np.bincount(rows[:, column] * 4 // len(knob), minlength=4)
        if len(knob) >= 16:
            assert sorted(quarters) == [4, 4, 4, 4]
    assert sorted(np.bincount(rows[:, 8])) == [4, 4, 4, 4]  # unroll: four candidates, equally likely


def test_space_filling_rows_follow_sampling_weights() -> None:
    space = tiny_space()
    rows = space_filling_rows(space, 60, np.random.default_rng(0))
    chosen = rows[rows[:, 0] == 2, 1]
    assert 0 < chosen.mean() < 0.3
    assert all(space.contains(config) for config in space.configs(rows))


def test_a_tuner_without_a_model_imports_neither_xgboost_nor_tvm() -> None:
    code = (
        "import sys; from tunefarm_tuning.search.tune import tune; from tunefarm_tuning.testing.synthetic import *;"
        "from tunefarm_tuning.tuner import make_tuner;"
        "make_tuner('ga', synthetic_task(), tiny_space()).ask(4);"
        "assert not {'tvm', 'xgboost', 'onnx'} & set(sys.modules), 'heavy'"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
