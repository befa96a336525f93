"""Learning tuners find better configs than random search, on fixed landscapes and seeds."""

from __future__ import annotations

from dataclasses import replace
from statistics import median

import pytest

from tunefarm_tuning.measure.runner.landscape import SyntheticLandscape
from tunefarm_tuning.testing.synthetic import conv_space, synthetic_task
from tunefarm_tuning.testing.tuner_contract import answers, history
from tunefarm_tuning.tuner import make_tuner
from tunefarm_tuning.tuner.xgb import XGBTuner

SEEDS = range(5)


def best_after(tuner_name: str, *, trials: int, seed: int, failing: float = 0.1) -> float:
    space = conv_space()
    landscape = SyntheticLandscape(space, seed=seed + 10, failing=failing)
    tuner = make_tuner(tuner_name, synthetic_task(), space, seed=seed)
    best = float("inf")
    for _ in range(trials // 8):
        results = answers(tuner.ask(8), landscape)
        tuner.tell(results)
        best = min([best, *(r.cost_sec for r in results if r.cost_sec is not None)])
    return best


@pytest.mark.parametrize("tuner_name", ["ga", "xgb"])
def test_learning_beats_chance(tuner_name: str) -> None:
    learnt = median(best_after(tuner_name, trials=96, seed=seed) for seed in SEEDS)
    chance = median(best_after("random", trials=96, seed=seed) for seed in SEEDS)
    assert learnt < 0.9 * chance


@pytest.mark.exhaustive
def test_history_of_another_device_gives_a_good_first_batch() -> None:
    """The other device is twice as slow and orders configs alike."""
    space = conv_space()
    landscape = SyntheticLandscape(space, seed=1)
    cold, warm = [], []
    for seed in SEEDS:
        donor = make_tuner("xgb", synthetic_task(), space, seed=100 + seed)
        for _ in range(6):
            donor.tell(answers(donor.ask(8), landscape))
        tried = [config for config in _tried(donor) if config is not None]
        for group, histories in ((cold, []), (warm, [history(space, tried, seed=1)])):
            tuner = XGBTuner(space, seed=seed)
            tuner.load_history(histories)
            group.append(min(r.cost_sec or 9.0 for r in answers(tuner.ask(8), landscape)))
    assert median(warm) < 0.7 * median(cold)


def _tried(tuner: object) -> list:
    return [result.config for result in tuner.results]  # type: ignore[attr-defined]


def test_history_of_another_space_is_left_out() -> None:
    space = conv_space()
    tuner = XGBTuner(space, seed=0)
    there = history(space, [space.config_at(i) for i in range(30)])
    foreign = tuple(replace(record, space_key="another") for record in there.records)
    tuner.load_history([replace(there, records=foreign)])
    assert tuner.ask(8) == XGBTuner(space, seed=0).ask(8)
