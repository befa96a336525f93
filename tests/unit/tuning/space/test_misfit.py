"""Whether a config can be one of a space, told from the space's JSON."""

from __future__ import annotations

import pytest

from tunefarm_tuning.space.config import Config
from tunefarm_tuning.space.config_space import ConfigSpace, Sketch
from tunefarm_tuning.space.knob import Knob
from tunefarm_tuning.space.misfit import misfit
from tunefarm_tuning.testing.synthetic import tiny_space


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (Config(0, ((12, 1), 9)), ""),  # a location from no list, as TVM applies an illegal one
        (Config(3, ()), "it is of sketch 3, and there are 3"),
        (Config(-1, ()), "it is of sketch -1"),
        (Config(1, (1,)), "it has 1 decisions, and its sketch 0 knobs"),
        (Config(0, ((2, 6), -3)), "decision 2 is -3, which knob l cannot be"),
        (Config(0, ((2, 6), (1,))), "decision 2 is (1,)"),
        (Config(0, ((2, 6), True)), "decision 2 is True"),
        (Config(0, ((1, 12), -1)), "decision 1 is (1, 12), which knob t cannot be"),
        (Config(0, ((5, 2), -1)), "decision 1 is (5, 2)"),
        (Config(0, ((-2, -6), -1)), "decision 1 is (-2, -6)"),
        (Config(0, ((12,), -1)), "decision 1 is (12,)"),
        (Config(0, ((), -1)), "decision 1 is ()"),
        (Config(0, (12, -1)), "decision 1 is 12"),
        (Config(2, (2,)), "decision 1 is 2, which knob c cannot be"),
        (Config(2, (-1,)), "decision 1 is -1"),
    ],
)
def test_a_config_of_another_space_is_a_misfit(config: Config, reason: str) -> None:
    said = misfit(tiny_space().to_json(), config)
    assert said.startswith(reason)
    assert bool(said) == bool(reason)


def test_a_thinned_tiling_is_no_misfit() -> None:
    space = ConfigSpace([Sketch((Knob.tile("t", 1 << 30, 5, 64),))])
    config = Config(0, ((1 << 24, 2, 2, 4, 4),))
    assert misfit(space.to_json(), config) == ""


def test_a_tiling_of_another_product_is_no_misfit_if_the_knob_lists_it() -> None:
    space = ConfigSpace([Sketch((Knob.tile("t", 197, 2, 64, (198, 200)),))]).to_json()
    assert [misfit(space, Config(0, ((25, 8),))), misfit(space, Config(0, ((11, 18),)))] == ["", ""]
    assert "which knob t cannot be" in misfit(space, Config(0, ((199, 1),)))
