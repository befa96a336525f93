"""GridSearchTuner: every config once, and no long runs of configs that may be equal when built."""

from __future__ import annotations

from tunefarm_tuning.space.config_space import ConfigSpace, Sketch
from tunefarm_tuning.space.knob import Knob
from tunefarm_tuning.tuner.baselines import GridSearchTuner

SPACE = ConfigSpace(
    [
        Sketch(
            (Knob.tile("i", 8, 2, 8), Knob.location("at", (-2, -1, 0, 3)), Knob.categorical("u", (0, 16)))
        ),
        Sketch((Knob.categorical("u", (0, 16, 64)),)),
    ]
)


def test_every_config_is_proposed_once() -> None:
    configs = GridSearchTuner(SPACE).ask(SPACE.size + 5)
    assert len(configs) == SPACE.size
    assert {config.key for config in configs} == {SPACE.config_at(i).key for i in range(SPACE.size)}


def test_without_locations_the_order_is_canonical() -> None:
    space = ConfigSpace([Sketch((Knob.tile("i", 24, 3, 8), Knob.categorical("u", (0, 16))))])
    assert GridSearchTuner(space).ask(space.size) == [space.config_at(i) for i in range(space.size)]


def test_locations_vary_slowest() -> None:
    per_location = SPACE.sketches[0].size // 4
    first = GridSearchTuner(SPACE).ask(per_location)
    assert {config.decisions[1] for config in first} == {-2}
    assert len({(config.decisions[0], config.decisions[2]) for config in first}) == per_location
